"""`evaluate`: one instance's evidence to findings, a verdict, and whether it may act by itself. Pure.

The same events, readings, catalogue version, thresholds and clock give the same answer; no policy is known here but
for the thresholds and overrides that are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from healthboard.diagnosis import catalogue as shipped
from healthboard.diagnosis import witness
from healthboard.diagnosis.catalogue import Catalogue
from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules import (
    announced,
    architecture,
    aws,
    companions,
    condemned,
    decode,
    gpu_readings,
    policy,
    repeats,
    silence,
)
from healthboard.diagnosis.rules.claims import Claim, Claims
from healthboard.diagnosis.signals import (
    ACTION_ORDER,
    VERDICT_ORDER,
    Action,
    Assessment,
    Context,
    Event,
    Reading,
    Thresholds,
    Verdict,
)

_DEFAULT = Thresholds()


def evaluate(
    events: Iterable[Event],
    readings: Iterable[Reading],
    *,
    now: datetime,
    context: Context,
    thresholds: Thresholds = _DEFAULT,
    catalogue: Catalogue | None = None,
) -> Assessment:
    """Findings and verdict of one instance at `now`.

    `events` are all since the last launch (three days are enough), `readings` all open and recent intervals. Their
    order does not matter, nor does an event that is given twice.
    """
    catalogue = catalogue or shipped.load()
    evidence = Evidence(events, readings, now=now, context=context, thresholds=thresholds, catalogue=catalogue)
    if reason := _not_running(evidence):
        return Assessment(
            Verdict.UNKNOWN, Action.NONE, why=reason, may_act_why="the instance does not run",
            catalogue_version=catalogue.version,
        )  # fmt: skip
    claims = Claims(evidence)
    for event in evidence.events:
        claims.add(event.code, event.gpu, event=event)
    later = gpu_readings.apply(evidence, claims) + aws.apply(evidence, claims)
    later += announced.apply(evidence, claims)
    decode.apply(evidence, claims)
    companions.apply(evidence, claims)
    repeats.apply(evidence, claims)
    repeats.raise_by_driver(evidence, claims)
    repeats.answers_again(evidence, claims)
    repeats.contradictions(evidence, claims)
    architecture.apply(evidence, claims)
    condemned.apply(evidence, claims)
    later += policy.apply(evidence, claims)
    later += silence.apply(evidence, claims)
    return _assess(evidence, claims, later)


def _not_running(evidence: Evidence) -> str | None:
    for r in evidence.now_of("EC2_STATE"):
        if r.value in aws.NOT_RUNNING:
            return f"the instance is {r.value}: no fault, and nothing can be said about its GPUs"
    return None


def _assess(evidence: Evidence, claims: Claims, later: list[datetime]) -> Assessment:
    rows = list(claims)
    own = [c for c in rows if c.role == "own"] or rows
    verdict = min((c.verdict for c in own), key=VERDICT_ORDER.index, default=Verdict.HEALTHY)
    decisive = [c for c in own if c.verdict is verdict]
    action = max((c.action for c in decisive), key=ACTION_ORDER.index, default=Action.NONE)
    primary = _primary(evidence, claims, decisive, verdict)
    allowed = witness.Permission(False, "only a clear hardware failure may act by itself")
    if primary is not None and verdict is Verdict.HARDWARE:
        allowed = witness.permission(evidence, claims, primary)
        if allowed.next_at:
            later.append(allowed.next_at)
    ordered = ([primary] if primary else []) + sorted(
        (c for c in rows if c is not primary),
        key=lambda c: (VERDICT_ORDER.index(c.verdict), c.role != "own", -c.weight, c.order),
    )
    instance = evidence.context.instance
    findings = tuple(c.finding(instance) for c in ordered)
    return Assessment(
        verdict=verdict,
        action=action,
        findings=findings,
        may_act=allowed.may_act,
        may_act_why=allowed.why,
        witnesses=allowed.witnesses,
        primary=findings[0] if primary else None,
        why=primary.why if primary else "nothing that was read says otherwise",
        next_at=min((t for t in later if t > evidence.now), default=None),
        catalogue_version=evidence.catalogue.version,
    )


#: what a failed host shows as well, whichever EC2 or ECS told first
FOLLOWS = {"EC2_INSTANCE_IMPAIRED": "EC2_SYSTEM_IMPAIRED", "ECS_AGENT_DISCONNECTED": "EC2_SYSTEM_IMPAIRED"}


def _primary(evidence: Evidence, claims: Claims, decisive: list[Claim], verdict: Verdict) -> Claim | None:
    """The root: the earliest of the decisive claims; among hardware failures the one with the weightiest step, and of
    equals one that has its witness."""
    if not decisive:
        return None
    codes = {c.code for c in decisive}
    decisive = [c for c in decisive if FOLLOWS.get(c.code) not in codes]
    if verdict is Verdict.HARDWARE:
        heaviest = max(c.weight for c in decisive)
        decisive = [c for c in decisive if c.weight == heaviest]
        witnessed = [c for c in decisive if witness.permission(evidence, claims, c).may_act]
        decisive = witnessed or decisive
    return min(decisive, key=lambda c: c.order)
