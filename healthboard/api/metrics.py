"""Numbers for Prometheus, read by SQL when they are asked for, in a registry of their own: right with any number of
web processes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, Sum
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from healthboard import clock, queues
from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.cases import alarm
from healthboard.cases.models import Case
from healthboard.cases.states import OPEN as CASES_OPEN
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet import itself
from healthboard.fleet.models import Instance, Pulse, Round
from healthboard.fleet.sources import blind, listened_to
from healthboard.notices import queries as told
from healthboard.people.models import NodeRefusal
from healthboard.repairs.models import KINDS, Breaker, Occupancy, Pause, Repair, Switch
from healthboard.repairs.states import State as RepairState


class Numbers:
    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield from self._fleet()
        yield from self._work()
        yield from self._sources()
        yield from self._pulses()
        yield from self._rounds()
        yield from self._nodes()
        yield from self._brakes()
        yield from self._notices()

    def _fleet(self) -> Iterator[GaugeMetricFamily]:
        live = Instance.objects.filter(gone_at=None)
        counts = dict(live.values_list("verdict").annotate(n=Count("pk")).order_by())
        out = GaugeMetricFamily("healthboard_instances", "Instances by verdict", labels=["verdict"])
        for verdict in Verdict:  # zeros too, so that an alert on a verdict has a series
            out.add_metric([str(verdict)], counts.get(str(verdict), 0))
        yield out

    def _work(self) -> Iterator[GaugeMetricFamily]:
        now = clock.now()
        counts = dict(Case.objects.filter(closed_at=None).values_list("state").annotate(n=Count("pk")).order_by())
        out = GaugeMetricFamily("healthboard_cases_open", "Open cases by state", labels=["state"])
        for state in CASES_OPEN:
            out.add_metric([str(state)], counts.get(str(state), 0))
        yield out
        waiting = _since(Case, "WAITING")
        yield GaugeMetricFamily(
            "healthboard_case_waiting_oldest_seconds",
            "For how long a case has waited, the longest",
            value=_age(waiting, now),
        )
        counts = dict(Repair.objects.values_list("state").annotate(n=Count("pk")).order_by())
        out = GaugeMetricFamily("healthboard_repairs", "Repairs by state", labels=["state"])
        for state in RepairState:
            out.add_metric([str(state)], counts.get(str(state), 0))
        yield out
        asking = _since(Repair, "ASKING")
        yield GaugeMetricFamily(
            "healthboard_repair_asking_oldest_seconds",
            "For how long a repair has asked, the longest",
            value=_age(asking, now),
        )
        oldest = Repair.objects.filter(closed_at=None).aggregate(at=Min("opened_at"))["at"]
        yield GaugeMetricFamily(
            "healthboard_repair_open_oldest_seconds", "Age of the oldest repair that has not ended, whatever it waits for",
            value=_age(oldest, now),
        )  # fmt: skip
        yield self._ended()
        out = GaugeMetricFamily("healthboard_budget_taken", "Units of the budget that repairs hold", labels=["pool"])
        rows = Occupancy.objects.filter(released_at=None).values_list("pool__name").annotate(n=Count("pk")).order_by()
        for pool, count in rows:
            out.add_metric([pool], count)
        yield out

    def _ended(self) -> CounterMetricFamily:
        out = CounterMetricFamily(
            "healthboard_repairs_ended", "Repairs that ended, by action, end and who asked for them",
            labels=["action", "end", "by"],
        )  # fmt: skip
        ended = Repair.objects.filter(closed_at__isnull=False).order_by()
        for action, end, alone, count in ended.values_list("action", "state", "automatic").annotate(n=Count("pk")):
            out.add_metric([action, end, "policy" if alone else "person"], count)
        return out

    def _sources(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        now = clock.now()
        labels = ["source", "account", "region", "scope"]
        ages = GaugeMetricFamily("healthboard_source_age_seconds", "Since the source last told", labels=labels)
        blinds = GaugeMetricFamily("healthboard_source_blind", "1 if the source is blind", labels=labels)
        drops = CounterMetricFamily(
            "healthboard_source_dropped_messages", "Messages that were not used", labels=[*labels, "reason"]
        )
        for source in listened_to().select_related("account").order_by("pk"):
            values = [source.name, source.account.account_id, source.region, source.scope]
            if source.succeeded_at is not None:
                ages.add_metric(values, max((now - source.succeeded_at).total_seconds(), 0))
            blinds.add_metric(values, int(blind(source, now)))
            for reason, count in sorted(source.dropped.items()):
                drops.add_metric([*values, reason], count)
        yield ages
        yield blinds
        yield drops
        last = (
            Instance.objects.exclude(evaluated_at=None).order_by("-evaluated_at").values_list("evaluated_at", flat=True)
        )
        if newest := last.first():
            age = max((now - newest).total_seconds(), 0)
            yield GaugeMetricFamily("healthboard_decision_age_seconds", "Since an instance was last read", value=age)

    def _pulses(self) -> Iterator[GaugeMetricFamily]:
        now = clock.now()
        ages = GaugeMetricFamily("healthboard_pulse_age_seconds", "Since a part last came round", labels=["name"])
        fine = GaugeMetricFamily("healthboard_pulse_ok", "1 if what it found was fine", labels=["name"])
        logged = None
        # the canary proves beat, broker and worker together
        for pulse in Pulse.objects.exclude(name="watch").exclude(name__startswith=itself.NAME).order_by("name"):
            if pulse.name == "audit":
                logged = _moment(pulse.detail.get("logged_at"))
            ages.add_metric([pulse.name], max((now - pulse.at).total_seconds(), 0))
            fine.add_metric([pulse.name], int(pulse.ok))
        yield ages
        yield fine
        standing = alarm.standing()
        out = GaugeMetricFamily("healthboard_invariants_broken", "Broken invariants", labels=["acknowledged"])
        out.add_metric(["no"], sum(not one["seen_by"] for one in standing))
        out.add_metric(["yes"], sum(bool(one["seen_by"]) for one in standing))
        yield out
        orphans = sum(one["sentence"].startswith("ORPHAN") for one in standing)
        yield GaugeMetricFamily(
            "healthboard_orphans", "Instances that healthboard launched and that belong to nothing", value=orphans
        )
        if logged is not None:
            yield GaugeMetricFamily(
                "healthboard_audit_head_written_age_seconds", "Since the audit chain's head was logged outside the "
                "database", value=_age(logged, now),
            )  # fmt: skip
        if end := chain.end():
            head = GaugeMetricFamily("healthboard_audit_head", "Position of the audit chain's end", labels=["hash"])
            head.add_metric([end.hash], end.position)
            yield head

    def _rounds(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """What each kind of task costs; and what waits in the queues, as far as the broker answers."""
        runs = CounterMetricFamily("healthboard_task_runs", "Runs of a task, by end", labels=["task", "end"])
        spent = CounterMetricFamily("healthboard_task_seconds", "Seconds that a task took in all", labels=["task"])
        longest = GaugeMetricFamily("healthboard_task_longest_seconds", "Its longest run so far", labels=["task"])
        for row in Round.objects.order_by("task"):
            runs.add_metric([row.task, "good"], row.runs - row.failed)
            runs.add_metric([row.task, "failed"], row.failed)
            spent.add_metric([row.task], row.seconds)
            longest.add_metric([row.task], row.longest)
        yield from (runs, spent, longest)
        waiting = GaugeMetricFamily("healthboard_queue_messages", "Wake-ups that wait in a queue", labels=["queue"])
        for name, count in (queues.lengths() or {}).items():
            waiting.add_metric([name], count)
        yield waiting

    def _nodes(self) -> Iterator[GaugeMetricFamily]:
        out = GaugeMetricFamily("healthboard_node_refusals_day", "Refused of nodes in the last day", labels=["reason"])
        rows = NodeRefusal.objects.filter(hour__gt=clock.now() - timedelta(hours=25))
        for reason, count in rows.values_list("reason").annotate(n=Sum("count")).order_by("reason"):
            out.add_metric([reason], count)
        yield out

    def _brakes(self) -> Iterator[GaugeMetricFamily]:
        switch = Switch.objects.order_by("pk").first()
        yield GaugeMetricFamily(
            "healthboard_stopped", "1 if the stop switch is thrown", value=int(bool(switch and switch.stopped))
        )
        yield GaugeMetricFamily("healthboard_acting", "1 if it acts at all", value=int(bool(switch and switch.acting)))
        counts = dict(Breaker.objects.filter(released_at=None).values_list("kind").annotate(n=Count("pk")).order_by())
        out = GaugeMetricFamily("healthboard_breakers_open", "Open breakers by kind", labels=["kind"])
        for kind in sorted({*KINDS, *counts}):
            out.add_metric([kind], counts.get(kind, 0))
        yield out
        pauses = Pause.objects.filter(ended_at=None, until__gt=clock.now()).count()
        yield GaugeMetricFamily("healthboard_pauses", "Pauses in force", value=pauses)

    def _notices(self) -> Iterator[GaugeMetricFamily]:
        out = GaugeMetricFamily("healthboard_notices", "Notices on their way, tried in vain, given up in the last day",
                                labels=["target", "state"])  # fmt: skip
        for target in told.standing():
            for state in ("waiting", "troubled", "given_up"):
                out.add_metric([target.name, state], getattr(target, state))
        yield out
        due, now = told.oldest_due(), clock.now()
        yield GaugeMetricFamily(
            "healthboard_outbox_overdue_seconds", "How late the notice is that should have been sent first",
            value=_age(due, now),
        )  # fmt: skip


def _since(model: Any, state: str) -> datetime | None:
    """Since when the one in this state that is longest in it has been there: since its last move to it, each of which is
    on record, else since it was opened. `model`: Case or Repair."""
    kind = model._meta.model_name
    opened = dict(model.objects.filter(state=state).values_list("pk", "opened_at"))
    moves = AuditRow.objects.filter(**{f"{kind}_id__in": opened}, verb=f"{kind}.{state.lower()}")
    moved = dict(moves.values_list(f"{kind}_id").annotate(at=Max("at")).order_by())
    return min({**opened, **moved}.values(), default=None)


def _age(at: datetime | None, now: datetime) -> float:
    return max((now - at).total_seconds(), 0) if at else 0


def _moment(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


registry = CollectorRegistry(auto_describe=False)
registry.register(Numbers())
