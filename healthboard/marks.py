"""Status and time as markup, alike on every page and in what is joined outside templates. Escaped by `format_html`."""

from __future__ import annotations

import functools
from datetime import datetime

from django.templatetags.static import static
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from healthboard import clock, words


@functools.lru_cache(1000, typed=True)  # a SafeString is another key than the same text
def icon(name: str, label: str = "") -> SafeString:
    """A symbol of the sprite; decorative unless it gets a label."""
    address = f"{static('board/icons.svg')}#{name}"
    if label:
        return format_html('<svg class="icon" role="img" aria-label="{}"><use href="{}"></use></svg>', label, address)
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}"></use></svg>', address)


@functools.lru_cache(1000, typed=True)  # a SafeString is another key than the same text
def mark(kind: str, value: str, *, bare: bool = False, word: str = "") -> SafeString:
    """Shape, word and colour of a value of `words.KINDS[kind]`; what is not known is shown grey, as it is."""
    value = str(value or "")
    found = words.KINDS[kind].get(value) or words.Mark(value or "Unknown", "blind", "question")
    return format_html(
        '<span class="mark {}{}"{}>{}<span class="word">{}</span></span>',
        found.tone,
        " bare" if bare else "",
        format_html(' title="{}"', found.hint) if found.hint else "",
        icon(found.icon),
        word or found.word,
    )


@functools.lru_cache(1000)
def breakable(code: str) -> SafeString:
    """A machine name that may be broken behind its underscores; a copy of it has no break."""
    return mark_safe("_<wbr>".join(escape(part) for part in str(code).split("_")))


def when(at: datetime | None, *, never: str = "never") -> SafeString | str:
    """A moment: relative text (kept current by the script), the exact UTC time in the title."""
    if at is None:
        return never
    return _time(at, " data-age", words.ago(at, clock.now()))


def until(at: datetime | None, *, over: str = "now") -> SafeString | str:
    """A countdown to a moment, without the word "in"."""
    if at is None:
        return "—"
    left = (at - clock.now()).total_seconds()
    return _time(at, f' data-until="{escape(over)}"', words.span(left) if left > 0 else escape(over))


def clock_time(at: datetime | None) -> SafeString | str:
    """Time of day in UTC to the second; the date is in the title."""
    return _time(at, "", f"{at:%H:%M:%S}") if at else "—"


def exact(at: datetime | None) -> SafeString | str:
    """Date and time in UTC to the second, for what is printed."""
    return _time(at, "", f"{at:%Y-%m-%d %H:%M:%S}") if at else "—"


def _time(at: datetime, attribute: str, text: str) -> SafeString:
    """`attribute` and `text` as markup. Joined by hand: a page has some hundreds, and `format_html` takes four times as
    long."""
    day, hour = at.isoformat(timespec="seconds")[:19].split("T")
    return mark_safe(f'<time datetime="{day}T{hour}Z" title="{day} {hour} UTC"{attribute or " "}>{text}</time>')
