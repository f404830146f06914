"""Quiet hours: until when a person wants no e-mail."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones


@cache
def zones() -> tuple[str, ...]:
    return tuple(sorted(z for z in available_timezones() if "/" in z or z == "UTC"))


def quiet_until(now: datetime, starts: time, ends: time, zone: str) -> datetime | None:
    """The end (UTC) of the quiet hours that `now` lies in, else None. They may pass midnight; equal times: never.

    Hours are those of the wall clock there, so that summer time moves them with the people.
    """
    if starts == ends:
        return None
    there = now.astimezone(ZoneInfo(zone))
    clock = there.time().replace(tzinfo=None)
    if starts < ends:
        if not starts <= clock < ends:
            return None
        day = there.date()
    elif clock >= starts:
        day = there.date() + timedelta(days=1)
    elif clock < ends:
        day = there.date()
    else:
        return None
    end = datetime.combine(day, ends, tzinfo=there.tzinfo).astimezone(UTC)
    return end if end > now else now + timedelta(minutes=1)  # an hour that does not exist that night
