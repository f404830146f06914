"""Looks for one cause behind many cases; `correlate` proposes, the breaker of the scope holds.

A storm of what nothing would be repaired for (clean-up, an application's faults, heat) holds nothing: it is one case
that is shown, and ends by itself.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Min, Q

from healthboard import clock
from healthboard.cases import groups as group_cases
from healthboard.cases.models import BY_HAND, Case, Evidence
from healthboard.cases.states import Resolution, State
from healthboard.diagnosis.correlate import Bounds, Group, Subject, correlate
from healthboard.fleet.models import Account
from healthboard.people.actors import WORKER
from healthboard.repairs import opening
from healthboard.repairs.models import Breaker
from workers import pulse
from workers.decide import subjects
from workers.decide.subjects import Place

BOUNDS = Bounds()
#: from a case to the calls of its repairs
CALLS = "decisions__repair__calls__"
#: states of a case that a group may hold
HOLDABLE = (State.WAITING, State.DECIDED, State.SNOOZED)


def look() -> list[Group]:
    """Compare the cases of the window, place by place; returns the groups that were found."""
    now = clock.now()
    since = now - BOUNDS.window
    begun = since - timedelta(minutes=1)
    rows = (
        # opened since then, or read otherwise since then: what was there before may have got worse
        Case.objects.filter(Q(evidence_at__gt=begun) | Q(pk__in=Evidence.objects.filter(at__gt=begun).values("case")))
        .exclude(instance=None)
        .exclude(resolution=Resolution.DISMISSED)
        .exclude(code=BY_HAND)  # what people ask for has nothing in common but them
        # a release consumes its members' evidence in every scope, else the next scope would hold them at once: only
        # later cases count again
        .exclude(parent__resolution=Resolution.RELEASED)
        .annotate(changed_by_us_at=Min(f"{CALLS}intended_at", filter=opening.changing(CALLS)))
        .select_related("instance__account", "instance__pool", "instance__cluster", "account")
        .prefetch_related("workloads", "instance__tasks")
    )
    cases: dict[Place, list[Case]] = defaultdict(list)
    for case in rows:
        cases[case.account_id, case.region].append(case)
    storms = group_cases.storms()
    places = {*cases, *subjects.places_showing(since), *((s.account_id, s.region) for s in storms)}
    found: list[Group] = []
    for place in sorted(places):
        mine = [s for s in storms if (s.account_id, s.region) == place]
        found += _look_in_place(place, cases[place], mine, since, begun)
    pulse.beat("breadth", at=now)  # an automatic repair starts only after such a look
    return found


def _look_in_place(
    place: Place, cases: list[Case], storms: list[Case], since: datetime, begun: datetime
) -> list[Group]:  # fmt: skip
    now = clock.now()
    told = subjects.announced(place, now)
    stopped = subjects.stopped_jobs(place, since)
    rows = [s for case in cases for s in subjects.of_case(case, told.get(case.instance_id, set()), stopped, begun)]
    rows += subjects.without_case(place, since, {s.instance for s in rows}, told, stopped)
    released = _released(*place)
    _hold_what_aws_tells(place, released)
    if not rows and not storms:
        return []
    groups = correlate(rows, now=now, sizes=subjects.sizes(place), bounds=BOUNDS, released=released)
    by_instance = {case.instance.instance_id: case for case in cases}
    for group in groups:
        if group.kind == "ROOT":
            _name_victims(group, by_instance)
        elif group.soft:
            group_cases.observe(
                account_id=place[0], region=place[1], scope=group.scope, code=group.code or "", why=group.why,
                instances=group.instances,
            )  # fmt: skip
        else:
            _hold(group, place[1], by_instance)
    if storms:
        _end_storms(place, rows)
    return list(groups)


def _hold(group: Group, region: str, by_instance: dict[str, Case]) -> None:
    members = [by_instance[i] for i in group.instances if i in by_instance]
    held = [c for c in members if c.state in HOLDABLE]
    if held:
        group_cases.hold(
            account=held[0].account, region=region, scope=group.scope, code=group.code or "", why=group.why,
            members=held, part_of=_holding(group, by_instance),
        )  # fmt: skip


def _holding(group: Group, by_instance: dict[str, Case]) -> Case | None:
    """The open case that holds others of these instances already: one cause, which has spread."""
    cases = [by_instance[i] for i in group.instances if i in by_instance]
    parents = {c.parent_id for c in cases if c.state == State.HELD and c.parent_id}
    return Case.objects.filter(pk__in=parents, closed_at=None).order_by("pk").first() if parents else None


def _hold_what_aws_tells(place: Place, released: dict[tuple[str, str], datetime]) -> None:
    """AWS's own word that many are concerned needs no counting: the zone is held, however few of it are ours."""
    for zone, told in subjects.told_by_aws(place, released).items():
        members = Case.objects.filter(
            account=place[0], region=place[1], instance__instance_id__in=list(told), state__in=HOLDABLE
        )
        group_cases.hold(
            account=Account.objects.get(pk=place[0]), region=place[1], scope=("zone", zone), code="AWS_HEALTH_EVENT",
            why=f"AWS Health reports an issue: {next(iter(told.values()))}", members=list(members), victims=told,
        )  # fmt: skip


def _end_storms(place: Place, rows: list[Subject]) -> None:
    """A storm is over when no instance of it has shown its code for the whole window; enough of them is not asked."""
    for storm in [s for s in group_cases.storms() if (s.account_id, s.region) == place]:
        showing = {s.instance for s in rows if storm.code in s.all_codes}
        if not showing & set(storm.victims):
            group_cases.over(storm.pk, f"none of them has shown {storm.code} for {BOUNDS.window.seconds // 60} minutes")


@transaction.atomic
def _name_victims(group: Group, by_instance: dict[str, Case]) -> None:
    case = by_instance.get(group.root or "")
    if case is not None and set(case.victims) != set(group.victims):
        group_cases.name_victims(Case.objects.select_for_update().get(pk=case.pk), sorted(group.victims), WORKER)


def _released(account_id: int, region: str) -> dict[tuple[str, str], datetime]:
    rows = Breaker.objects.filter(account_id=account_id, region=region, kind="CORRELATED").exclude(released_at=None)
    latest: dict[tuple[str, str], datetime] = {}
    for breaker in rows.order_by("released_at"):
        latest[breaker.scope_kind, breaker.scope] = breaker.released_at
    return latest
