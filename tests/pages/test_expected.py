"""How long a repair will take: the median of its like, and unknown where there is none."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.notices.models import QuietHours
from healthboard.repairs.history import expect
from tests import factories as make


def past(pool, minutes: float, **fields):
    ended = fields.pop("closed_at", make.ago(3600))
    begun = ended - make.timedelta(minutes=minutes)
    return make.repair(
        make.instance(pool),
        **{"state": "SUCCEEDED", "closed_at": ended, "not_before": begun, "opened_at": begun, **fields},
    )


def test_it_is_the_median_of_the_same_action_in_the_same_pool(home):
    for minutes in (10, 12, 50):
        past(home, minutes)
    past(make.pool("infer"), 90)  # another pool
    past(home, 1, action="REBOOT")  # another action
    past(home, 1, state="FAILED")  # no good end
    past(home, 1, closed_at=make.ago(91 * 86400))  # too long ago
    now = make.repair(make.instance(home), not_before=make.ago(60))
    found = expect([now])[now.pk]
    assert (round(found.seconds), found.count, found.late) == (720, 3, False)
    assert 650 < (found.at - clock.now()).total_seconds() < 665


def test_without_any_like_it_the_time_is_unknown_and_one_that_takes_longer_is_late(home, log_in):
    now = make.repair(make.instance(home), not_before=make.ago(3600))
    assert expect([now]) == {}
    client = log_in("viewer")
    for address in ("/repairs/", f"/repairs/{now.pk}/"):
        assert "how long is unknown: none like it has ended well" in client.get(address).content.decode()
    past(home, 12)
    for address in ("/repairs/", f"/repairs/{now.pk}/"):
        assert "longer than the usual 12 min (median of 1 in train)" in client.get(address).content.decode()


def test_what_waits_for_a_window_has_not_begun_and_is_not_late(home, log_in):
    past(home, 14)
    make.repair(make.instance(home), state="SCHEDULED", not_before=make.ago(3600), why_waiting="waits for its window")
    text = log_in("viewer").get("/repairs/").content.decode()
    assert "not begun" in text and "waits for its window" in text and "longer than the usual" not in text


@pytest.mark.parametrize(
    "query, found",
    [("", {0, 1, 2, 3}), ("pool=train", {0, 2}), ("q={1}", {1}), ("by=itself", {1, 3}), ("action=REBOOT", {1}),
     ("pool=train&state=FAILED", {2}), ("since=2020-01-01", {2, 3}), ("since=x&state=x", {0, 1, 2, 3})],
)  # fmt: skip
def test_the_file_holds_what_its_address_asks_for_under_way_too(home, log_in, query, found):
    infer = make.pool("infer")
    rows = [
        make.repair(make.instance(home), automatic=False, requested_by="ann"),
        make.repair(make.instance(infer), action="REBOOT"),
        past(home, 1, state="FAILED", automatic=False, requested_by="bob"),
        past(infer, 1),
    ]
    query = query.format(*(row.instance.instance_id for row in rows))
    items = log_in("viewer").get(f"/repairs/?{query}&format=json").json()["items"]
    assert sorted(item["id"] for item in items) == sorted(rows[n].pk for n in found)


def test_many_repairs_under_way_cost_one_query(home):
    past(home, 10)
    rows = [make.repair(make.instance(home)) for _ in range(5)] + [make.repair(make.instance(make.pool("infer")))]
    with CaptureQueriesContext(connection) as seen:
        found = expect(rows)
    assert len([q for q in seen if "clock_timestamp" not in q["sql"]]) == 1 and len(found) == 5


def test_steps_done_are_shown_in_words(home, log_in):
    repair = make.repair(make.instance(home))
    make.steps(repair, "recheck", "drain", "tasks")
    text = log_in("viewer").get("/repairs/").content.decode()
    assert "Await tasks" in text and "2 of 7" in text


@pytest.mark.parametrize(
    "query, found", [("by=itself", {1}), ("by=ann", {0}), ("since=2999-01-01", set()), ("since=x", {0, 1})]
)
def test_past_repairs_are_filtered_by_whom_and_when(home, log_in, query, found):
    rows = [past(home, 1, automatic=False, requested_by="ann"), past(home, 1)]
    shown = log_in("viewer").get(f"/repairs/?{query}").context["past"]
    assert {row.pk for row in shown} == {rows[n].pk for n in found}


# --- a person's own quiet hours


def test_a_person_keeps_and_ends_the_own_quiet_hours(home, log_in):
    client = log_in("viewer", "ann")
    data = {"starts": "22:00", "ends": "07:00", "zone": "Asia/Kolkata", "critical_through": "on"}
    assert client.post("/quiet/", data).status_code == 303
    row = QuietHours.objects.get()
    assert str(row) == "ann: 22:00 to 07:00 Asia/Kolkata" and row.critical_through
    text = client.get("/quiet/").content.decode()
    assert 'value="22:00"' in text and '<option value="Asia/Kolkata" selected>' in text
    assert client.post("/quiet/", {**data, "user": 1, "starts": "23:30"}).status_code == 303
    assert QuietHours.objects.get().starts.minute == 30
    assert client.post("/quiet/", {"off": "1"}).status_code == 303 and not QuietHours.objects.exists()


@pytest.mark.parametrize("changed", [{"zone": "Mars/Base"}, {"starts": "25:00"}, {"ends": "22:00"}, {"starts": ""}])
def test_bad_quiet_hours_are_said_and_nothing_is_kept(home, log_in, changed):
    data = {"starts": "22:00", "ends": "07:00", "zone": "UTC", **changed}
    answer = log_in("viewer").post("/quiet/", data)
    assert answer.status_code == 400 and b'class="error"' in answer.content and not QuietHours.objects.exists()
