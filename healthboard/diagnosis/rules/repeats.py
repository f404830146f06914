"""Repetition on the same unit, across applications and across reboots; the recovery that takes a claim back."""

from __future__ import annotations

from datetime import timedelta

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import GONE, WORN, Claim, Claims, bursts, near
from healthboard.diagnosis.rules.companions import TOGETHER
from healthboard.diagnosis.rules.decode import RECOVERY_WORDS, RESETTING, latest_recovery, recovery_verdict
from healthboard.diagnosis.signals import Action, Event, Reading, Verdict

#: The application's until they repeat on one GPU over different applications.
MOVING = frozenset(f"XID_{n}" for n in (31, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)))
#: A reset is the vendor's step; coming back after a reboot means that it did not help.
RESET_CLASS = frozenset(f"XID_{n}" for n in (46, 48, 62, 95, 110, 140, 143, 158)) | {
    "GPU_INIT_FAILED", "GPU_RESET_REQUIRED", "GPU_RECOVERY_ACTION",
}  # fmt: skip
#: For a person the first time, hardware when they come back after a reboot.
FIRST_TIME = frozenset({"XID_109", "XID_119", "XID_120"})
FATAL_BURSTS = 5
#: NVML that still reads a GPU this long after its loss was logged contradicts the log.
_CONTRADICTS_AFTER = timedelta(seconds=30)


def apply(evidence: Evidence, claims: Claims) -> None:
    for claim in claims:
        if claim.code == "XID_13":
            _same_place(evidence, claim)
        elif claim.code in MOVING:
            _same_gpu(evidence, claim)
        elif claim.code == "XID_94":
            _contained_again(evidence, claim)
        if claim.code in RESET_CLASS | FIRST_TIME:
            _after_reboot(evidence, claim)


def _apps(evidence: Evidence, group: list[Event]) -> frozenset[str]:
    """Names of the applications behind a burst; 13 itself often has none, the 43 or 45 that follows does."""
    names = {str(e.attrs["name"]) for e in group if e.attrs.get("name")}
    if not names:
        start, end = group[0].at, max(e.last_at or e.at for e in group) + timedelta(minutes=1)
        after = evidence.of("XID_43", "XID_45") + evidence.of("XID_43", "XID_45", earlier=True)
        names = {
            str(e.attrs["name"])
            for e in after
            if e.gpu == group[0].gpu and start <= e.at <= end and e.attrs.get("name")
        }
    return frozenset(names)


def _recent(evidence: Evidence, claim: Claim) -> list[Event]:
    oldest = evidence.now - evidence.thresholds.repeat_window
    found = evidence.of(claim.code, gpu=claim.gpu, earlier=True) + claim.events
    return [e for e in found if (e.last_at or e.at) >= oldest]


def _same_place(evidence: Evidence, claim: Claim) -> None:
    by_place: dict[str, list[Event]] = {}
    for event in _recent(evidence, claim):
        if place := event.attrs.get("place"):
            by_place.setdefault(f"{place} {event.attrs.get('mig', '')}".strip(), []).append(event)
    for place, events in sorted(by_place.items()):
        times = len(bursts(events, evidence.thresholds.burst_gap))
        runs = {e.attrs["pid"] for e in events if e.attrs.get("pid")}
        undated = all(e.attrs.get("undated") for e in events)
        if (times > 1 and len(runs) != 1) or (undated and len(runs) > 1):
            why = f"the same place, {place}, {max(times, len(runs))} times within a day and not by one process"
            return claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "repeat-same-place")


def _same_gpu(evidence: Evidence, claim: Claim) -> None:
    groups = bursts(_recent(evidence, claim), evidence.thresholds.burst_gap)
    apps = frozenset().union(*(_apps(evidence, g) for g in groups)) if groups else frozenset()
    if len(groups) > 1 and len(apps) > 1:
        why = f"the same GPU {len(groups)} times within a day, over different applications"
        claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "repeat-same-gpu")


def _contained_again(evidence: Evidence, claim: Claim) -> None:
    groups = bursts(_recent(evidence, claim), evidence.thresholds.burst_gap)
    if len(groups) > 1 and claim.verdict is Verdict.WORKLOAD:
        why = f"contained memory errors {len(groups)} times within a day on one GPU"
        claim.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "contained-again")


def _after_reboot(evidence: Evidence, claim: Claim) -> None:
    before = [e for e in evidence.of(claim.code, earlier=True) if e.gpu == claim.gpu]
    if before and claim.verdict in (Verdict.HARDWARE, Verdict.AMBIGUOUS):
        why = "came back on the same GPU after a reboot: the reset did not help"
        return claim.set(Verdict.HARDWARE, Action.REPLACE, why, "again-after-reboot")
    if claim.code in RESET_CLASS and claim.verdict is Verdict.HARDWARE:
        groups = bursts(_recent(evidence, claim), evidence.thresholds.burst_gap)
        if len(groups) >= FATAL_BURSTS:
            why = f"{len(groups)} times within a day on one GPU"
            claim.set(Verdict.HARDWARE, Action.REPLACE, why, "many-bursts")


def raise_by_driver(evidence: Evidence, claims: Claims) -> None:
    """NVIDIA's recovery action decides: it raises what came before it on its GPU, or takes it back."""
    for told in claims.of("XID_154"):
        _apply_action(claims, told, latest_recovery(told), told)
    for reading in sorted(evidence.now_of("RECOVERY_ACTION"), key=lambda r: (r.gpu or "", r.source)):
        value = reading.value
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if value == 0:
            _withdrawn(evidence, claims, reading)
            continue
        told = claims.of("XID_154", gpu=reading.gpu)
        if told and latest_recovery(told[0]) == 0 and told[0].last > reading.last:
            continue
        if not told:
            told = [claims.add("GPU_RECOVERY_ACTION", reading.gpu, reading=reading)]
            verdict, action = recovery_verdict(value)
            why = f"the driver's own word, the strongest there is: {RECOVERY_WORDS.get(value, value)}"
            told[0].set(verdict, action, why, "recovery-action")
        else:
            told[0].readings.append(reading)
        if _apply_action(claims, told[0], value, told[0]) and told[0].code == "GPU_RECOVERY_ACTION":
            # the code that broke the GPU names the case; the reading is its second word
            for claim in claims.on(reading.gpu):
                if claim.gpu == reading.gpu and claim.verdict is Verdict.HARDWARE and claim is not told[0]:
                    claim.readings.append(reading)
            claims.drop(told[0])


def _apply_action(claims: Claims, told: Claim, value: int | None, origin: Claim) -> bool:
    """Raise or clear what lies before the driver's word on its GPU. True if a claim stands on it now."""
    stands = False
    for claim in claims:
        if claim.gpu != told.gpu or claim is origin or claim.code in ("XID_154", "GPU_RECOVERY_ACTION"):
            continue
        if value == 0:
            if claim.code not in GONE | WORN and claim.rule != "remap-full" and claim.told_last <= told.told_last:
                claim.set(Verdict.HEALTHY, Action.NONE, "the driver withdrew its recovery action since", "recovered")
        elif (
            value in RESETTING
            and claim.verdict in (Verdict.AMBIGUOUS, Verdict.HARDWARE)
            and near(claim, told, TOGETHER)
        ):
            stands = True
            if claim.verdict is Verdict.AMBIGUOUS:
                why = f"{claim.why}; the driver then asks for: {RECOVERY_WORDS[value]}"
                claim.set(Verdict.HARDWARE, Action.REBOOT, why, "raised-by-recovery-action")
    if stands and value in RESETTING:
        told.role = "companion"
    return stands


def _withdrawn(evidence: Evidence, claims: Claims, reading: Reading) -> None:
    """The reading went from a wanted step back to none: what was reported before is over."""
    for claim in claims:
        if (
            claim.gpu == reading.gpu
            and claim.events
            and claim.told_last < reading.since
            and claim.code not in GONE | WORN
            and any(isinstance(v, int) and v != 0 for v in evidence.left(reading, claim.told_last))
        ):
            claim.set(Verdict.HEALTHY, Action.NONE, "the driver withdrew its recovery action since", "recovered")


def answers_again(evidence: Evidence, claims: Claims) -> None:
    """NVML could not read the GPU, and reads it again since: what had been reported before is over."""
    for reading in sorted(evidence.now_of("GPU_STATUS"), key=lambda r: (r.gpu or "", r.source)):
        if reading.value != "ok":
            continue
        for claim in claims:
            if claim.gpu != reading.gpu or not claim.events or claim.told_last >= reading.since or claim.code in WORN:
                continue
            before = {"lost", "reset_required"}.intersection(evidence.left(reading, claim.told_last))
            if before and claim.code in GONE:
                why = "the GPU was lost and NVML reads it again without a reboot: keep an eye on it"
                claim.set(Verdict.WATCH, Action.WATCH, why, "answers-again")
            elif "reset_required" in before and claim.verdict is Verdict.HARDWARE:
                claim.set(Verdict.HEALTHY, Action.NONE, "NVML no longer asks for a reset", "recovered")


def contradictions(evidence: Evidence, claims: Claims) -> None:
    """A log says that a GPU is gone while NVML goes on reading it: somebody should look."""
    answering = {r.gpu: r for r in evidence.now_of("GPU_STATUS") if r.value == "ok" and r.source == "nvml"}
    for claim in claims.of("XID_79", "GPU_FALLEN_OFF_BUS", "XID_143", "GPU_INIT_FAILED"):
        reading = answering.get(claim.gpu) if claim.gpu else None
        # the number in a gauge or in ECS's reason is the same line once more, no look at the GPU
        looked = {r.source for r in claim.readings if r.name != "XID_LAST"}
        if not reading or looked or claim.verdict is not Verdict.HARDWARE:
            continue
        if reading.last - claim.told_last >= _CONTRADICTS_AFTER:
            why = "the log says that the GPU is gone, but NVML still reads it since"
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "contradicted-by-nvml")
