"""What a line says beyond its number: recovery action, registers, sub-codes, flags, texts, severities."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from healthboard.diagnosis import nvlink
from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import Claim, Claims, bursts
from healthboard.diagnosis.signals import Action, Verdict

#: So many uncontained errors on one GPU in one burst are a flood: the memory is beyond a reset.
FLOOD = 5
#: Parity bits more often than this on one link are its hardware.
PARITY_LIMIT = 2
#: A link is reset, or given up, within this time of its error.
RECOVERY = timedelta(minutes=2)
RECOVERY_WORDS = {
    0: "none", 1: "GPU reset", 2: "node reboot", 3: "drain peer-to-peer", 4: "drain and reset",
    5: "recover the IMEX domain", 6: "bus reset", 7: "system reboot",
}  # fmt: skip
#: Values that mean a reset or reboot by NVIDIA's own word.
RESETTING = frozenset({1, 2, 4})


def recovery_verdict(value: int | None) -> tuple[Verdict, Action]:
    if value == 0:
        return Verdict.HEALTHY, Action.NONE
    if value in RESETTING:
        return Verdict.HARDWARE, Action.REBOOT
    return Verdict.AMBIGUOUS, Action.REBOOT if value in (6, 7) else Action.DIAGNOSE


def latest_recovery(claim: Claim) -> int | None:
    """The newest "to" value of Xid 154 on this GPU."""
    told = [e for e in claim.events if isinstance(e.attrs.get("to"), int)]
    return max(told, key=lambda e: (e.last_at or e.at, e.seq or 0)).attrs["to"] if told else None


def apply(evidence: Evidence, claims: Claims) -> None:
    for claim in claims:
        if claim.code == "XID_154":
            _recovery_action(claim)
        elif claim.code == "XID_74":
            _nvlink_4(claim)
        elif claim.code in ("XID_144", "XID_145", "XID_146", "XID_147", "XID_148", "XID_149", "XID_150"):
            _nvlink_5(claim)
        elif claim.code == "XID_64":
            _remap_failure(evidence, claim)
        elif claim.code in ("XID_95", "XID_94"):
            _containment(evidence, claim)
        elif claim.code.startswith("SXID_"):
            _switch(claim)
        elif claim.code == "PCIE_AER_FATAL":
            _pcie(claim)
        elif claim.code == "ECC_UNCORRECTED" and any(e.attrs.get("refused") for e in claim.events):
            why = "the driver refuses work after an uncorrected memory error until the GPU is reset"
            claim.set(Verdict.HARDWARE, Action.REBOOT, why, "ecc-refused")


def _recovery_action(claim: Claim) -> None:
    to = latest_recovery(claim)
    verdict, action = recovery_verdict(to)
    words = RECOVERY_WORDS.get(to, f"value {to}") if to is not None else "not readable"
    if to == 0:
        why = "the driver withdraws its recovery action: recovered"
    else:
        why = f"the driver's own word, the strongest there is: {words}"
    claim.set(verdict, action, why, "recovery-action")


def _nvlink_4(claim: Claim) -> None:
    classes: set[str] = set()
    parity: Counter[object] = Counter()
    seen = False
    for event in claim.events:
        registers = event.attrs.get("registers")
        if not registers:
            continue
        seen = True
        found = nvlink.classes_74(list(registers))
        classes |= found
        if "parity" in found:
            parity[event.attrs.get("link")] += event.count
    if not seen:
        return
    link, times = parity.most_common(1)[0] if parity else (None, 0)
    if times > PARITY_LIMIT:
        why = f"ECC or parity bits {times} times on link {link}, more than {PARITY_LIMIT}: the hardware of that link"
        return claim.set(Verdict.HARDWARE, Action.REPLACE, why, "nvlink-parity")
    words = "; ".join(nvlink.WORDS_74[c] for c in sorted(classes)) or "no bit is set"
    if classes and classes <= {"ignore"}:
        return claim.set(Verdict.HEALTHY, Action.NONE, f"NVLink registers decoded: {words}", "nvlink-ignore")
    reset = bool(classes & {"parity", "repeat", "fabric"})
    action = Action.REBOOT if reset else Action.DIAGNOSE
    claim.set(Verdict.AMBIGUOUS, action, f"NVLink registers decoded: {words}", "nvlink-registers")


def _nvlink_5(claim: Claim) -> None:
    number = int(claim.code.removeprefix("XID_"))
    decoded = [
        nvlink.bucket_5(number, e.attrs["unit"], bool(e.attrs["fatal"]), e.attrs.get("intr"), e.attrs.get("status"))
        for e in claim.events
        if e.attrs.get("unit")
    ]
    if not decoded:
        return
    worst = next(d for bucket in ("reset", "defer", "watch", "ignore") for d in decoded if d[0] == bucket)
    if worst[0] == "reset":
        claim.set(Verdict.AMBIGUOUS, Action.REBOOT, worst[1], "nvlink5-reset")
    else:
        claim.set(Verdict.WATCH, Action.WATCH, worst[1], f"nvlink5-{worst[0]}")


def _remap_failure(evidence: Evidence, claim: Claim) -> None:
    flags = [r for r in evidence.now_of("ROW_REMAP", claim.gpu) if isinstance(r.value, dict)] if claim.gpu else []
    failed = [r.value.get("failure") for r in flags]
    texts = {e.attrs.get("remap") for e in claim.events}
    if True in failed:
        why = "the row remap could not be recorded and the remap-failure flag is set"
        claim.set(Verdict.HARDWARE, Action.REPLACE, why, "remap-failure")
    elif "full" in texts and False in failed:
        why = "the text says that no spare row is left, the remap-failure flag says No"
        claim.set(Verdict.AMBIGUOUS, Action.REPLACE, why, "remap-contradiction")
    elif "full" in texts:
        why = "the text says that no further row or page can be retired"
        claim.set(Verdict.HARDWARE, Action.REPLACE, why, "remap-full")
    elif texts <= {"pending", None} and "pending" in texts:
        why = "the row is already waiting for its remap: a reset is due, not a replacement"
        claim.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "remap-pending")
    elif False in failed:
        why = "a remap could not be recorded, yet the remap-failure flag says No"
        claim.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "remap-contradiction")


def _containment(evidence: Evidence, claim: Claim) -> None:
    flags = [e.attrs for e in claim.events if "RST" in e.attrs or "D-RST" in e.attrs]
    if claim.code == "XID_94":
        if any(a.get("RST") for a in flags):
            why = "contained, but the line itself asks for a reset"
            claim.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "contained-reset")
        return
    flood = max((sum(e.count for e in g) for g in bursts(claim.events, evidence.thresholds.burst_gap)), default=0)
    if flood >= FLOOD:
        why = f"a flood of uncontained memory errors: {flood} lines in one burst on one GPU"
        claim.set(Verdict.HARDWARE, Action.REPLACE, why, "uncontained-flood")
    elif flags and not any(a.get("RST") or a.get("D-RST") for a in flags):
        why = "called uncontained, yet the line says that no reset is needed"
        claim.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "uncontained-no-reset")
    else:
        why = "an uncontained memory error: no new work before a reset"
        claim.set(Verdict.HARDWARE, Action.REBOOT, why, "uncontained")


def _switch(claim: Claim) -> None:
    words = [e.attrs.get("severity") for e in claim.events]
    told = [w for w in words if w != "data"] or [e.attrs.get("table") for e in claim.events]
    if "fatal" in told:
        why = "a fatal NVSwitch error: jobs over NVLink cannot run until all GPUs are reset"
        claim.set(Verdict.HARDWARE, Action.REBOOT, why, "switch-fatal")
    elif told and told[-1] == "ended":
        claim.set(Verdict.HEALTHY, Action.NONE, "the switch withdraws its warning", "switch-ended")
    else:
        claim.set(Verdict.WATCH, Action.WATCH, "a non-fatal NVSwitch message", "switch-nonfatal")


def _pcie(claim: Claim) -> None:
    """Recovery fails for errors of any severity, since NVIDIA's driver takes part in none: only with a fatal error of the
    same port, or of the GPU itself, about that time is the link broken. Lines that name neither may be of several."""
    ports = {event.attrs.get("port") for event in claim.events}
    kinds = [
        {event.attrs.get("aer") for event in one}
        for port in ports
        for one in bursts([event for event in claim.events if event.attrs.get("port") == port], RECOVERY)
    ]
    if (claim.gpu or None not in ports) and any({"fatal", "recovery-failed"} <= told for told in kinds):
        why = "a fatal PCIe error and its recovery failed"
        claim.set(Verdict.HARDWARE, Action.REPLACE, why, "pcie-recovery-failed")
    elif any("recovery-failed" in told for told in kinds):
        why = "the recovery of a PCIe error failed, and no line says that the error was fatal"
        claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "pcie-recovery-failed")
    elif kinds and all("recovered" in told for told in kinds):
        claim.set(Verdict.WATCH, Action.WATCH, "a PCIe error whose recovery succeeded", "pcie-recovered")
