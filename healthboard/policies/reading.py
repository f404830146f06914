"""One reading of an instance's evidence under its policies: used to open a case, before a repair starts, and again at
its irreversible step."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from healthboard import clock
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Assessment, Context, Event, Reading, Thresholds, Verdict
from healthboard.fleet.evidence import load
from healthboard.fleet.models import Instance, Workload
from healthboard.policies.matching import Resolved, settings_for
from healthboard.policies.resolve import thresholds

#: verdicts under which an instance may serve
GOOD = (Verdict.HEALTHY, Verdict.WATCH, Verdict.WORKLOAD)
#: verdicts that a repair may rest on
BAD = (Verdict.HARDWARE, Verdict.AMBIGUOUS)


@dataclass(frozen=True, slots=True)
class Reread:
    at: datetime
    assessment: Assessment
    policy: Resolved
    workloads: tuple[Workload, ...]  # that serve there
    events: tuple[Event, ...]
    readings: tuple[Reading, ...]
    context: Context
    thresholds: Thresholds


def workloads_of(instance: Instance) -> tuple[Workload, ...]:
    """Services and families with a task on it, daemons left out: they never say how an instance is treated."""
    return tuple(Workload.objects.filter(tasks__instance=instance).exclude(kind="DAEMON").distinct().order_by("pk"))


def treated_as(instance: Instance, serving: tuple[Workload, ...]) -> tuple[Workload | None, ...]:
    """Whose policies say how it is treated: of what serves there, and of what did when its open case opened (None: it
    was idle then). The most careful of all counts, so what ended or came since only tightens."""
    kept = set(instance.cases.filter(closed_at=None).values_list("workloads", flat=True))
    ended = kept - {workload.pk for workload in serving} - {None}
    frozen = Workload.objects.filter(pk__in=ended).order_by("pk") if ended else ()
    return (*serving, *frozen, *((None,) if None in kept else ()))


def reread(instance: Instance) -> Reread:
    now = clock.now()
    serving = workloads_of(instance)
    policy = settings_for(instance, treated_as(instance, serving))
    limits = thresholds(policy.values)
    events, readings, context = load(instance, now=now)
    assessment = evaluate(events, readings, now=now, context=context, thresholds=limits)
    return Reread(now, assessment, policy, serving, tuple(events), tuple(readings), context, limits)
