"""Tags for status, time and addresses, so that every page shows them alike. Output is escaped by `format_html`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from healthboard import clock, marks, pages, words
from healthboard.diagnosis import catalogue
from healthboard.repairs.recipes import STEPS

register = template.Library()


for _tag in (marks.icon, marks.mark, marks.when, marks.until, marks.clock_time, marks.exact):
    register.simple_tag(_tag, name=_tag.__name__)
register.simple_tag(pages.link)
register.filter(marks.breakable)


@register.filter
def action(value: str) -> str:
    return words.action(value)


@register.filter
def resolution(value: str) -> str:
    return words.RESOLUTIONS.get(value, value)


@register.filter
def vendor(value: str) -> str:
    return words.VENDORS.get(value, value)


@register.filter
def owner(value: str) -> str:
    return words.OWNERS.get(value, value)


@register.filter
def mode(value: str) -> str:
    return words.MODES.get(value, value)


@register.filter
def counted(number: int | None, noun: str) -> str:
    """``{{ 3|counted:"task" }}`` -> ``3 tasks``; a noun pair is given as ``entry,entries``."""
    one, _, many = noun.partition(",")
    return "unknown" if number is None else words.count(number, one, many)


@register.filter
def listing(parts: list[Any]) -> str:
    return words.listing([str(part) for part in parts or []])


@register.filter
def lasted(start: datetime | None, end: datetime | None) -> str:
    """How long from start to end, or until now where it has not ended."""
    return words.span(((end or clock.now()) - start).total_seconds()) if start else ""


@register.filter
def span(seconds: float | None) -> str:
    return words.span(seconds) if seconds is not None else "unknown"


@register.filter
def get(mapping: Any, key: Any) -> Any:
    return mapping.get(key) if hasattr(mapping, "get") else None


@register.simple_tag(takes_context=True)
def address(context: template.Context, **change: Any) -> str:
    """This page's query string with some values changed; ``None`` removes one."""
    return pages.query(context["request"], **change)


@register.simple_tag(takes_context=True)
def sorted_head(context: template.Context, name: str, title: str, style: str = "", hint: str = "") -> SafeString:
    """The head of a column that is sorted by `name` (empty: by nothing): a link that sorts, and turns what is sorted."""
    now = context.get("sort", "")
    text = format_html('<span title="{}">{}</span>', hint, title) if hint else title
    order = {name: "ascending", f"-{name}": "descending"}.get(now, "") if name else ""
    if name:
        where = pages.query(context["request"], sort=f"-{name}" if now == name else name)
        text = format_html('<a href="{}">{}</a>', where, text)
    aria = format_html(' aria-sort="{}"', order) if order else ""
    return format_html('<th scope="col"{}{}>{}</th>', format_html(' class="{}"', style) if style else "", aria, text)


@register.filter
def splitted(text: str) -> list[str]:
    """Words of a constant in a template."""
    return text.split()


@register.filter
def actor(name: str) -> str:
    """``healthboard:policy`` -> ``policy``; a person's name stays as it is."""
    return name.removeprefix("healthboard:")


@register.filter
def headline(case: Any) -> str:
    """What is wrong in words: the code at the head of a case's title gives way to its meaning in the catalogue."""
    title = str(case.title)
    if not title.startswith(f"{case.code} "):
        return title
    where = title[len(case.code) :].removesuffix(f" of {case.instance}" if case.instance else "")
    return f"{catalogue.get(case.code).title},{where}" if where.strip() else catalogue.get(case.code).title


@register.filter
def spanned(seconds: float | None) -> str:
    """Seconds as people say them; unlike `took`, of time that passes here."""
    return words.span(float(seconds or 0))


@register.filter
def stopped(text: str) -> str:
    """A sentence with one full stop at its end, whoever wrote it."""
    return f"{str(text).rstrip('. ')}." if text else ""


@register.filter
def spread(bucket: Any, name: str) -> Any:
    """Median and ninetieth percentile of one of the times of a `statistics.Bucket`."""
    return bucket.spread(name)


@register.filter
def step(name: str) -> str:
    """A step's name in words."""
    known = STEPS.get(name)
    return known.title if known else name


@register.simple_tag
def expected(of: Any, pool: str) -> SafeString | str:
    """What a `history.Expected` says of a repair's time, in words; None: nothing is known. `pool` is its pool's name."""
    if not of:
        return "how long is unknown: none like it has ended well"
    known = format_html("{} (median of {} in {})", words.span(of.seconds), of.count, pool)
    if of.late:
        return format_html("longer than the usual {}", known)
    return format_html("about {} left of {}", marks.until(of.at, over="a moment"), known)


@register.filter
def took(minutes: float | None) -> str:
    """Minutes as expected at AWS's own speed, in the time that they take here (the sandbox is faster)."""
    return words.span(clock.scaled(float(minutes or 0) * 60).total_seconds())
