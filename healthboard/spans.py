"""Times in an address: a day or a minute, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_FORMS = (("%Y-%m-%d", timedelta(days=1)), ("%Y-%m-%dT%H:%M", timedelta(minutes=1)), ("%Y-%m-%dT%H:%M:%S", timedelta(seconds=1)))  # fmt: skip


def begin(text: str) -> datetime | None:
    """When the day, minute or second begins; None for what is none."""
    found = _read(text)
    return found[0] if found else None


def end(text: str) -> datetime | None:
    """When the day, minute or second is over: the time itself is included."""
    found = _read(text)
    return found[0] + found[1] if found else None


def minute(text: str, *, last: bool = False) -> str:
    """As a field of a form wants it, to the minute: the first of a day, or its last one. Empty for what is no time."""
    found = _read(text)
    if found is None:
        return ""
    at = found[0] + found[1] - timedelta(minutes=1) if last and found[1] > timedelta(minutes=1) else found[0]
    return f"{at:%Y-%m-%dT%H:%M}"


def _read(text: str) -> tuple[datetime, timedelta] | None:
    for form, long in _FORMS:
        try:
            at = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return (at, long) if 1970 <= at.year < 9999 else None
    return None
