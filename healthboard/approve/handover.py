"""The hand-over of a shift: what was done, what waits, what is held and who decided. As a page, and as text to paste.

One structure for all of them, so that what is pasted is what was read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from healthboard import clock, words
from healthboard.approve import waits
from healthboard.approve.context import frame
from healthboard.approve.second import where
from healthboard.cases import alarm
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import State
from healthboard.fleet import foreign
from healthboard.fleet.models import Instance
from healthboard.fleet.sources import blind, listened_to
from healthboard.pages import page
from healthboard.people import access
from healthboard.repairs import queries
from healthboard.repairs.models import Repair, Switch

HOURS, MOST_HOURS, MOST = 8, 168, 100
FORMATS = ("text", "markdown")


@dataclass(frozen=True, slots=True)
class Row:
    text: str
    link: str = ""
    more: str = ""
    until: datetime | None = None  # ends then


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    empty: str
    rows: list[Row] = field(default_factory=list)
    more: int = 0  # rows that are left out


@page
def handover(request: HttpRequest) -> HttpResponse:
    """`hours` back from now (1 to 168); `format` text or markdown gives it to paste."""
    raw = request.GET.get("hours", "")
    hours = int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 4 else HOURS
    hours = min(max(hours, 1), MOST_HOURS)
    now = clock.now()
    found = sections(request, now - timedelta(hours=hours), now)
    how = request.GET.get("format")
    if how in FORMATS:
        text = as_text(found, now, hours, request.user.get_username(), marked=how == "markdown")
        return HttpResponse(text, content_type="text/plain; charset=utf-8")
    context = {"sections": found, "hours": hours, "since": now - timedelta(hours=hours), "choices": (4, 8, 12, 24, 72)}
    return render(request, "handover.html", context)


def sections(request: HttpRequest, since: datetime, now: datetime) -> list[Section]:
    """What concerns the places of this person; instances of others are counted, not named."""
    cases = access.within(request.user, Case.objects.all())
    repairs = access.within(request.user, Repair.objects.all(), prefix="instance__")
    found = [
        _waiting(request, cases, repairs),
        _running(repairs),
        _failed(cases, repairs, since),
        _paused(request, cases, now),
        _breakers(request, since),
        _blind(request, now),
        _done(cases, repairs, since),
        _decisions(cases, since),
    ]
    see = access.seeing(request.user)
    return [replace(section, rows=foreign.rows(see, section.rows, "text", "more")) for section in found]


def _first(rows: QuerySet) -> tuple[list[Any], int]:
    """The first `MOST`, and how many more there are."""
    found = list(rows[:MOST])
    return found, max(rows.count() - MOST, 0) if len(found) == MOST else 0


def _cut(title: str, empty: str, rows: list[Row], left: int = 0) -> Section:
    """`left`: how many were not even read."""
    rows = [replace(row, text=_flat(row.text), more=_flat(row.more)) for row in rows]
    return Section(title, empty, rows[:MOST], max(len(rows) - MOST, 0) + left)


def _case(case: Case, more: str = "", until: datetime | None = None) -> Row:
    return Row(f"{case.title}: {words.action(case.action).lower()}", f"/cases/{case.pk}/", more, until)


def _at(moment: datetime) -> str:
    """UTC; the day where it is another one."""
    return f"{moment:%H:%M}" if moment.date() == clock.now().date() else f"{moment:%Y-%m-%d %H:%M}"


def _repair(repair: Repair, more: str) -> Row:
    pool = repair.pool.name if repair.pool else "no pool"
    return Row(f"{words.action(repair.action)} {repair.instance} ({pool})", f"/repairs/{repair.pk}/", more)


def _waiting(request: HttpRequest, cases: QuerySet[Case], repairs: QuerySet[Repair]) -> Section:
    waiting, left = _first(cases.filter(state=State.WAITING).select_related("instance").order_by("opened_at"))
    asking, more = _first(repairs.filter(state="ASKING").select_related("instance", "pool").order_by("opened_at"))
    rows = [
        _case(case, f"since {_at(case.opened_at)}; expires", case.expires_at)
        if case.expires_at
        else _case(case, f"since {_at(case.opened_at)}")
        for case in waiting
    ]
    rows = [_repair(repair, f"asks: {repair.why_waiting}") for repair in asking] + rows
    wanted, others = _first(waits.requests(access.seeing(request.user))) if frame(request).waits.requests else ([], 0)
    rows = [
        Row(f"A second person: {one.what}", where(one),
            f"asked for by {one.asked_by} at {_at(one.asked_at)}: {one.reason}; expires", one.expires_at)
        for one in wanted
    ] + rows  # fmt: skip
    return _cut("Waits for a person", "Nothing waits.", rows, left + more + others)


def _running(repairs: QuerySet[Repair]) -> Section:
    rows = repairs.filter(closed_at=None).exclude(state="ASKING").select_related("instance", "pool")
    running, left = _first(rows.order_by("opened_at"))
    found = [
        _repair(r, f"{words.REPAIR_STATES[r.state].word.lower()} since {_at(r.opened_at)}"
                   + (f": {r.why_waiting}" if r.why_waiting else ""))
        for r in running
    ]  # fmt: skip
    return _cut("Under way", "No repair is under way.", found, left)


def _failed(cases: QuerySet[Case], repairs: QuerySet[Repair], since: datetime) -> Section:
    rows = repairs.filter(state="FAILED", closed_at__gte=since).select_related("instance", "pool")
    ended, left = _first(rows.order_by("-closed_at"))
    rows = [_repair(r, f"failed at {_at(r.closed_at)}: {r.outcome_why or r.outcome}") for r in ended]
    unhelped, more = _first(cases.filter(closed_at=None, tries__gt=0).select_related("instance").order_by("opened_at"))
    rows += [_case(case, f"{words.count(case.tries, 'repair')} did not help") for case in unhelped]
    return _cut("Failed verifications and repairs", "None.", rows, left + more)


def _paused(request: HttpRequest, cases: QuerySet[Case], now: datetime) -> Section:
    rows = []
    switch = Switch.objects.first()
    if switch is not None and switch.stopped:
        rows.append(
            Row(f"Everything: the stop switch was thrown by {switch.changed_by}", "/system/#switch", switch.reason)
        )
    elif switch is None or not switch.acting:
        rows.append(Row("Everything: this installation only observes", "/system/#switch"))
    pauses = queries.pauses(access.seeing(request.user)).filter(ended_at=None, until__gt=now).order_by("until")
    rows += [
        Row(f"{p.scope_kind} {p.scope}".strip() + f", by {p.set_by}", "/system/#pauses", f"{p.reason}; ends", p.until)
        for p in pauses
    ]
    tagged = access.within(request.user, Instance.objects.filter(gone_at=None, paused_by_tag=True)).count()
    if tagged:
        rows.append(Row(f"{words.count(tagged, 'instance')} by a tag, without an end"))
    snoozed, left = _first(cases.filter(state=State.SNOOZED).select_related("instance").order_by("snoozed_until"))
    rows += [_case(case, "snoozed, wakes", case.snoozed_until) for case in snoozed]
    return _cut("Paused", "Nothing is paused.", rows, left)


def _breakers(request: HttpRequest, since: datetime) -> Section:
    rows = queries.breakers(access.seeing(request.user)).select_related("account").order_by("-opened_at")
    released, left = _first(rows.filter(released_at__gte=since))
    found = [
        Row(f"{b.title}: {b.where}", "/system/#breakers", f"open since {_at(b.opened_at)}: {b.why}")
        for b in rows.filter(released_at=None)
    ]
    found += [
        Row(f"{b.title}: {b.where}", "/system/#breakers", f"released by {b.released_by}: {b.release_reason}")
        for b in released
    ]
    return _cut("Breakers", "None is open, none was released.", found, left)


def _blind(request: HttpRequest, now: datetime) -> Section:
    sources = [
        s
        for s in access.seeing(request.user)(listened_to(), pool="")
        .select_related("account")
        .order_by("account", "region", "name")
        if blind(s, now)
    ]
    rows = [
        Row(f"{s} of {s.account} {s.region}", "/system/#sources",
            (f"since {_at(s.succeeded_at)}" if s.succeeded_at else "never told anything") + (f": {s.error}" if s.error else ""))
        for s in sources
    ]  # fmt: skip
    rows += [
        Row(one["sentence"], "/system/#invariants", f"seen by {one['seen_by']}: {one['reason']}" if one["seen_by"] else "nobody has acknowledged it")
        for one in alarm.standing()
    ]  # fmt: skip
    return _cut("Blind sources and broken invariants", "Every source sees, every invariant holds.", rows)


def _done(cases: QuerySet[Case], repairs: QuerySet[Repair], since: datetime) -> Section:
    good = repairs.filter(closed_at__gte=since, state="SUCCEEDED").select_related("instance", "pool", "replacement")
    ended, left = _first(good.order_by("-closed_at"))
    rows = [
        _repair(r, f"{'by itself' if r.automatic else 'by ' + r.requested_by}, verified at {_at(r.closed_at)}: {r.outcome_why or r.outcome}")
        for r in ended
    ]  # fmt: skip
    closed = Counter(cases.filter(closed_at__gte=since).values_list("resolution", flat=True))
    if closed:
        said = ", ".join(f"{n} {words.RESOLUTIONS.get(why, why).lower()}" for why, n in closed.most_common())
        rows.insert(0, Row(f"{words.count(sum(closed.values()), 'case')} closed: {said}"))
    return _cut("Done", "No case was closed and no repair ended well.", rows, left)


def _decisions(cases: QuerySet[Case], since: datetime) -> Section:
    """Sums by person and way; answers that went against a proposal in full, since the next person will want to know."""
    made = Decision.objects.filter(at__gte=since, case__in=cases)
    sums = Counter(made.values_list("actor", "kind"))
    names = dict(Decision.Kind.choices)
    by_actor: dict[str, list[str]] = {}
    for (actor, kind), count in sorted(sums.items()):
        by_actor.setdefault(actor.removeprefix("healthboard:"), []).append(f"{count} {names.get(kind, kind)}")
    rows = [Row(f"{actor}: {', '.join(parts)}") for actor, parts in by_actor.items()]
    rejecting = made.filter(kind__in=("override", "dismiss", "release"))
    against, left = _first(rejecting.select_related("case").order_by("-at"))
    rows += [Row(f"{d.actor} {d.get_kind_display()} {d.case.title}", f"/cases/{d.case_id}/", d.reason) for d in against]
    return _cut("Decisions", "Nobody decided anything.", rows, left)


def as_text(found: list[Section], now: datetime, hours: int, by: str, *, marked: bool) -> str:
    """Plain text, or Markdown in which what nodes and people wrote is only text."""
    head = f"Hand-over of the last {words.count(hours, 'hour')} until {now:%Y-%m-%d %H:%M} UTC, by {by}"
    lines = [f"# {_marked(head)}" if marked else head]
    for section in found:
        title = f"{section.title} ({len(section.rows) + section.more})" if section.rows else section.title
        lines += ["", f"## {title}" if marked else title.upper(), ""]
        lines += [_line(row, marked) for row in section.rows] or [section.empty]
        if section.more:
            lines.append(f"- and {section.more} more")
    return "\n".join(lines) + "\n"


def _line(row: Row, marked: bool) -> str:
    more = " ".join(filter(None, (row.more, f"{row.until:%Y-%m-%d %H:%M} UTC" if row.until else "")))
    if not marked:
        return f"- {row.text}" + (f" – {more}" if more else "")
    text = _marked(row.text)
    if row.link and settings.URL:
        text = f"[{text}]({settings.URL}{row.link})"
    return f"- {text}" + (f" – {_marked(more)}" if more else "")


def _flat(text: str) -> str:
    """One line of what can be seen: no line break and no sign that turns text around."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _marked(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#~" else c for c in _flat(text))
