"""Whether a HARDWARE verdict may act by itself: it needs a second witness, and nothing newer that says recovered.

A witness is another source that reports the same fault on the same GPU or instance, or the same continuous reading at
two collection times. The same line again, from the same source, is never one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules import announced
from healthboard.diagnosis.rules.claims import GONE, WORN, Claim, Claims
from healthboard.diagnosis.rules.decode import RESETTING
from healthboard.diagnosis.signals import RAISED, Action, CheckStatus, Reading, Verdict

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
#: Readings of a GPU: without a name they may be any GPU's.
_OF_ONE_GPU = frozenset({"GPU_STATUS", "RECOVERY_ACTION", "ROW_REMAP", "SRAM_THRESHOLD", "XID_LAST"})
_GPU_CODES = ("XID_", "GPU_RECOVERY", "GPU_RESET", "NVML_GPU", "ROW_", "SRAM_")
_RESETS = frozenset({"GPU_RESET_REQUIRED", "GPU_RECOVERY_ACTION", "XID_154"})
#: rules that make a replacement of what a reset is for
_TOO_OFTEN = frozenset({"again-after-reboot", "many-bursts", "uncontained-flood"})
#: NVML codes that speak of the GPU: lost, reset required, and the unknown one that old drivers give for both.
_FAULTS = frozenset({15, 16, 999})
_ECS = "ECS_ACCELERATED_COMPUTE_IMPAIRED"
HOST = frozenset({"EC2_SYSTEM_IMPAIRED", "ECS_AGENT_DISCONNECTED", "EC2_INSTANCE_IMPAIRED"})


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
    readings = [r for r in claim.readings if _supports(claim, r)]
    own = {e.source for e in claim.events} | {r.source for r in readings}
    found: dict[str, str] = {}
    for source, words in others(evidence, claims, claim):
        found.setdefault(source, words)
    # what the claim already rests on, if it rests on more than one source
    for source in sorted(own):
        found.setdefault(source, f"{source} reports {claim.code}")
    lasting = [r for r in (*readings, *_agreeing(evidence, claim)) if _lasts(r)]
    witnesses = tuple(found[s] for s in sorted(found))
    if lasting:
        r = lasting[0]
        witnesses += (f"{r.source} reads {r.name} the same at {r.observations} collection times",)
    if refused := _recovered(evidence, claim) or _unsure(evidence, claim, set(found)):
        return Permission(False, refused, witnesses)
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


def _lasts(r: Reading) -> bool:
    """The same at two collection times. A last-value gauge never changes by itself: that it stays says nothing."""
    return r.observations >= 2 and r.last > r.since and r.name not in _REPEATS


def _supports(claim: Claim, r: Reading) -> bool:
    """A reading of the claim counts unless it began long before the event that it is to bear out. A standing wish for
    a reset bears out a reboot whenever it began."""
    if r.name == "RECOVERY_ACTION" and claim.events:
        return _asks_for_reset(claim)
    return not claim.events or r.since >= claim.told_first - _BEFORE


def _asks_for_reset(claim: Claim) -> bool:
    """Whether a GPU's wish for a reset says the same as this claim: a fault that a reset is for, also where it came so
    often that a reset is no longer enough; and what ECS calls impaired, whatever it is. What has to be replaced from the
    start is another matter."""
    return claim.action is Action.REBOOT or claim.rule in _TOO_OFTEN or claim.code == _ECS


def _unsure(evidence: Evidence, claim: Claim, sources: set[str]) -> str | None:
    """Why the claim must not act although there may be witnesses, if anything speaks against it."""
    if ending := announced.ending(evidence):
        return f"the instance goes away by itself: {ending.text or ending.code}"
    if claim.code == _ECS and sources <= {"ecs"}:
        for code in _named_by_ecs(claim):
            if evidence.catalogue.get(code).verdict is not Verdict.HARDWARE:
                return f"ECS rests on {code} alone, which a person decides"
    return None


def _named_by_ecs(claim: Claim) -> list[str]:
    """The numbers that ECS gives as its reason; often it gives none."""
    reasons = (str(r.attrs.get("reason") or "") for r in claim.readings)
    return sorted({reason for reason in reasons if reason.startswith("XID_")})


def _other_host(claim: Claim) -> bool:
    return any(r.source == "dcgm" and r.attrs.get("other_host") for r in claim.readings)


def others(evidence: Evidence, claims: Claims, claim: Claim) -> list[tuple[str, str]]:
    """(source, words) of everything else that reports this fault."""
    found = [(r.source, f"{r.source} reads {r.name} {_word(r)}") for r in _agreeing(evidence, claim)]
    for other in claims:
        if other is claim or not _same_unit(other, claim) or not _same_fault(other.code, claim.code):
            continue
        if other.code != claim.code and (other.verdict is not Verdict.HARDWARE or other.rule in RAISED):
            continue
        if (
            claim.code == _ECS
            and other.code.startswith("XID_")
            and other.code not in (_named_by_ecs(claim) or [other.code])
        ):
            continue
        if other.code in _RESETS and other.code != claim.code and not _asks_for_reset(claim):
            continue
        if other.code == "ECS_AGENT_DISCONNECTED" and not any(_host_agrees(r) for r in other.readings):
            continue
        if _same_time(evidence, other, claim):
            found += [(source, f"{source} reports {other.code}") for source in other.sources]
    return found


def _same_time(evidence: Evidence, other: Claim, claim: Claim) -> bool:
    """Whether the other report may be of this fault: a state that holds now, or lines that came together."""
    if abs(other.told_first - claim.told_first) <= evidence.thresholds.burst_gap:
        return True
    return bool(other.readings) and (not claim.events or other.told_first >= claim.told_first)


def _same_unit(a: Claim, b: Claim) -> bool:
    """The same GPU, or one of them is of the instance as a whole. What names no GPU although it is of one may be of
    any; that one is gone is the exception, since the line that says so often has no name left."""
    if a.gpu == b.gpu:
        return True
    if a.gpu is not None and b.gpu is not None:
        return False
    unnamed = a.code if a.gpu is None else b.code
    return not unnamed.startswith(_GPU_CODES) or {a.code, b.code} <= GONE


def _same_fault(a: str, b: str) -> bool:
    if ANNOUNCED in (a, b):
        return False
    if a in HOST or b in HOST:
        return a in HOST and b in HOST
    if a in WORN or b in WORN:
        return {a, b} <= _MEMORY
    if _ECS in (a, b):
        return True
    if (a in GONE or b in GONE) and all(c in GONE or c.startswith("XID_") for c in (a, b)):
        # a GPU that is gone for one source, and a hardware Xid of it for the other: 110 may stand in for 79
        return True
    if "GPU_MISSING" in (a, b):
        return bool({a, b} & GONE)
    # a GPU that waits for a reset answers: it does not bear out that one is gone
    past = WORN | GONE
    return a == b or (a in _RESETS and b not in past) or (b in _RESETS and a not in past)


def _agreeing(evidence: Evidence, claim: Claim) -> list[Reading]:
    """Fresh readings of the same GPU that report this fault and did not begin long before it."""
    earliest = claim.told_first - _BEFORE
    found: list[Reading] = []
    for r in sorted(evidence.fresh(), key=lambda r: (r.name, r.gpu or "", r.source)):
        if claim.gpu is not None and r.gpu != claim.gpu and (r.gpu is not None or r.name in _OF_ONE_GPU):
            continue
        if claim.gpu is None and r.gpu is not None and _may_be_of_another(claim.code, r):
            continue
        if r.since < earliest and claim.events:
            continue
        if _agrees(evidence, r, claim):
            found.append(r)
    return found


def _may_be_of_another(code: str, r: Reading) -> bool:
    """What is of one GPU or one link and names none may be of any other GPU than the one that was read. That one is
    gone is the exception here as well (`_same_unit`)."""
    return r.name in _OF_ONE_GPU and code.startswith((*_GPU_CODES, "PCIE_")) and code not in GONE


def _agrees(evidence: Evidence, r: Reading, claim: Claim) -> bool:
    code = claim.code
    if code in HOST:
        return _host_agrees(r)
    if code.startswith("EC2_EVENT"):
        return False
    if r.name == "ACCELERATED_COMPUTE":
        named = str(r.attrs.get("reason") or "")
        # where ECS names a number, it must be this one
        other = named.startswith("XID_") and code.startswith("XID_") and named != code
        return r.value == CheckStatus.IMPAIRED and not other
    if code in WORN:
        return r.name == "ROW_REMAP" and isinstance(r.value, dict) and r.value.get("failure") is True
    if r.name == "GPU_STATUS":
        if r.value == "lost":
            return True
        if r.value == "reset_required":
            return _asks_for_reset(claim) and code not in GONE
        return r.value == "error" and r.attrs.get("code") in _FAULTS and code not in GONE
    if r.name == "RECOVERY_ACTION":
        return r.value in RESETTING and _asks_for_reset(claim)
    if r.name == "GPU_COUNT":
        return code in GONE and _is_short(evidence, r) and not _answers(evidence, claim)
    if r.name == "ROW_REMAP":
        return code in _MEMORY and isinstance(r.value, dict) and r.value.get("failure") is True
    if r.name == "SRAM_THRESHOLD":
        return code in _MEMORY and r.value is True
    if r.name == "XID_LAST":
        return f"XID_{r.value}" == code
    return False


def _host_agrees(r: Reading) -> bool:
    if r.name == "AGENT_CONNECTIVITY" and r.observations < 2:
        return False  # it reconnects by itself twice an hour
    return r.name in ("EC2_SYSTEM", "EC2_INSTANCE", "AGENT_CONNECTIVITY") and r.value == CheckStatus.IMPAIRED


def _is_short(evidence: Evidence, r: Reading) -> bool:
    expected = evidence.context.expected_gpus
    return expected is not None and isinstance(r.value, int) and 0 < r.value < expected


def _answers(evidence: Evidence, claim: Claim) -> bool:
    """NVML has read this GPU since the last word of its loss."""
    return claim.gpu is not None and any(
        r.value == "ok" and r.source == "nvml" and r.last > claim.told_last
        for r in evidence.now_of("GPU_STATUS", claim.gpu)
    )


def _word(r: Reading) -> str:
    return "failure" if isinstance(r.value, dict) else str(r.value)


def _recovered(evidence: Evidence, claim: Claim) -> str | None:
    """What newer reading says that the fault is over, if any."""
    if claim.code in WORN or claim.code in HOST or not claim.events:
        return None
    if claim.code in GONE and _answers(evidence, claim):
        return "NVML has read the GPU since"
    for r in evidence.fresh():
        if claim.gpu is None or r.gpu != claim.gpu or r.since <= claim.told_last:
            continue
        before = evidence.left(r, claim.told_last)
        if r.name == "RECOVERY_ACTION" and r.value == 0 and any(before):
            return "a newer reading says that no recovery step is needed"
        if r.name == "GPU_STATUS" and r.value == "ok" and claim.code in GONE and set(before) - {"ok"}:
            return "NVML reads the GPU again since"
    return None
