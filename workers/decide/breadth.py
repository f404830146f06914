"""Looks for one cause behind many cases; `correlate` proposes, the breaker of the scope holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Min

from healthboard import clock
from healthboard.cases import groups as group_cases
from healthboard.cases.models import Case
from healthboard.cases.states import Resolution, State
from healthboard.diagnosis.correlate import AFTERMATH, Bounds, Group, Subject, correlate
from healthboard.fleet.models import HealthEvent, Instance
from healthboard.people.actors import WORKER
from healthboard.repairs.brakes import scopes_of
from healthboard.repairs.models import Breaker
from workers import pulse

BOUNDS = Bounds()


def look() -> list[Group]:
    """Compare the cases of the window, place by place; returns the groups that were found."""
    now = clock.now()
    since = now - BOUNDS.window
    rows = (
        Case.objects.filter(evidence_at__gt=since - timedelta(minutes=1))
        .exclude(instance=None)
        .exclude(resolution=Resolution.DISMISSED)
        # only later cases count again: a release consumes its members' evidence in every scope: else the next scope would hold them at once
        .exclude(parent__resolution=Resolution.RELEASED)
        .annotate(changed_by_us_at=Min("decisions__repair__calls__intended_at"))
        .select_related("instance__account", "instance__pool", "instance__cluster", "account")
        .prefetch_related("workloads", "instance__tasks")
    )
    places: dict[tuple[int, str], list[Case]] = defaultdict(list)
    for case in rows:
        places[case.account_id, case.region].append(case)
    found: list[Group] = []
    for (account_id, region), cases in places.items():
        found += _look_in_place(account_id, region, cases)
    pulse.beat("breadth", at=now)  # an automatic repair starts only after such a look
    return found


def _look_in_place(account_id: int, region: str, cases: list[Case]) -> list[Group]:
    now = clock.now()
    subjects = [_subject(case) for case in cases]
    subjects += _aftermath(account_id, region, now - BOUNDS.window, {s.instance for s in subjects})
    groups = correlate(
        subjects, now=now, sizes=_sizes(account_id, region), bounds=BOUNDS, released=_released(account_id, region)
    )
    by_instance = {case.instance.instance_id: case for case in cases}
    for group in groups:
        members = [by_instance[i] for i in group.instances if i in by_instance]
        if group.kind == "ROOT":
            _name_victims(group, by_instance)
        elif not group.soft:
            held = [c for c in members if c.state in (State.WAITING, State.DECIDED, State.SNOOZED)]
            if held:
                group_cases.hold(
                    account=held[0].account, region=region,
                    scope=(group.scope[0].partition(":")[0], group.scope[1]), code=group.code or "", why=group.why,
                    members=held,
                )  # fmt: skip
    return list(groups)


@transaction.atomic
def _name_victims(group: Group, by_instance: dict[str, Case]) -> None:
    case = by_instance.get(group.root or "")
    if case is not None and set(case.victims) != set(group.victims):
        group_cases.name_victims(Case.objects.select_for_update().get(pk=case.pk), sorted(group.victims), WORKER)


def _subject(case: Case) -> Subject:
    """A case as `correlate` wants it: its decisive codes, without companions and witnesses.

    From its repair's first change on, what the machine shows may be our own doing (a reboot looks impaired, its agent
    goes): only what was known before counts, or our own reboots would be taken for a common cause.
    """
    instance = case.instance
    told = case.evidence.order_by("-at")
    if case.changed_by_us_at:
        told = told.filter(at__lt=case.changed_by_us_at)
    last = told.values_list("assessment", flat=True).first() or {}
    decisive = [] if case.changed_by_us_at else [case.code]
    decisive += [
        f["code"] for f in last.get("findings", [])
        if f.get("verdict") in ("HARDWARE", "AMBIGUOUS") and f.get("role", "own") == "own"
    ]  # fmt: skip
    return Subject(
        instance=instance.instance_id, at=case.evidence_at, codes=tuple(dict.fromkeys(decisive)),
        scopes=_scopes(instance, [w.name for w in case.workloads.all()]), jobs=_jobs(instance),
        all_codes=tuple(last.get("codes", ()) if case.changed_by_us_at else case.codes),
    )  # fmt: skip


def _aftermath(account_id: int, region: str, since: datetime, known: set[str]) -> list[Subject]:
    """Instances without a case that show an application fault or clean-up now: they may be victims of a root."""
    events = HealthEvent.objects.filter(
        instance__account_id=account_id, instance__region=region, instance__gone_at=None, last_at__gt=since,
        backlog=False, code__in=AFTERMATH,
    )  # fmt: skip
    seen: dict[int, tuple[datetime, set[str]]] = {}
    for pk, at, code in events.values_list("instance_id", "at", "code"):
        first, codes = seen.get(pk, (at, set()))
        seen[pk] = (min(first, at), codes | {code})
    rows = Instance.objects.filter(pk__in=list(seen)[:1000]).select_related("pool").prefetch_related("tasks")
    return [
        Subject(instance=i.instance_id, at=seen[i.pk][0], codes=(), scopes={}, jobs=_jobs(i),
                all_codes=tuple(sorted(seen[i.pk][1])))
        for i in rows if i.instance_id not in known
    ]  # fmt: skip


def _jobs(instance: Instance) -> tuple[str, ...]:
    return tuple(sorted({t.job for t in instance.tasks.all() if t.job}))


def _scopes(instance: Instance, workloads: list[str]) -> dict[str, str]:
    """Scope kind -> value, as `correlate` wants them; a workload has a key of its own."""
    found: dict[str, str] = {}
    for kind, value in scopes_of(instance, workloads):
        if kind == "workload":
            found[f"workload:{value}"] = value
        elif kind != "place":
            found[kind] = value
    return found


def _sizes(account_id: int, region: str) -> dict[tuple[str, str], int]:
    """How many live instances each scope has."""
    sizes: Counter[tuple[str, str]] = Counter()
    live = Instance.objects.filter(account_id=account_id, region=region, gone_at=None).exclude(
        state__in=["terminated", "shutting-down"]
    )
    names: dict[int, set[str]] = defaultdict(set)
    for pk, name in live.exclude(tasks__workload=None).values_list("pk", "tasks__workload__name").distinct():
        names[pk].add(name)
    for instance in live.select_related("pool", "cluster"):
        for scope in _scopes(instance, sorted(names[instance.pk])).items():
            sizes[scope] += 1
    return dict(sizes)


def _released(account_id: int, region: str) -> dict[tuple[str, str], object]:
    rows = Breaker.objects.filter(account_id=account_id, region=region, kind="CORRELATED").exclude(released_at=None)
    latest: dict[tuple[str, str], object] = {}
    for breaker in rows.order_by("released_at"):
        kind = f"workload:{breaker.scope}" if breaker.scope_kind == "workload" else breaker.scope_kind
        latest[kind, breaker.scope] = breaker.released_at
    return latest
