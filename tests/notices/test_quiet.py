from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthboard.notices.quiet import quiet_until, zones


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "now, starts, ends, zone, until",
    [
        ("2026-01-10T23:30", time(22), time(7), "UTC", "2026-01-11T07:00"),
        ("2026-01-10T06:59", time(22), time(7), "UTC", "2026-01-10T07:00"),
        ("2026-01-10T07:00", time(22), time(7), "UTC", None),
        ("2026-01-10T12:30", time(12), time(13), "UTC", "2026-01-10T13:00"),
        ("2026-01-10T21:30", time(22), time(7), "Europe/Berlin", "2026-01-11T06:00"),
        ("2026-07-10T20:30", time(22), time(7), "Europe/Berlin", "2026-07-11T05:00"),
        ("2026-03-29T00:30", time(22), time(7), "Europe/Berlin", "2026-03-29T05:00"),  # the night loses an hour
        ("2026-10-25T00:30", time(22), time(7), "Europe/Berlin", "2026-10-25T06:00"),  # and gains one
        ("2026-01-10T18:00", time(22), time(7), "Asia/Kolkata", "2026-01-11T01:30"),
        ("2026-01-10T18:00", time(7), time(7), "UTC", None),
    ],
)
def test_quiet_hours_follow_the_wall_clock_there(now, starts, ends, zone, until):
    assert quiet_until(at(now), starts, ends, zone) == (until and at(until))


@given(st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)), st.times(), st.times(), st.sampled_from(zones()))
def test_the_end_is_always_ahead_and_within_a_day(now, starts, ends, zone):
    now = now.replace(tzinfo=UTC)
    until = quiet_until(now, starts, ends, zone)
    assert until is None or now < until <= now + timedelta(hours=26)
