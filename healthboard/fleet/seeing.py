"""Whether what we hold on an instance may be acted on now: each source told lately, and in full rounds in a row."""

from __future__ import annotations

from datetime import datetime

from healthboard.fleet.models import Instance, Owner, Source
from healthboard.fleet.sources import blind

#: full rounds in a row, after a start, a failure or a gap, before anything acts
WATCH_ROUNDS = 2


def wanted(instance: Instance) -> dict[str, Source | None]:
    """The sources that what we hold on this instance rests on, by name; None where one has not told anything yet."""
    names = {"ec2", "ecs"} | ({"autoscaling"} if instance.owner == Owner.GROUP else set())
    rows = Source.objects.filter(account=instance.account_id, region=instance.region, name__in=names)
    cluster = instance.cluster.name if instance.cluster else ""
    # the cluster's own round after the place's: it is the one that tells of the instance
    found = {s.name: s for s in rows.order_by("scope") if s.scope in ("", cluster)}
    return {name: found.get(name) for name in sorted(names)}


def why_blind(instance: Instance, now: datetime) -> list[str]:
    """Reasons, in words, why nothing may rest on the sources of this instance's place; empty when all can see."""
    reasons = []
    for name, source in wanted(instance).items():
        if source is None:
            reasons.append(f"The source {name} has not told anything yet")
        elif blind(source, now):
            reasons.append(f"The source {source} is blind: {source.error or 'no round for too long'}")
        elif source.good_rounds < WATCH_ROUNDS:
            reasons.append(_watched(source))
    return reasons


def why_watching(instance: Instance) -> str:
    """Why not even a repair under way goes on: after a start, a gap or a jump of the clock its sources are watched."""
    for source in wanted(instance).values():
        if source is not None and source.watched_from is not None and source.good_rounds < WATCH_ROUNDS:
            return _watched(source)
    return ""


def _watched(source: Source) -> str:
    return f"The source {source} is watched first: {source.good_rounds} of {WATCH_ROUNDS} full rounds in a row"
