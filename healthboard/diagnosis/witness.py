"""Whether a HARDWARE verdict may act by itself: it needs a second witness, and nothing newer that says recovered.

A witness is another source that reports the same fault on the same GPU or instance, or the same continuous reading at
two collection times. The same line again, from the same source, is never one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import GONE, WORN, Claim, Claims
from healthboard.diagnosis.rules.decode import RESETTING
from healthboard.diagnosis.signals import CheckStatus, Reading, Verdict

#: Sources that do not run on the node itself.
OUTSIDE = frozenset({"ec2", "ecs", "aws-health"})
#: A reading may be older than the line that it witnesses by as much as one collection round and a clock's error.
_BEFORE = timedelta(minutes=2)
_MEMORY = frozenset(
    {"XID_48", "XID_63", "XID_64", "XID_94", "XID_95", "XID_140", "ROW_REMAP_FAILURE", "SRAM_THRESHOLD"}
)
#: An exporter's last-value gauge tells one event again and again: seen twice it is still one word.
_REPEATS = frozenset({"XID_LAST"})
#: only told by an event, which anybody who may write to the queue can send: a hint, never a witness
ANNOUNCED = "AWS_HEALTH_EVENT"
_HOST = frozenset({"EC2_SYSTEM_IMPAIRED", "ECS_AGENT_DISCONNECTED", "EC2_INSTANCE_IMPAIRED"})


@dataclass(frozen=True, slots=True)
class Permission:
    may_act: bool
    why: str
    witnesses: tuple[str, ...] = ()
    next_at: datetime | None = None


def permission(evidence: Evidence, claims: Claims, claim: Claim) -> Permission:
    """What speaks for acting on this HARDWARE claim alone."""
    if claim.code == ANNOUNCED:
        return Permission(False, "AWS Health announces it; EC2's own status has to say so before anything acts on it")
    own = set(claim.sources)
    found: dict[str, str] = {}
    for source, words in others(evidence, claims, claim):
        found.setdefault(source, words)
    # what the claim already rests on, if it rests on more than one source
    for source in sorted(own):
        found.setdefault(source, f"{source} reports {claim.code}")
    read = (*claim.readings, *_agreeing(evidence, claim))
    lasting = [r for r in read if r.name not in _REPEATS and r.observations >= 2 and r.last > r.since]
    witnesses = tuple(found[s] for s in sorted(found))
    if lasting:
        r = lasting[0]
        witnesses += (f"{r.source} reads {r.name} the same at {r.observations} collection times",)
    if recovered := _recovered(evidence, claim):
        return Permission(False, recovered, witnesses)
    if evidence.thresholds.outside_witness and not set(found) & OUTSIDE and not _other_host(claim):
        return Permission(False, "the policy wants a witness outside the node, and there is none", witnesses)
    if len(found) >= 2 or lasting:
        return Permission(True, "", witnesses)
    wait = claim.first + evidence.thresholds.witness_wait
    if evidence.now < wait:
        why = f"only {', '.join(sorted(own))} says so: waiting for a second witness"
        return Permission(False, why, witnesses, wait)
    return Permission(
        False, f"no second witness came, only {', '.join(sorted(own))} says so: a person decides", witnesses
    )


def _other_host(claim: Claim) -> bool:
    return any(r.source == "dcgm" and r.attrs.get("other_host") for r in claim.readings)


def others(evidence: Evidence, claims: Claims, claim: Claim) -> list[tuple[str, str]]:
    """(source, words) of everything else that reports this fault."""
    found = [(r.source, f"{r.source} reads {r.name} {_word(r)}") for r in _agreeing(evidence, claim)]
    for other in claims:
        if other is claim or not _same_unit(other, claim) or not _same_fault(other.code, claim.code):
            continue
        if other.verdict is not Verdict.HARDWARE and other.code != claim.code:
            continue
        if other.readings or abs(other.first - claim.first) <= evidence.thresholds.burst_gap:
            found += [(source, f"{source} reports {other.code}") for source in other.sources]
    return found


def _same_unit(a: Claim, b: Claim) -> bool:
    return a.gpu == b.gpu or a.gpu is None or b.gpu is None


def _same_fault(a: str, b: str) -> bool:
    if ANNOUNCED in (a, b):
        return False
    if a in _HOST or b in _HOST:
        return a in _HOST and b in _HOST
    if a in WORN or b in WORN:
        return {a, b} <= _MEMORY
    if a == "ECS_ACCELERATED_COMPUTE_IMPAIRED" or b == "ECS_ACCELERATED_COMPUTE_IMPAIRED":
        return True
    if (a in GONE or b in GONE) and all(c in GONE or c.startswith("XID_") for c in (a, b)):
        # a GPU that is gone for one source, and a hardware Xid of it for the other: 110 may stand in for 79
        return True
    if "GPU_MISSING" in (a, b):
        return bool({a, b} & GONE)
    reset = {"GPU_RESET_REQUIRED", "GPU_RECOVERY_ACTION", "XID_154"}
    return a == b or (a in reset and b not in WORN) or (b in reset and a not in WORN)


def _agreeing(evidence: Evidence, claim: Claim) -> list[Reading]:
    """Fresh readings of the same GPU that report this fault and did not begin long before it."""
    earliest = claim.first - _BEFORE
    found: list[Reading] = []
    for r in sorted(evidence.fresh(), key=lambda r: (r.name, r.gpu or "", r.source)):
        if claim.gpu is not None and r.gpu is not None and r.gpu != claim.gpu:
            continue
        if r.since < earliest and claim.events:
            continue
        if _agrees(evidence, r, claim):
            found.append(r)
    return found


def _agrees(evidence: Evidence, r: Reading, claim: Claim) -> bool:
    code = claim.code
    if code in _HOST:
        return r.name in ("EC2_SYSTEM", "EC2_INSTANCE", "AGENT_CONNECTIVITY") and r.value == CheckStatus.IMPAIRED
    if code.startswith("EC2_EVENT"):
        return False
    if r.name == "ACCELERATED_COMPUTE":
        return r.value == CheckStatus.IMPAIRED
    if code in WORN:
        return r.name == "ROW_REMAP" and isinstance(r.value, dict) and r.value.get("failure") is True
    if r.name == "GPU_STATUS":
        return r.value == "lost" or (r.value in ("reset_required", "error") and code not in GONE)
    if r.name == "RECOVERY_ACTION":
        return r.value in RESETTING
    if r.name == "GPU_COUNT":
        expected = evidence.context.expected_gpus
        return code in GONE and expected is not None and isinstance(r.value, int) and 0 < r.value < expected
    if r.name == "ROW_REMAP":
        return code in _MEMORY and isinstance(r.value, dict) and r.value.get("failure") is True
    if r.name == "SRAM_THRESHOLD":
        return code in _MEMORY and r.value is True
    if r.name == "XID_LAST":
        return f"XID_{r.value}" == code
    return False


def _word(r: Reading) -> str:
    return "failure" if isinstance(r.value, dict) else str(r.value)


def _recovered(evidence: Evidence, claim: Claim) -> str | None:
    """What newer reading says that the fault is over, if any."""
    if claim.code in WORN or claim.code in _HOST or not claim.events:
        return None
    for r in evidence.fresh():
        if claim.gpu is None or r.gpu != claim.gpu or r.since <= claim.last:
            continue
        before = [x.value for x in evidence.history(r)[:-1]]
        if r.name == "RECOVERY_ACTION" and r.value == 0 and any(before):
            return "a newer reading says that no recovery step is needed"
        if r.name == "GPU_STATUS" and r.value == "ok" and claim.code in GONE and set(before) - {"ok"}:
            return "NVML reads the GPU again since"
    return None
