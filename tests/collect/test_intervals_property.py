"""Whatever is told and when: the intervals are the history of what was told, each round counted once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from healthboard.diagnosis.signals import Reading
from healthboard.fleet import heads, record
from healthboard.fleet.models import Head, Interval
from tests import factories

START = datetime(2026, 11, 1, tzinfo=UTC)
ROUNDS = st.lists(
    st.tuples(st.sampled_from([1, 5, 20, 29, 31, 600]), st.sampled_from(["OK", "IMPAIRED", "INSUFFICIENT_DATA", None])),
    min_size=1,
    max_size=12,
)


@pytest.mark.django_db
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=ROUNDS)
def test_intervals_tell_the_history_of_the_rounds(db, rounds):
    one, at, times = factories.instance(), START, []
    for seconds, value in rounds:
        at += timedelta(seconds=seconds)
        told = [] if value is None else [Reading("EC2_SYSTEM", value, "ec2", at, at)]
        record.record(one, "ec2", at, told, [])
        times.append((at, value))
    head = Head.objects.get(instance=one)
    assert (head.count, head.last_at) == (len(rounds), at)
    rows = list(Interval.objects.filter(instance=one, name="EC2_SYSTEM").order_by("since"))
    spans = [
        (r.since, r.until or head.last_at, r.value, r.observations or head.count - r.first_count + 1) for r in rows
    ]
    for moment, value in times:  # each round is told by exactly one interval, with its value
        holding = [held for since, until, held, _ in spans if since <= moment <= until]
        assert holding == ([] if value is None else [value])
    assert sum(seen for *_, seen in spans) == sum(value is not None for _, value in times)
    for earlier, later in pairwise(spans):
        assert earlier[1] < later[0]
    limit = heads.gap_after("ec2")
    silences = [(a, b) for (a, _), (b, _) in pairwise(times) if b - a > limit]
    gaps = Interval.objects.filter(instance=one, name="GAP").order_by("since").values_list("since", flat=True)
    assert list(gaps) == [a for a, _ in silences]
    for since, until, _, _ in spans:  # nothing is claimed of a silence
        assert not any(since <= a and until >= b for a, b in silences)
