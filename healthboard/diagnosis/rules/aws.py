"""What EC2 and ECS say about the instance, as claims."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.rules.claims import Claim, Claims
from healthboard.diagnosis.signals import Action, CheckStatus, Reading, Verdict

_IMPAIRED = {
    "EC2_SYSTEM": "EC2_SYSTEM_IMPAIRED",
    "EC2_INSTANCE": "EC2_INSTANCE_IMPAIRED",
    "EC2_ATTACHED_EBS": "EC2_EBS_IMPAIRED",
    "EC2_PERFORMANCE": "EC2_PERFORMANCE_IMPAIRED",
    "ACCELERATED_COMPUTE": "ECS_ACCELERATED_COMPUTE_IMPAIRED",
    "CONTAINER_RUNTIME": "ECS_CONTAINER_RUNTIME_IMPAIRED",
    "DAEMON": "ECS_DAEMON_IMPAIRED",
}
_UNCLEAR = {
    (True, CheckStatus.INSUFFICIENT_DATA): "EC2_STATUS_INSUFFICIENT_DATA",
    (True, CheckStatus.INITIALIZING): "EC2_STATUS_INITIALIZING",
    (False, CheckStatus.INSUFFICIENT_DATA): "ECS_HEALTH_INSUFFICIENT_DATA",
    (False, CheckStatus.INITIALIZING): "ECS_HEALTH_INSUFFICIENT_DATA",
}
NOT_RUNNING = frozenset({"stopped", "stopping", "shutting-down", "terminated", "pending"})


_SOON = timedelta(seconds=5)


def apply(evidence: Evidence, claims: Claims) -> list[datetime]:
    """Adds the claims; returns the moments at which the passing of time changes one of them."""
    cleared = max((r.last for r in evidence.now_of("ECS_OVERALL") if r.value == CheckStatus.OK), default=None)
    for name in (*_IMPAIRED, "ECS_OVERALL"):
        for r in evidence.now_of(name):
            # an event that says OK as a whole lists no checks
            if not (r.source == "ecs" and cleared and r.last < cleared):
                _check(claims, name, r)
    _named_by_ecs(claims)
    for r in evidence.now_of("EC2_SCHEDULED_EVENT"):
        if isinstance(r.value, str) and r.value:
            code = f"EC2_EVENT_{r.value.upper().replace('-', '_')}"
            claim = claims.add(code, reading=r)
            if code not in evidence.catalogue:
                claim.set(Verdict.WATCH, Action.WATCH, f"EC2 has scheduled: {r.value}", "scheduled-event")
            if when := r.attrs.get("not_before"):
                claim.why += f"; not before {when}"
    for claim in claims.of("AWS_HEALTH_EVENT"):
        _health_event(evidence, claims, claim)
    _membership(evidence, claims)
    return _agent(evidence, claims)


def _health_event(evidence: Evidence, claims: Claims, claim: Claim) -> None:
    """AWS Health by its type: the worst of what is open."""
    by_time = sorted(claim.events, key=lambda e: (e.last_at or e.at, e.attrs.get("topic") == "closed"))
    newest = {str(e.attrs.get("arn") or e.text): e for e in by_time}
    topics = {e.attrs.get("topic") for e in newest.values()} - {"closed"}
    scheduled = [c for c in claims if c.code.startswith("EC2_EVENT_")]
    if not topics or (topics == {"retirement"} and not scheduled and _completed(evidence, claim)):
        claims.drop(claim)
        return
    if scheduled and "issue" not in topics:
        claim.role = "companion"  # EC2's own status says it, and says when it is over
    if "issue" in topics:
        why = "AWS Health reports an issue of a zone or a service: many are concerned, replacements may not start"
        claim.set(Verdict.CORRELATED, Action.HOLD, why, "health-issue")
    elif "retirement" in topics:
        why = "AWS Health announces the retirement of the hardware under this instance"
        claim.set(Verdict.HARDWARE, Action.REPLACE, why, "health-retirement")
    elif "reboot" in topics:
        why = "AWS Health announces a reboot; a person may choose a better time"
        claim.set(Verdict.AMBIGUOUS, Action.REBOOT, why, "health-reboot")
    elif topics & {"maintenance", "notice"}:
        claim.set(
            Verdict.WATCH, Action.WATCH, "AWS Health announces something that needs no decision now", "health-notice"
        )


def _completed(evidence: Evidence, claim: Claim) -> bool:
    """EC2 showed an event of its own since, and shows it no longer."""
    for r in evidence.now_of("EC2_SCHEDULED_EVENT"):
        before = evidence.history(r)[:-1]
        if not r.value and any(x.value and x.last >= claim.last for x in before):
            return True
    return False


def _check(claims: Claims, name: str, r: Reading) -> None:
    status = _status(r.value)
    if status is CheckStatus.IMPAIRED and name in _IMPAIRED:
        claim = claims.add(_IMPAIRED[name], reading=r)
        if reason := r.attrs.get("reason"):
            claim.why += f" (its reason: {str(reason)[:120]})"
    elif status is CheckStatus.IMPAIRED:
        claim = claims.add("ECS_HEALTH_INSUFFICIENT_DATA", reading=r)
        claim.set(Verdict.UNKNOWN, Action.DIAGNOSE, "ECS calls the instance impaired without saying why", "no-details")
    elif status in (CheckStatus.INSUFFICIENT_DATA, CheckStatus.INITIALIZING):
        if name == "EC2_ATTACHED_EBS" and r.attrs.get("absent"):
            return  # older answers lack the member; the other two tell whether EC2 sees the instance
        claims.add(_UNCLEAR[name.startswith("EC2"), status], reading=r)


def _named_by_ecs(claims: Claims) -> None:
    """An Xid that is known only as ECS's reason ends with the check that it was the reason of."""
    impaired = claims.of("ECS_ACCELERATED_COMPUTE_IMPAIRED")
    for claim in claims:
        if not impaired and "ecs" in claim.sources and len(claim.sources) > 1:
            claim.events = [e for e in claim.events if e.source != "ecs" or "named_by" not in e.attrs]
        if claim.code.startswith("XID_") and claim.sources == ("ecs",):
            if not impaired:
                claims.drop(claim)
            else:
                claim.role = "companion"


def _status(value: object) -> CheckStatus:
    try:
        return CheckStatus(str(value))
    except ValueError:
        return CheckStatus.INSUFFICIENT_DATA


def _membership(evidence: Evidence, claims: Claims) -> None:
    for r in evidence.now_of("ECS_STATUS"):
        if r.value in ("INACTIVE", "DEREGISTERING"):
            claims.add("ECS_INSTANCE_INACTIVE", reading=r)
        elif r.value == "REGISTRATION_FAILED":
            claim = claims.add("ECS_REGISTRATION_FAILED", reading=r)
            if reason := r.attrs.get("reason"):
                claim.why = f"the instance could not join the cluster: {str(reason)[:120]}"
        elif r.value == "MISSING":
            claims.add("ECS_INSTANCE_MISSING", reading=r)
    for r in evidence.now_of("ECS_GPUS"):
        told = r.attrs.get("expected")
        expected = told if isinstance(told, int) else evidence.context.expected_gpus
        if expected is None or not isinstance(r.value, list | tuple):
            continue
        if not r.value and expected:
            claims.add("ECS_ZERO_GPUS_REGISTERED", reading=r)
        elif len(r.value) < expected:
            claims.add(
                "ECS_GPU_COUNT_SHORT", reading=r
            ).why = f"{len(r.value)} of {expected} GPUs are registered with ECS since the agent started"


def _agent(evidence: Evidence, claims: Claims) -> list[datetime]:
    later: list[datetime] = []
    for r in evidence.now_of("AGENT_CONNECTIVITY"):
        status = _status(r.value)
        if status in (CheckStatus.INSUFFICIENT_DATA, CheckStatus.INITIALIZING):
            claims.add("ECS_HEALTH_INSUFFICIENT_DATA", reading=r)
            continue
        if status is not CheckStatus.IMPAIRED:
            continue
        claim = claims.add("ECS_AGENT_DISCONNECTED", reading=r)
        snapshot = bool(r.attrs.get("undated"))
        told = parse_time(r.attrs.get("impaired_since"))
        since = min(told, r.since) if told else r.since
        due = since + evidence.thresholds.agent_disconnect
        # only what was seen counts: between two rounds it may have come back
        too_long = r.last >= due and (not snapshot or told is not None)
        host = claims.of("EC2_SYSTEM_IMPAIRED") + (claims.of("EC2_INSTANCE_IMPAIRED") if too_long or snapshot else [])
        stuck = any(s.value == "DRAINING" and (s.attrs.get("running") or 0) > 0 for s in evidence.now_of("ECS_STATUS"))
        if host:
            why = "the agent is away and EC2 calls the instance impaired: the host is gone by two sources"
            claim.set(Verdict.HARDWARE, Action.REPLACE, why, "agent-and-ec2")
            claim.role = "companion"
            for other in host:
                if other.code == "EC2_INSTANCE_IMPAIRED":
                    other.set(Verdict.HARDWARE, Action.REPLACE, why, "agent-and-ec2")
        elif stuck and (too_long or snapshot):
            why = "a drain makes no progress while the agent is away; how long to wait is a person's decision"
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "stuck-drain")
        elif too_long:
            minutes = (r.last - since).total_seconds() / 60
            why = f"the agent has been away for {minutes:.0f} minutes without a break, longer than the policy allows"
            claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "agent-too-long")
        elif not snapshot:
            later.append(max(due, evidence.now + _SOON))
            claim.why = "the agent is away; it reconnects by itself about twice an hour"
            claim.rule = "agent-blink"
    return later
