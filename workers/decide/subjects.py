"""What `correlate` compares: instances with a case, and instances that show something for which no case opens."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from healthboard.cases.models import Case
from healthboard.diagnosis.correlate import AFTERMATH, ANNOUNCED, SOFT_READINGS, Subject
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet.models import HealthEvent, Instance, JobStop
from healthboard.policies.reading import BAD
from healthboard.repairs.brakes import scopes_of

#: more instances than this need not be compared to see that it is a storm
MOST = 5000
#: how long a notice of something that will happen explains what follows
NOTICE = timedelta(hours=1)
#: kept readings of a case that are looked at, the newest
KEPT = 20

Place = tuple[int, str]
Stopped = dict[str, set[str]]


def places_showing(since: datetime) -> set[Place]:
    """Accounts and regions where an instance shows something for which no case opens."""
    named = _events(since).values_list("instance__account_id", "instance__region").distinct()
    issues = Instance.objects.filter(gone_at=None, verdict="CORRELATED")
    others = [rows.values_list("account_id", "region").distinct() for rows in (_warm(since), issues)]
    return {*named, *others[0], *others[1]}


def of_case(case: Case, told: set[str], stopped: Stopped, since: datetime) -> list[Subject]:
    """A case as `correlate` wants it: its decisive codes, without companions and witnesses, as of when it opened, and
    what it got worse by since then as of its own time. Nothing of before `since`. `told` was announced.

    From its repair's first change on, what the machine shows may be our own doing (a reboot looks impaired, its agent
    goes): only what was known before counts, or our own reboots would be taken for a common cause.
    """
    instance = case.instance
    rows = case.evidence.order_by("-at", "-pk")
    if case.changed_by_us_at:
        rows = rows.filter(at__lt=case.changed_by_us_at)
    kept = list(rows.values_list("at", "assessment")[:KEPT])[::-1]
    last = kept[-1][1] if kept else {}
    decisive = [] if case.changed_by_us_at else [case.code]
    shown = last.get("codes", ()) if case.changed_by_us_at else case.codes
    found = {case.evidence_at: [*decisive, *_decisive(last)]}
    for at, code in _worse(kept):
        if at > case.evidence_at:
            found.setdefault(at, []).append(code)
    return [
        Subject(
            instance=instance.instance_id, at=at, codes=tuple(dict.fromkeys(codes)),
            scopes=scopes(instance, [w.name for w in case.workloads.all()]), jobs=_jobs(instance, stopped),
            all_codes=tuple(dict.fromkeys([*shown, *sorted(told)])),
        )
        for at, codes in found.items() if at > since
    ]  # fmt: skip


def _decisive(assessment: dict[str, Any]) -> dict[str, str]:
    """Code -> its worst verdict, of the findings of a kept reading that stand for themselves."""
    found: dict[str, str] = {}
    for f in assessment.get("findings", []):
        if f.get("verdict") in BAD and f.get("role", "own") == "own" and found.get(f["code"]) != Verdict.HARDWARE:
            found[f["code"]] = f["verdict"]
    return found


def _worse(kept: list[tuple[datetime, dict[str, Any]]]) -> list[tuple[datetime, str]]:
    """What kept readings, oldest first, show for the first time beside the one before, or as broken for the first time."""
    found, before = [], _decisive(kept[0][1]) if kept else {}
    for at, assessment in kept[1:]:
        now = _decisive(assessment)
        found += [(at, code) for code, verdict in now.items() if before.get(code) not in (verdict, Verdict.HARDWARE)]
        before = now
    return found


def without_case(
    place: Place, since: datetime, known: set[str], told: dict[int, set[str]], stopped: Stopped
) -> list[Subject]:
    """Instances that show an application's fault, clean-up, or a passing note: victims of a root, or a soft storm."""
    account_id, region = place
    seen: dict[int, tuple[datetime, set[str]]] = {}
    events = _events(since).filter(instance__account_id=account_id, instance__region=region)
    for pk, at, code in events.values_list("instance_id", "at", "code"):
        _see(seen, pk, max(at, since), code)
    warm = _warm(since).filter(account_id=account_id, region=region)
    for pk, at, code in warm.values_list("pk", "verdict_since", "verdict_code"):
        _see(seen, pk, at, code)
    rows = Instance.objects.filter(pk__in=sorted(seen)[:MOST]).select_related("pool").prefetch_related("tasks")
    found = []
    for i in rows.exclude(instance_id__in=known):
        at, codes = seen[i.pk]
        # a mate of a broken node shows only aftermath; what accompanies that says nothing of its own
        codes = codes & AFTERMATH or codes
        shown = tuple(sorted(codes | told.get(i.pk, set())))
        found.append(Subject(i.instance_id, at, (), scopes(i, []), _jobs(i, stopped), shown))
    return found


def announced(place: Place, now: datetime) -> dict[int, set[str]]:
    """Instance row -> what was announced for it: Spot, rebalance, an ending Capacity Block, its group's roll-out."""
    account_id, region = place
    found: dict[int, set[str]] = defaultdict(set)
    notices = HealthEvent.objects.filter(
        instance__account_id=account_id, instance__region=region, instance__gone_at=None, code__in=ANNOUNCED,
        last_at__gt=now - NOTICE,
    )  # fmt: skip
    for pk, code in notices.values_list("instance_id", "code"):
        found[pk].add(code)
    rolling = Instance.objects.filter(account_id=account_id, region=region, gone_at=None, pool__rolling_out=True)
    for pk in rolling.values_list("pk", flat=True):
        found[pk].add("ROLL_OUT")
    return found


def told_by_aws(place: Place, released: dict[tuple[str, str], datetime]) -> dict[str, dict[str, str]]:
    """Zone -> the instances in it that AWS Health calls part of an issue, each with AWS's words. What was told before
    the zone was released was weighed then, and counts no more."""
    account_id, region = place
    rows = HealthEvent.objects.filter(
        instance__account_id=account_id, instance__region=region, instance__gone_at=None, backlog=False,
        instance__verdict="CORRELATED", code="AWS_HEALTH_EVENT", attrs__topic="issue",
    )  # fmt: skip
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for zone, name, at, text in rows.order_by("pk").values_list(
        "instance__zone", "instance__instance_id", "last_at", "text"
    ):
        if zone and (("zone", zone) not in released or at > released["zone", zone]):
            found[zone][name] = text
    return found


def scopes(instance: Instance, workloads: list[str]) -> dict[str, str]:
    """Scope kind -> value, as `correlate` wants them; a workload has a key of its own."""
    found: dict[str, str] = {}
    for kind, value in scopes_of(instance, workloads):
        if kind == "workload":
            found[f"workload:{value}"] = value
        elif kind != "place":
            found[kind] = value
    return found


def sizes(place: Place) -> dict[tuple[str, str], int]:
    """How many instances each scope has that run: a stopped one (of a warm pool, say) shows nothing."""
    account_id, region = place
    found: Counter[tuple[str, str]] = Counter()
    live = Instance.objects.filter(account_id=account_id, region=region, gone_at=None).exclude(
        state__in=["terminated", "shutting-down", "stopping", "stopped"]
    )
    names: dict[int, set[str]] = defaultdict(set)
    for pk, name in live.exclude(tasks__workload=None).values_list("pk", "tasks__workload__name").distinct():
        names[pk].add(name)
    for instance in live.select_related("pool", "cluster"):
        for scope in scopes(instance, sorted(names[instance.pk])).items():
            found[scope] += 1
    return dict(found)


def _events(since: datetime) -> QuerySet[HealthEvent]:
    wanted = Q(code__in=AFTERMATH) | Q(code__startswith="XID_")
    return HealthEvent.objects.filter(wanted, instance__gone_at=None, last_at__gt=since, backlog=False)


def _warm(since: datetime) -> QuerySet[Instance]:
    return Instance.objects.filter(
        gone_at=None, verdict="WATCH", verdict_code__in=SOFT_READINGS, verdict_since__gt=since
    )


def _see(seen: dict[int, tuple[datetime, set[str]]], pk: int, at: datetime, code: str) -> None:
    first, codes = seen.get(pk, (at, set()))
    seen[pk] = (min(first, at), codes | {code})


def stopped_jobs(place: Place, since: datetime) -> Stopped:
    """EC2 id -> jobs that lost tasks there since then: when a job stops, ECS lists its tasks no more within a round."""
    found: Stopped = {}
    rows = JobStop.objects.filter(account=place[0], region=place[1], at__gt=since)
    for name, nodes in rows.order_by("pk").values_list("name", "nodes")[:MOST]:
        for instance_id in nodes:
            found.setdefault(instance_id, set()).add(name)
    return found


def _jobs(instance: Instance, stopped: Stopped) -> tuple[str, ...]:
    return tuple(sorted({t.job for t in instance.tasks.all() if t.job} | stopped.get(instance.instance_id, set())))
