"""System health: what we can see, what holds repairs back, and the switches for people who may throw them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from healthboard import clock, queues, versions
from healthboard.approve import by_hand
from healthboard.approve.context import frame
from healthboard.approve.web import actor_of, log_in_again, see_other
from healthboard.cases import alarm, groups
from healthboard.cases import second as cases_second
from healthboard.celery import TICKS, every
from healthboard.fleet import aws_notices, foreign, itself
from healthboard.fleet.models import AwsNotice, Instance, Pool, Pulse, Source, Workload
from healthboard.fleet.seeing import WATCH_ROUNDS
from healthboard.fleet.sources import blind, listened_to
from healthboard.notices import queries as told
from healthboard.pages import explained, live, page, version
from healthboard.people import access, detour
from healthboard.people import refused as refusals
from healthboard.people import second as people_second
from healthboard.people.models import Request
from healthboard.policies import matching
from healthboard.refusals import Invalid, NotFound, Refusal
from healthboard.repairs import brakes, budget, queries
from healthboard.repairs.models import Breaker, Pause, Repair

PAUSABLE = {"pool": Pool, "workload": Workload, "instance": Instance}
#: pulse -> seconds between its ticks at speed 1
SECONDS = {task.split(".")[1]: seconds for task, seconds in TICKS.values() if task.endswith(".sweep")} | {
    "canary": TICKS["canary"][1],
    "breadth": TICKS["see breadth"][1],
    "audit": TICKS["seal the audit chain"][1],
}


@page
def system(request: HttpRequest) -> HttpResponse:
    mark = [
        list(Source.objects.values_list("pk", "succeeded_at", "error", "dropped")),
        list(AwsNotice.objects.order_by("pk").values_list("pk", "told_at", "closed_at")),
        list(Breaker.objects.filter(released_at=None).values_list("pk", flat=True)),
        list(Pause.objects.filter(ended_at=None).values_list("pk", "until")),
        list(Repair.objects.filter(closed_at=None).values_list("pk", "state")),
        list(Pulse.objects.values_list("name", "at", "ok")),
    ]
    seen = _seen(request)
    mark += [seen["standing"], seen["queues"], [row.pk for row in seen["asked"]], told.version(seen["targets"])]
    return live(request, "system.html", version(mark), lambda: context(request, seen))


def _seen(request: HttpRequest) -> dict[str, Any]:
    """What is needed to say whether the page has changed, and to show it."""
    return {
        "standing": foreign.plain(access.seeing(request.user), alarm.standing()),
        "queues": queues.lengths(),
        "targets": told.standing(),
        "asked": list(people_second.waiting()),
    }


def context(request: HttpRequest, seen: dict[str, Any]) -> dict[str, Any]:
    now, policies, see = clock.now(), matching.snapshots(), access.seeing(request.user)
    pulses = {pulse.name: pulse for pulse in Pulse.objects.order_by("name")}
    released = queries.breakers(see).filter(released_at__isnull=False).select_related("account")
    pauses = queries.pauses(see).filter(ended_at=None, until__gt=now)
    sources = list(see(listened_to(), pool="").select_related("account").order_by("account", "region", "name", "scope"))
    for source in sources:
        source.blind = blind(source, now)
        source.watched = source.watched_from is not None and source.good_rounds < WATCH_ROUNDS
    return {
        **seen,
        "unheard": told.unheard(seen["targets"], (p.settings.get("notify") or () for p in policies)),
        "uncalled": told.uncalled(seen["targets"], (p.settings.get("checkpoint") or () for p in policies)),
        "switch": frame(request).switch,
        "sources": sources,
        "notices": list(aws_notices.standing(here(see, AwsNotice)).select_related("account")[:50]),
        "pulses": _pulses(pulses, now),
        "breakers": _breakers(request, see, seen["asked"]),
        "released": foreign.rows(see, released.order_by("-released_at")[:5], "release_reason"),
        "pauses": foreign.rows(see, pauses.order_by("until"), "reason"),
        "tagged": see(Instance.objects.filter(gone_at=None, paused_by_tag=True)).count(),
        "pools": _budgets(see, policies),
        "invariants": pulses.get("invariants"),
        "audit": pulses.get("audit"),
        "refused": _refused(see),
        "versions": versions.rows(),
        "url_known": bool(settings.URL),
        "lengths": by_hand.LENGTHS,
        "may": _may(request),
        "given": detour.given(request),
    }


def _may(request: HttpRequest) -> dict[str, str | None]:
    """Per form: None, or why this person may not send it."""
    may = access.each(request.user, ("stop", "resume", "release", "pause", "decide"))
    if access.somewhere(request.user, "pause"):  # of a pool, say; the place is checked when it is set
        may["pause"] = None
    return {**may, "acting": may["resume"] and "To switch acting on or off takes the role admin."}


def here(see: Callable[..., QuerySet[Any]], model: type[Any]) -> QuerySet[Any]:
    """What concerns the places of a person (`access.seeing`): sources, and what AWS says."""
    return see(model.objects.all(), pool="")


def _breakers(request: HttpRequest, see: Callable[..., QuerySet[Any]], waiting: list[Request]) -> list[Breaker]:
    """The open ones, each with why this person may not ask for its release, or None; and with what was asked for."""
    rows = queries.breakers(see).filter(released_at=None).select_related("account").order_by("-opened_at")
    rows = foreign.rows(see, rows, "why")
    asked, holding = access.asking(request.user, "release"), groups.holdings()
    for row in rows:
        pool = row.scope if row.scope_kind == "pool" else ""
        row.why_not = asked(account=row.account, region=row.region, pool=pool)
        group = holding.get(row.pk)
        row.group = group.pk if group else None
        subject = f"case:{group.pk}" if group else f"breaker:{row.pk}"
        row.requests = cases_second.shown(request.user, [one for one in waiting if one.subject == subject])
    return rows


def _budgets(see: Callable[..., QuerySet[Any]], policies: list[matching.Snapshot]) -> list[dict[str, Any]]:
    """Pools with their size, what is out, and what may be."""
    values = []
    seen = see(Pool.objects.all(), pool="name")
    for pool in seen.select_related("account", "cluster").order_by("account", "region", "name"):
        idle = matching.Target(pool.account.account_id, pool.region, pool.cluster.name, pool.name)
        values.append((pool, matching.combine(policies, [idle]).values))
    used = budget.usages(values)
    return [{"pool": pool, "used": used[pool.pk]} for pool, _ in values]


def _refused(see: Callable[..., QuerySet[Any]]) -> list[dict[str, Any]]:
    """What was refused of nodes in the last day, most first; machines that the person may not see go without a name."""
    rows = refusals.lately()[:200]
    named = Instance.objects.filter(instance_id__in={row["instance"] for row in rows} - {""})
    seen = set(see(named).values_list("instance_id", flat=True))
    for row in rows:
        row["instance"] = row["instance"] if row["instance"] in seen else "another machine" if row["instance"] else ""
    return rows[:10]


def _pulses(pulses: dict[str, Pulse], now: datetime) -> list[dict[str, Any]]:
    """Signs of life, the canary first: it proves beat, broker and worker together. Late after three of its rounds. Where
    a host found out what it runs on is none: it asks rarely, and a host that is gone asks no more."""
    rows = [
        {"name": pulse.name, "at": pulse.at, "ok": pulse.ok,
         "late": now - pulse.at > timedelta(seconds=max(every(SECONDS.get(pulse.name, 300)) * 3, 15))}
        for name, pulse in pulses.items() if name not in ("invariants", "watch") and not name.startswith(itself.NAME)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row["name"] != "canary")


def _do(request: HttpRequest, said: str, act: Callable[[], object]) -> HttpResponse:
    """Carry out a switch's form; what is refused is shown on the page, a stale log-in leads to a fresh one."""
    where = reverse("system")
    try:
        act()
    except Refusal as refusal:
        if refusal.details.get("again"):
            return log_in_again(request, where)
        return explained(request, "system.html", context(request, _seen(request)), refusal, where)
    return see_other(request, where, said)


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip()


@page
@require_POST
def stop(request: HttpRequest) -> HttpResponse:
    return _do(request, "Everything is stopped.", lambda: brakes.stop(actor_of(request), _reason(request)))


@page
@require_POST
def resume(request: HttpRequest) -> HttpResponse:
    def act() -> None:
        if not _reason(request):
            raise Invalid("Say why it is safe to go on.")
        brakes.resume(actor_of(request), _reason(request))

    return _do(request, "Repairs may go on.", act)


@page
@require_POST
def acting(request: HttpRequest) -> HttpResponse:
    on = request.POST.get("on") == "1"
    said = "Acting is on." if on else "Acting is off: healthboard only observes."
    return _do(request, said, lambda: brakes.set_acting(on, actor_of(request), _reason(request)))


@page
@require_POST
def release_breaker(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for it; another person confirms. A breaker of a group case is released with the case."""

    def act() -> None:
        if not queries.breakers(access.seeing(request.user)).filter(pk=pk).exists():
            raise NotFound(f"There is no breaker {pk}.")  # a refusal would name a pool that the person does not see
        cases_second.ask_release_of(pk, actor=actor_of(request), reason=_reason(request))

    return _do(request, "Asked for: another person confirms the release.", act)


@page
@require_POST
def acknowledge(request: HttpRequest) -> HttpResponse:
    return _do(request, "Acknowledged.", lambda: alarm.acknowledge(actor_of(request), _reason(request)))


@page
@require_POST
def set_pause(request: HttpRequest) -> HttpResponse:
    """A pause of what exists: a name that was mistyped would pause nothing, and nobody would notice."""
    kind, scope, raw = (request.POST.get(name, "").strip() for name in ("kind", "scope", "length"))

    def act() -> None:
        if raw not in by_hand.SECONDS:
            raise Invalid("Choose how long the pause lasts.")
        until = clock.now() + timedelta(seconds=by_hand.SECONDS[raw])
        brakes.pause(actor=actor_of(request), reason=_reason(request), until=until, **_paused(request, kind, scope))

    return _do(request, f"Paused: nothing is changed about {scope or 'anything'} until then.", act)


def _paused(request: HttpRequest, kind: str, scope: str) -> dict[str, Any]:
    """What `brakes.pause` wants to know of the scope. Raises Invalid where it does not exist."""
    if kind == "fleet":
        return {"scope_kind": "fleet", "scope": ""}
    if kind not in PAUSABLE:
        raise Invalid("Choose what to pause.")
    if not scope:
        raise Invalid(f"Name the {kind} to pause.")
    scope = scope.replace("\0", "")
    if kind == "instance":
        seen = access.within(request.user, Instance.objects.filter(instance_id=scope, gone_at=None))
        found = seen.select_related("account", "pool").first()
        if found is not None:
            pool = found.pool.name if found.pool else ""
            return {"scope_kind": kind, "scope": scope, "account": found.account, "region": found.region, "pool": pool}
    elif PAUSABLE[kind].objects.filter(name=scope).exists():
        return {"scope_kind": kind, "scope": scope}
    raise Invalid(f"There is no {kind} {scope[:100]}.")


@page
@require_POST
def end_pause(request: HttpRequest, pk: int) -> HttpResponse:
    def act() -> None:
        if not queries.pauses(access.seeing(request.user)).filter(pk=pk).exists():
            raise NotFound(f"There is no pause {pk}.")  # a refusal would name a pool that the person does not see
        brakes.end_pause(pk, actor_of(request))

    return _do(request, "The pause is over.", act)
