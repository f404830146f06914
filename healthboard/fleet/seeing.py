"""Whether what we hold on an instance may be acted on now: each source told lately, and in full rounds in a row."""

from __future__ import annotations

from datetime import datetime

from healthboard.fleet.models import Instance, Owner, Source
from healthboard.fleet.sources import blind

#: full rounds in a row, after a start, a failure or a gap, before anything acts
WATCH_ROUNDS = 2


def why_blind(instance: Instance, now: datetime) -> list[str]:
    """Reasons, in words, why nothing may rest on the sources of this instance's place; empty when all can see."""
    wanted = {"ec2", "ecs"} | ({"autoscaling"} if instance.owner == Owner.GROUP else set())
    rows = Source.objects.filter(account=instance.account_id, region=instance.region, name__in=wanted)
    cluster = instance.cluster.name if instance.cluster else ""
    found = {s.name: s for s in rows if s.scope in ("", cluster)}
    reasons = []
    for name in sorted(wanted):
        source = found.get(name)
        if source is None:
            reasons.append(f"The source {name} has not told anything yet")
        elif blind(source, now):
            reasons.append(f"The source {source} is blind: {source.error or 'no round for too long'}")
        elif source.good_rounds < WATCH_ROUNDS:
            reasons.append(
                f"The source {source} is watched first: {source.good_rounds} of {WATCH_ROUNDS} full rounds in a row"
            )
    return reasons
