"""Figures over time: sums of days are the sum of the time, false alarms are what the page says, and scope is kept."""

from __future__ import annotations

import csv
import html
import io
import itertools
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.cases import statistics
from healthboard.cases.models import BY_HAND
from healthboard.people import access
from tests import factories as make


@pytest.fixture
def noon() -> datetime:
    return clock.now().astimezone(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=2)


def _case(on, at, *, sign=60.0, **fields):
    row = make.case(on, opened_at=at, **{"state": "CLOSED", "closed_at": at + timedelta(hours=1), **fields})
    kept = row.evidence.get()
    first = (at - timedelta(seconds=sign)).isoformat()
    row.evidence.update(assessment={**kept.assessment, "primary": {**kept.assessment["primary"], "first": first}})
    return row


def _repaired(case, kind, *, decided=120.0, took=600.0, state="SUCCEEDED"):
    at = case.opened_at + timedelta(seconds=decided)
    repair = make.repair(case.instance, state=state, opened_at=at, closed_at=at + timedelta(seconds=took))
    user = None if kind == "auto" else make.person("operator")
    make.decision(case, user, kind, repair=repair, at=at)
    return repair


@pytest.fixture
def world(home, noon):
    """Six cases of two days in pool train, and one of pool infer."""
    day = timedelta(days=1)
    _repaired(_case(make.instance(home), noon, code="XID_79", resolution="REPAIRED"), "auto", decided=2, took=600)
    _repaired(_case(make.instance(home), noon, code="XID_79", resolution="REPAIRED"), "approve", decided=300, took=1200)
    failed = _case(make.instance(home), noon - day, code="XID_119", resolution="INSTANCE_GONE")
    _repaired(failed, "override", decided=60, took=100, state="FAILED")
    make.decision(_case(make.instance(home), noon - day, code="XID_119", resolution="DISMISSED"),
                  make.person("operator"), "dismiss")  # fmt: skip
    _case(make.instance(home), noon, code="XID_119", resolution="CLEARED")
    by_hand = _case(make.instance(home), noon, code=BY_HAND, resolution="DONE")
    _repaired(by_hand, "approve", decided=0)
    _case(make.instance(make.pool("infer")), noon, code="XID_48", resolution="DISMISSED")
    return home


def _figures(user, noon, pool="", by="day"):
    since, until, by = statistics.span(noon - timedelta(days=3), clock.now(), by, clock.now())
    return statistics.figures(access.seeing(user), since, until, by, pool)


def test_cases_repairs_ends_and_false_alarms_are_counted_by_cause_and_decision(world, noon):
    whole = _figures(make.person("viewer"), noon, "train").whole
    assert (whole.cases, whole.closed, whole.false_alarms) == (6, 6, 2)
    assert dict(whole.repairs) == {"policy": 1, "approved": 1, "overridden": 1, "by_hand": 1}
    assert (whole.ended["SUCCEEDED"], whole.ended["FAILED"]) == (3, 1)
    assert whole.outcomes == {"REPAIRED": 2, "INSTANCE_GONE": 1, "DISMISSED": 1, "CLEARED": 1, "DONE": 1}
    causes = {one.code: (one.cases, one.false_alarms) for one in _figures(make.person("viewer"), noon, "train").causes}
    assert causes == {"XID_119": (3, 2), "XID_79": (2, 0), BY_HAND: (1, 0)}


def test_times_are_medians_and_ninetieth_percentiles_apart_for_policy_and_people(world, noon):
    whole = _figures(make.person("viewer"), noon, "train").whole
    assert whole.spread("detect") == statistics.Spread(5, 60, 60)
    assert whole.spread("decide_policy") == statistics.Spread(1, 2, 2)
    assert whole.spread("decide_person") == statistics.Spread(2, 60, 300)  # a dismissal decides no action
    assert whole.spread("repair") == statistics.Spread(3, 600, 1200)
    assert statistics.Bucket().spread("repair") == statistics.Spread(0, None, None)


@pytest.mark.parametrize("resolution, repair, false", [
    ("DISMISSED", None, 1), ("CLEARED", None, 1), ("CLEARED", "CANCELLED", 1), ("CLEARED", "FAILED", 0),
    ("DISMISSED", "SUCCEEDED", 0), ("INSTANCE_GONE", None, 0), ("REPLACED_BY_ECS", None, 0), ("WITHDRAWN", None, 0),
])  # fmt: skip
def test_a_false_alarm_had_nothing_to_repair_and_was_not_repaired(home, noon, resolution, repair, false):
    case = _case(make.instance(home), noon, resolution=resolution)
    if repair:
        _repaired(case, "approve", state=repair)
    assert _figures(make.person("viewer"), noon).whole.false_alarms == false


def test_what_is_asked_for_by_hand_is_open_or_was_merged_is_no_false_alarm(home, noon):
    _case(make.instance(home), noon, code=BY_HAND, resolution="DISMISSED")
    _case(make.instance(home), noon, state="WAITING", closed_at=None)
    _case(make.instance(home), noon, resolution="MERGED")
    make.case(None, verdict="CORRELATED", state="CLOSED", resolution="CLEARED", opened_at=noon)
    whole = _figures(make.person("viewer"), noon).whole
    assert (whole.cases, whole.closed, whole.false_alarms) == (2, 1, 0)


def test_a_decision_that_was_undone_does_not_say_when_it_was_decided(home, noon):
    case = _case(make.instance(home), noon, resolution="DISMISSED")
    make.decision(case, make.person("operator"), "approve", at=noon + timedelta(seconds=5), undone_at=noon,
                  repair=make.repair(case.instance, state="CANCELLED"))  # fmt: skip
    make.decision(case, make.person("operator"), "override", at=noon + timedelta(seconds=99))
    assert _figures(make.person("viewer"), noon).whole.spread("decide_person") == statistics.Spread(1, 99, 99)


def test_days_and_weeks_are_without_gaps_and_add_up_to_the_whole(world, noon):
    for by in ("day", "week"):
        found = _figures(make.person("viewer"), noon, by=by)
        starts = [bucket.start for bucket in found.buckets]
        assert all(b - a == statistics.STEPS[by] for a, b in itertools.pairwise(starts))
        assert sum(bucket.cases for bucket in found.buckets) == found.whole.cases == 7
        assert sum(sum(b.repairs.values()) for b in found.buckets) == 4
        assert starts[0] <= noon - timedelta(days=3) and (by == "day" or starts[0].weekday() == 0)


def test_a_time_is_whole_days_and_no_longer_than_the_longest():
    now = datetime(2026, 3, 5, 10, 30, tzinfo=UTC)
    assert statistics.span(None, None, "", now) == (
        datetime(2026, 2, 4, tzinfo=UTC),
        datetime(2026, 3, 6, tzinfo=UTC),
        "day",
    )
    since, until, by = statistics.span(datetime(1980, 1, 1, tzinfo=UTC), None, "", now)
    assert until - since <= timedelta(days=statistics.LONGEST + 6) and by == "week"
    since, until, _ = statistics.span(datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC), "day", now)
    assert (since, until) == (datetime(2026, 3, 5, tzinfo=UTC), datetime(2026, 3, 6, tzinfo=UTC))


def test_each_sees_their_own_pools(world, noon):
    assert _figures(make.person("viewer"), noon).whole.cases == 7
    assert _figures(make.person("viewer", pool="infer"), noon).whole.cases == 1
    assert _figures(make.person("viewer", pool="infer"), noon, "train").whole.cases == 0
    assert _figures(make.person("viewer", account=make.account("444455556666")), noon).whole.cases == 0
    assert _figures(make.person(""), noon).whole.cases == 0


def test_however_many_cases_it_takes_the_same_queries(world, noon):
    user = make.person("viewer")

    def count() -> int:
        with CaptureQueriesContext(connection) as seen:
            _figures(user, noon)
        return len([q for q in seen if "clock_timestamp" not in q["sql"]])

    few = count()
    for _ in range(20):
        _repaired(_case(make.instance(world), noon, resolution="REPAIRED"), "auto")
    assert count() == few == 3  # the grants, the cases, the decisions


def _behind(client, text: str) -> dict[str, int]:
    """Code of each cause on the page -> cases in the list that its link leads to."""
    links = re.findall(r'<a href="(/cases/\?[^"]*)"><code>(\w+)</code>', text)
    return {code: len(client.get(f"{html.unescape(where)}&format=json").json()["items"]) for where, code in links}


def test_the_page_says_what_a_false_alarm_is_and_gives_the_same_as_csv_and_json(world, noon):
    from django.test import Client

    client = Client()
    client.force_login(make.person("viewer"))
    on = make.instance(world)
    whole, other = {"code": "XID_79", "instance": None, "pool": world}, {"code": "XID_79", "resolution": "MERGED"}
    for fields in (whole, other):  # neither counts
        _case(on, noon, **{"resolution": "DISMISSED", **fields})
    _case(on, clock.now(), code="XID_79", resolution="DISMISSED")  # after the time that is asked for
    where = f"/statistics/?pool=train&since={noon - timedelta(days=3):%Y-%m-%d}&until={noon:%Y-%m-%d}"
    text = client.get(where).content.decode()
    assert statistics.FALSE_IN_WORDS in text and "33.3 % of those closed" in text
    told = client.get(f"{where}&format=json").json()
    assert told["causes"] and _behind(client, text) == {one["code"]: one["cases"] for one in told["causes"]}
    rows = list(csv.DictReader(io.StringIO(client.get(f"{where}&format=csv").getvalue().decode())))
    assert [int(row["cases"]) for row in rows] == [item["cases"] for item in told["items"]]
    assert sum(int(row["false_alarms"]) for row in rows) == told["false_alarms"] == 2
    assert tuple(rows[0]) == statistics.COLUMNS
    plots = client.get(f"{where}&format=plots").json()
    assert all(len(values) == len(plots["times"]) for metric in plots["metrics"] for values in metric["values"])
    assert sum(plots["metrics"][0]["values"][0]) == 6
    for odd in ("since=x&until=%00&by=year&pool=%00", "since=2999-01-01", "since=1971-01-01", "pool=nowhere"):
        assert client.get(f"/statistics/?{odd}").status_code == 200
    assert b"No case was opened in this time" in client.get("/statistics/?pool=nowhere").content
