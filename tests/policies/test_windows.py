"""Maintenance windows and blackouts, also where a clock is changed, against a clock that is walked minute by minute."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthboard.policies import check, fields, windows
from healthboard.policies.careful import most_careful
from healthboard.policies.form_fields import parse_lines
from healthboard.policies.matching import Snapshot, Target, combine
from healthboard.policies.windows import closed, parse_blackout, parse_window

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
#: a day on which the clock there is changed: forward, backward, by half an hour, at midnight, over a whole day
CHANGES = (
    ("Europe/Berlin", date(2026, 3, 29)), ("Europe/Berlin", date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)), ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)), ("Africa/Cairo", date(2026, 4, 24)),
    ("Pacific/Apia", date(2011, 12, 30)), ("UTC", date(2026, 6, 1)),
)  # fmt: skip
changes = st.sampled_from(CHANGES)
clocks = st.integers(0, 1439)
#: what was walked to, by zone and wall clock
KNOWN: dict = {}


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def walked(zone, day, minutes):
    """The first minute (UTC) at which the clock there shows this time of this day, or a later one: by looking."""
    wall = datetime.combine(day, time()) + timedelta(minutes=minutes)
    if (zone, wall) not in KNOWN:
        at = wall.replace(tzinfo=UTC) - timedelta(hours=16)
        while at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) < wall:
            at += MINUTE
        KNOWN[zone, wall] = at
    return KNOWN[zone, wall]


@settings(deadline=None, max_examples=60)
@given(changes, clocks, st.integers(1, 1440), st.sets(st.integers(0, 6), min_size=1), st.integers(-36 * 60, 36 * 60))
def test_a_window_is_open_from_the_first_minute_that_shows_its_begin_to_the_first_that_shows_its_end(
    change, starts, ends, days, away
):
    zone, day = change
    if starts == ends:
        return
    window = windows.Window(tuple(sorted(days)), starts, ends, zone)
    at = datetime.combine(day, time(), UTC) + timedelta(minutes=away)
    expected = False
    for began in (day + DAY * n for n in range(-3, 4)):
        if began.weekday() in days:
            last = began if ends > starts else began + DAY
            expected |= walked(zone, began, starts) <= at < walked(zone, last, ends)
    assert window.is_open(at) is expected
    assert parse_window(str(window)) == window


@pytest.mark.parametrize(
    "text, opens, ends",
    [
        # an hour that is skipped is not waited for, and one that comes twice counts the first time
        ("Sun 02:30-04:00 Europe/Berlin", utc(2026, 3, 29, 1), utc(2026, 3, 29, 2)),
        ("Sat 22:00-02:30 Europe/Berlin", utc(2026, 3, 28, 21), utc(2026, 3, 29, 1)),
        ("Sun 02:10-02:50 Europe/Berlin", utc(2026, 4, 5, 0, 10), utc(2026, 4, 5, 0, 50)),  # the Sunday after
    ],
)
def test_over_the_change_to_summer_time(text, opens, ends):
    window = parse_window(text)
    assert window.opens(utc(2026, 3, 28, 12)) == opens
    assert window.is_open(opens) and window.is_open(ends - MINUTE) and not window.is_open(ends)


def test_over_the_change_back_a_night_is_one_window():
    window = parse_window("Sat 22:00-06:00 Europe/Berlin")
    assert window.opens(utc(2026, 10, 24, 12)) == utc(2026, 10, 24, 20)
    assert all(window.is_open(utc(2026, 10, 24, 20) + MINUTE * n) for n in range(9 * 60))  # an hour more than usual
    assert not window.is_open(utc(2026, 10, 25, 5))


zones = st.sampled_from(sorted({zone for zone, _ in CHANGES}))
texts = st.builds(
    lambda days, span, zone: str(windows.Window(tuple(sorted(days)), *span, zone)),
    st.sets(st.integers(0, 6), min_size=1),
    st.tuples(st.integers(0, 23), st.integers(1, 24)).filter(lambda s: s[0] != s[1]).map(lambda s: (s[0] * 60, s[1] * 60)),
    zones,
)  # fmt: skip
sets = st.lists(texts, max_size=3, unique=True)
frozen = st.lists(
    st.builds(
        lambda day, days, zone: str(parse_blackout(f"{day} to {day + DAY * days} {zone}")),
        st.dates(date(2026, 3, 20), date(2026, 4, 10)), st.integers(0, 9), zones,
    ),
    max_size=2, unique=True,
)  # fmt: skip
moments = st.datetimes(datetime(2026, 3, 20), datetime(2026, 4, 12)).map(lambda at: at.replace(tzinfo=UTC))


@settings(deadline=None, max_examples=60)
@given(sets, frozen, moments)
def test_the_next_opening_is_the_first_moment_at_which_it_is_open(some, blackouts, now):
    values = {"windows": some, "blackouts": blackouts}
    found = closed(values, now)
    if found is None:
        return
    assert found.opens is not None and found.opens > now and closed(values, found.opens) is None
    steps = min(int((found.opens - now) / timedelta(minutes=20)), 200)
    for n in range(steps):
        assert closed(values, now + (found.opens - now) * n / steps) is not None
    assert closed(values, found.opens - timedelta(seconds=1)) is not None


WINDOWS, BLACKOUTS = fields.BY_NAME["windows"], fields.BY_NAME["blackouts"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(sets, frozen), min_size=1, max_size=4), moments, st.randoms())
def test_several_are_open_together_only_while_each_is_in_whatever_order(some, now, random):
    alone = [{"windows": w, "blackouts": b} for w, b in some]

    def merged(values):
        return {
            "windows": most_careful(WINDOWS, [v["windows"] for v in values]),
            "blackouts": most_careful(BLACKOUTS, [v["blackouts"] for v in values]),
        }

    together = merged(alone)
    assert (closed(together, now) is None) == all(closed(one, now) is None for one in alone)
    shuffled = random.sample(alone, len(alone))
    assert merged(shuffled) == together or len(alone) == 1
    by_turns = merged([merged(shuffled[:1]), merged([*shuffled[1:], shuffled[0]])])
    assert (closed(by_turns, now) is None) == (closed(together, now) is None)


def test_a_service_that_may_always_be_touched_does_not_open_the_window_of_its_neighbour():
    policies = [Snapshot("a", {"workload": "a"}, {"windows": ["Sat 00:00-24:00 UTC"]})]
    both = combine(policies, [Target(workload="a"), Target(workload="b")])
    assert both.values["windows"] == ["Sat 00:00-24:00 UTC"]
    policies.append(Snapshot("b", {"workload": "b"}, {"windows": ["Sun 00:00-24:00 UTC"]}))
    never = combine(policies, [Target(workload="a"), Target(workload="b")]).values
    assert never["windows"] == [["Sat 00:00-24:00 UTC"], ["Sun 00:00-24:00 UTC"]]
    found = closed(never, utc(2026, 12, 1))
    assert found.opens is None and "does not open within a year" in found.why


def test_a_window_is_overridden_by_a_more_specific_policy_but_a_blackout_adds_up():
    policies = [
        Snapshot("all", {}, {"windows": ["Sat 00:00-24:00 UTC"], "blackouts": ["2026-12-24 to 2026-12-26 UTC"]}, default=True),
        Snapshot("a", {"workload": "a"}, {"windows": [], "blackouts": ["2026-12-31 to 2026-12-31 UTC"]}),
    ]  # fmt: skip
    found = combine(policies, [Target(workload="a")])
    assert found.values["windows"] == []
    assert found.values["blackouts"] == ["2026-12-24 to 2026-12-26 UTC", "2026-12-31 to 2026-12-31 UTC"]
    assert (found.origin["windows"], found.origin["blackouts"]) == ("a", "a, all")


@pytest.mark.parametrize(
    "kind, text, words",
    [
        ("windows", "at night", "is not a window; write it as in"),
        ("windows", "Mon 22:00-22:00 UTC", "it ends when it starts"),
        ("windows", "Mon 22:61-23:00 UTC", "There is no 22:61 on a clock"),
        ("windows", "Mon 22:00-25:00 UTC", "There is no 25:00"),
        ("windows", "Mon 22:00-06:00", "names no time zone"),
        ("windows", "Mon 22:00-06:00 Europe/Nowhere", "There is no time zone Europe/Nowhere"),
        ("windows", "Mon 22:00-06:00 ../../etc/passwd", "There is no time zone"),
        ("windows", "Someday 22:00-06:00 UTC", "Someday is no day"),
        ("windows", "Mon-Tue-Wed 22:00-06:00 UTC", "is no day"),
        ("windows", "x" * 300, "at most 200 characters"),
        ("blackouts", "2026-12-20 UTC", "is not a blackout; write it as in"),
        ("blackouts", "2026-02-30 to 2026-03-01 UTC", "is out of range"),
        ("blackouts", "2026-12-20 to 2026-12-19 UTC", "ends before it starts"),
        ("blackouts", "2026-12-20 to 2028-12-19 UTC", "at most a year"),
        ("blackouts", "2026-12-20 to 2026-12-21", "names no time zone"),
    ],
)
def test_what_is_no_window_is_refused_in_words(kind, text, words):
    [sentence] = check.problems({kind: [text]})[kind]
    assert words in sentence
    with pytest.raises(ValueError, match=r"^Line 2: "):
        parse_lines(kind, ["", text])


@pytest.mark.parametrize(
    "kind, text, kept",
    [
        ("windows", " mon-fri 22:00 - 6:00  Europe/Berlin", "Mon-Fri 22:00-06:00 Europe/Berlin"),
        ("windows", "sun,Saturday 0:00–24:00 UTC", "Sat-Sun 00:00-24:00 UTC"),
        ("windows", "Fri-Mon 20:00-0:00 UTC", "Mon,Fri-Sun 20:00-24:00 UTC"),
        ("windows", "01:00-05:00 Asia/Tokyo", "daily 01:00-05:00 Asia/Tokyo"),
        ("blackouts", "2026-12-20 to 2027-01-02 UTC", "2026-12-20 00:00 to 2027-01-02 24:00 UTC"),
        ("blackouts", "2026-12-20 9:30 to 2026-12-20 17:00 UTC : big  run", "2026-12-20 09:30 to 2026-12-20 17:00 UTC: big run"),
    ],
)  # fmt: skip
def test_it_is_kept_in_one_spelling(kind, text, kept):
    assert parse_lines(kind, [text, "", "none"]) == [kept]
    assert parse_lines(kind, [kept]) == [kept] and check.problems({kind: [kept]}) == {}


def test_lists_have_bounds_and_no_repeats():
    assert (
        "at most 20" in check.problems({"windows": [f"Mon {n:02d}:00-{n:02d}:30 UTC" for n in range(24)]})["windows"][0]
    )
    twice = ["Mon 01:00-02:00 UTC", "mon 1:00-2:00 UTC"]
    assert "there twice" in check.problems({"windows": twice})["windows"][0]
    assert "list of lines" in check.problems({"blackouts": [5]})["blackouts"][0]
