"""What NVML and DCGM read of the GPUs, as claims."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.nvml import STATES, UNCOUNTED, fabric_faults
from healthboard.diagnosis.parsed import number
from healthboard.diagnosis.rules.claims import GONE, Claims
from healthboard.diagnosis.signals import Action, Reading, Verdict

HW_THERMAL, POWER_BRAKE = 0x40, 0x80
#: A slowdown or heat that lasts this long is a matter for a person.
LASTING = timedelta(minutes=10)
#: When a reading that is due, but was not confirmed since, is looked at again.
SOON = timedelta(seconds=30)
#: Corrected memory errors a second on one GPU: worth watching, and worth a person.
SBE_WATCH, SBE_PERSON = 10.0, 1000.0


def apply(evidence: Evidence, claims: Claims) -> list[datetime]:
    """Adds the claims; returns the moments at which a lasting reading would count for more."""
    later: list[datetime] = []
    _library(evidence, claims)
    _status(evidence, claims)
    _count(evidence, claims)
    _memory(evidence, claims)
    _gauges(evidence, claims)
    for r in _ordered(evidence, "CLOCK_EVENTS"):
        if isinstance(r.value, int) and r.value & HW_THERMAL:
            later += _lasting(evidence, claims, "GPU_HW_THERMAL_SLOWDOWN", r)
        if isinstance(r.value, int) and r.value & POWER_BRAKE:
            claims.add("GPU_POWER_BRAKE", r.gpu, reading=r)
    for r in _ordered(evidence, "TEMPERATURE"):
        if r.value in ("high", "slowdown"):
            later += _lasting(evidence, claims, "GPU_OVERTEMP", r)
    later += _fabric(evidence, claims)
    for r in _ordered(evidence, "FABRIC_MANAGER"):
        if r.value == "down":
            claims.add("FABRIC_MANAGER_DOWN", reading=r)
    for r in _ordered(evidence, "PAGE_RETIREMENT"):
        if r.value in ("pending", "full"):
            claim = claims.add("PAGE_RETIREMENT", r.gpu, reading=r)
            if r.value == "full":
                why = f"{r.attrs.get('pages')} memory pages are retired, about as many as there may be"
                claim.set(Verdict.AMBIGUOUS, Action.REPLACE, why, "pages-full")
    for r in _ordered(evidence, "EFA_COUNT"):
        expected = r.attrs.get("expected")
        if isinstance(expected, int) and isinstance(r.value, int) and r.value < expected:
            claims.add("EFA_DEVICE_MISSING", reading=r).why = f"{r.value} of {expected} EFA devices are there"
    return later


def _ordered(evidence: Evidence, name: str) -> list[Reading]:
    return sorted(evidence.now_of(name), key=lambda r: (r.gpu or "", r.source))


def _lasting(evidence: Evidence, claims: Claims, code: str, r: Reading) -> list[datetime]:
    claim = claims.add(code, r.gpu, reading=r)
    if r.last - r.since >= LASTING or r.value == "slowdown":
        why = f"{claim.why.rstrip('.')}, and it lasts"
        claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "lasting")
        return []
    return [max(r.since + LASTING, evidence.now + SOON)]


def _fabric(evidence: Evidence, claims: Claims) -> list[datetime]:
    later: list[datetime] = []
    for r in _ordered(evidence, "FABRIC"):
        if r.value == "unhealthy":
            claim = claims.add("FABRIC_UNHEALTHY", r.gpu, reading=r)
            faults = fabric_faults(int(r.attrs["mask"])) if number(r.attrs.get("mask")) is not None else []
            if faults:
                claim.why = f"the fabric reports: {', '.join(faults)}; it may lie in a peer or a switch"
            elif number(r.attrs.get("status")):
                claim.why = f"the fabric did not come up: it ended with NVML's code {r.attrs['status']:.0f}"
        elif r.value == "starting":
            due = max(r.since, evidence.booted_at or r.since) + LASTING
            if r.last < due:  # only what was seen counts, and each boot has its own time
                later.append(max(due, evidence.now + SOON))
                continue
            claims.add("FABRIC_UNHEALTHY", r.gpu, reading=r).why = (
                "the fabric has not come up within 10 minutes, and jobs across GPUs fail; the fabric manager may be "
                "down, the GPU itself may be fine"
            )
    return later


def _library(evidence: Evidence, claims: Claims) -> None:
    for r in _ordered(evidence, "NVML"):
        code = STATES.get(str(r.value))
        if code:
            claims.add(code, reading=r)


def _status(evidence: Evidence, claims: Claims) -> None:
    for r in _ordered(evidence, "GPU_STATUS"):
        if r.value == "lost":
            if not _unlisted(r):  # else `_count` tells it: no line and no handle says that it is lost
                claims.add("NVML_GPU_IS_LOST", r.gpu, reading=r)
        elif r.value == "reset_required":
            claims.add("GPU_RESET_REQUIRED", r.gpu, reading=r)
        elif r.value == "error":
            code = {14: "INFOROM_CORRUPT", 15: "NVML_GPU_IS_LOST", 16: "GPU_RESET_REQUIRED"}.get(
                r.attrs.get("code"), "NVML_UNKNOWN_ERROR"
            )
            claims.add(code, r.gpu, reading=r)


def _count(evidence: Evidence, claims: Claims) -> None:
    expected = evidence.context.expected_gpus
    told = [r for r in _ordered(evidence, "GPU_STATUS") if r.value != "ok" and r.source == "nvml"]
    unlisted = [r for r in told if _unlisted(r)]
    unreadable = len(told) - len(unlisted)
    for r in _ordered(evidence, "GPU_COUNT"):
        named = unlisted if r.source == "nvml" else []
        want = r.attrs.get("expected") if isinstance(r.attrs.get("expected"), int) else expected
        if want is None and named and isinstance(r.value, int):
            want = r.value + len(named)
        if want is None or not isinstance(r.value, int) or r.value >= want:
            continue
        if r.value + unreadable >= want and r.value > 0:
            continue
        lost_before = evidence.of("XID_79", "GPU_FALLEN_OFF_BUS", earlier=True)
        for gpu in [row.gpu for row in named] or [_which(evidence)]:
            claim = claims.add("GPU_MISSING", gpu, reading=r)
            claim.why = f"{r.value} of {want} GPUs answer"
            # of several that are missing only the one that was lost is known to be broken
            lost = [e for e in lost_before if len(named) < 2 or e.gpu == gpu]
            if r.value == 0:
                claim.why += ": none at all points at the software first"
            elif lost:
                why = f"{claim.why} after a reboot; the missing one was lost before it"
                claim.set(Verdict.HARDWARE, Action.REPLACE, why, "missing-after-loss")
                claim.events.extend(lost)
            else:
                claim.why += " and no line says that one was lost"


def _unlisted(r: Reading) -> bool:
    """A GPU that the node remembers and NVML does not list any more: that says no more than a count that is short."""
    return r.value == "lost" and r.attrs.get("code") == UNCOUNTED


def _which(evidence: Evidence) -> str | None:
    """The UUID of the missing GPU if exactly one of the expected ones does not answer."""
    seen = {r.gpu for r in evidence.now_of("GPU_STATUS") if r.value == "ok"}
    missing = [u for u in evidence.context.expected_uuids if u not in seen]
    return missing[0] if len(missing) == 1 and seen else None


def _memory(evidence: Evidence, claims: Claims) -> None:
    for r in _ordered(evidence, "ROW_REMAP"):
        if not isinstance(r.value, dict):
            continue
        if r.value.get("failure") is True:
            claims.add("ROW_REMAP_FAILURE", r.gpu, reading=r)
        elif r.value.get("pending") is True:
            claims.add("ROW_REMAP_PENDING", r.gpu, reading=r)
    for r in _ordered(evidence, "SRAM_THRESHOLD"):
        if r.value is True:
            claims.add("SRAM_THRESHOLD", r.gpu, reading=r)
    for r in _ordered(evidence, "ECC"):
        if isinstance(r.value, dict):
            _ecc(evidence, claims, r)
    for r in _ordered(evidence, "SBE_RATE"):
        if isinstance(r.value, int | float) and r.value >= SBE_WATCH:
            _corrected(claims, r, float(r.value))


def _ecc(evidence: Evidence, claims: Claims, r: Reading) -> None:
    """Only an increase counts: a number that isn't zero may be years old. A decrease is a counter that restarted."""
    rows = evidence.history(r)
    grown = r.attrs.get("volatile_is_evidence") is True and (r.value.get("volatile_uncorrected") or 0) > 0
    for old, new in pairwise(rows):
        for key in ("volatile_uncorrected", "aggregate_uncorrected"):
            a, b = (x.value.get(key) if isinstance(x.value, dict) else None for x in (old, new))
            if isinstance(a, int | float) and isinstance(b, int | float) and b > a and not _before(evidence, new):
                grown = True
        a, b = (x.value.get("volatile_corrected") if isinstance(x.value, dict) else None for x in (old, new))
        span = (new.since - old.last).total_seconds()
        if isinstance(a, int | float) and isinstance(b, int | float) and b > a and 1 <= span <= 600 and new is r:
            _corrected(claims, r, (b - a) / span)
    if grown:
        claims.add("ECC_UNCORRECTED", r.gpu, reading=r)


def _before(evidence: Evidence, r: Reading) -> bool:
    return evidence.booted_at is not None and r.since < evidence.booted_at


def _corrected(claims: Claims, r: Reading, rate: float) -> None:
    if rate < SBE_WATCH:
        return
    claim = claims.add("ECC_SBE_RATE_HIGH", r.gpu, reading=r)
    claim.why = f"about {rate:.0f} corrected memory errors a second"
    if rate >= SBE_PERSON:
        claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, claim.why + ": failing memory without a hard error", "sbe-rate")


def _gauges(evidence: Evidence, claims: Claims) -> None:
    """An exporter's last-value gauge: it neither dates the Xid nor ever clears."""
    answering = {r.gpu for r in evidence.now_of("GPU_STATUS") if r.value == "ok"}
    content = {r.gpu for r in evidence.now_of("RECOVERY_ACTION") if r.value == 0}
    for r in _ordered(evidence, "XID_LAST"):
        if not isinstance(r.value, int) or r.value <= 0 or r.value > 999:
            continue
        old = claims.of(f"XID_{r.value}", gpu=r.gpu)
        claim = claims.add(f"XID_{r.value}", r.gpu, reading=r)
        if old:
            continue
        if claim.verdict in (Verdict.WORKLOAD, Verdict.HEALTHY):
            why = "a last-value gauge still shows it: an application's fault of unknown age"
            claim.set(Verdict.HEALTHY, Action.NONE, why, "gauge-of-unknown-age")
        elif claim.code in GONE and r.gpu in answering:
            why = "a last-value gauge shows the loss while the GPU's other values go on"
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "gauge-contradicted")
        elif claim.verdict is Verdict.HARDWARE and claim.code not in GONE and r.gpu in content:
            why = "a last-value gauge still shows it, while the driver asks for no recovery step"
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "gauge-contradicted")
