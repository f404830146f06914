"""Observing is a rehearsal: noted once, never in the way, and compared with what people did."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard.cases import outcomes, ready
from healthboard.cases.models import Case, WouldHave
from healthboard.people import access
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.repairs.models import Repair, Switch
from tests import factories
from tests.cases import scene

pytestmark = pytest.mark.django_db

OBSERVED = {"codes": {"XID_119": {"mode": "observe", "action": "REBOOT"}}}


def observed(home=None, **fields):
    scene.acting()
    on = scene.machine(home, **fields)
    scene.shows(on)
    case = scene.read(on)
    assert case.state == "OBSERVED" and not Repair.objects.filter(instance=on).exists()
    return case


def rehearsal(user=None, **more):
    see = access.seeing(user or factories.person("viewer"))
    return ready.of(see, **{"days": 30, "acting": True, **more})


def row(**more):
    (found,) = rehearsal(**more).rows
    return found


def test_what_a_code_in_observe_would_have_done_is_noted_once(time):
    scene.policy(**OBSERVED)
    case = observed()
    for _ in range(3):
        time.turn(30)
        scene.read(case.instance)
    would = WouldHave.objects.get()
    assert (would.case, would.held_by, would.mode, would.action) == (case, "policy", "auto", "REBOOT")
    assert (would.code, would.gpus, would.at) == ("XID_119", 8, case.opened_at)
    assert "XID_119 is set to auto" in would.why and "XID_119 is set to observe" in would.observed
    with pytest.raises(TypeError, match="never changed"):
        would.save()


def test_a_changed_answer_is_noted_anew(time):
    scene.policy(**OBSERVED)
    case = observed()
    default = Policy.objects.get()
    data = {**default.current.data, "settings": {"codes": {"XID_119": {"mode": "observe", "action": "REPLACE"}}}}
    default.current = PolicyVersion.objects.create(policy=default, number=2, data=data, saved_at=time.now)
    default.save()
    time.turn(30)
    scene.read(case.instance)
    assert list(WouldHave.objects.order_by("pk").values_list("action", flat=True)) == ["REBOOT", "REPLACE"]
    assert row().actions == {"REBOOT": 1}  # of each case the first counts


def test_a_verdict_in_observe_asks_where_switched_on_it_would_still_ask(time):
    scene.policy(mode_hardware="observe", mode_ambiguous="observe")
    scene.acting()
    on = scene.machine()
    scene.lost(on, factories.gpus(on, 1)[0].uuid, seconds=5)
    scene.read(on)
    assert [(w.mode, w.action) for w in WouldHave.objects.all()] == [("ask", "REPLACE")]  # one witness is none
    assert (row().repairs, row().asked) == (0, 1)
    scene.shows(on, "XID_79")
    time.turn(30)
    scene.read(on)
    assert [(w.mode, w.action) for w in WouldHave.objects.order_by("pk")] == [("ask", "REPLACE"), ("auto", "REPLACE")]
    assert (row().repairs, row().asked) == (1, 0)


def test_a_fleet_that_only_observes_notes_what_its_policies_would_have_done(time):
    scene.policy(codes={"XID_119": {"mode": "auto", "action": "REBOOT"}})
    Switch.objects.create(acting=False, changed_at=time.now, changed_by="test")
    on = scene.machine()
    scene.shows(on)
    scene.read(on)
    would = WouldHave.objects.get()
    assert (would.held_by, would.action, would.observed) == ("fleet", "REBOOT", "acting is switched off")


def test_nothing_is_noted_of_what_acts_asks_or_may_never_be_touched(time):
    scene.policy(**OBSERVED)
    scene.asked("XID_120")
    observed(owner="BATCH")
    assert not WouldHave.objects.exists()


def test_hours_of_false_alarms_are_those_of_repairs_that_the_person_sees(time):
    scene.policy(**OBSERVED)
    alarm = observed()
    Case.objects.filter(pk=alarm.pk).update(state="CLOSED", resolution="CLEARED", closed_at=time.now)
    mine, other = alarm.instance, factories.instance(factories.pool("other"))
    for on, hours in ((mine, 1), (other, 5)):
        began = time.now - timedelta(hours=hours)
        factories.repair(on, action="REBOOT", state="SUCCEEDED", opened_at=began, closed_at=time.now)
    assert row().wasted_h == pytest.approx(8 * 3)
    assert row(user=factories.person("viewer", pool=mine.pool.name)).wasted_h == pytest.approx(8 * 1)


def test_a_policy_of_another_pool_is_not_named(time, client):
    for name in ("train", "secret"):
        factories.pool(name)
    numbers = {name: Policy.objects.create(name=f"policy of {name}", pool=name).pk for name in ("train", "secret")}

    def heading(name):
        answer = client.get("/ready/", {"policy": numbers[name]})
        return answer.context["policy"], f"policy of {name}" in answer.content.decode()

    client.force_login(factories.person("viewer", "wide"))
    assert [heading(name)[1] for name in numbers] == [True, True]
    client.force_login(factories.person("viewer", "narrow", pool="train"))
    assert heading("train")[1] and heading("secret") == (None, False)


def test_what_people_did_is_counted_beside_it(time, operator):
    scene.policy(**OBSERVED)
    same, other, alarm, cleared, open_ = [observed() for _ in range(5)]
    time.turn(3600)
    scene.decided(same, "override", action="REBOOT", reason="a reboot helps", by=operator)
    scene.decided(other, "override", action="REPLACE", reason="it came back", by=operator)
    scene.decided(alarm, "dismiss", reason="a driver bug", by=operator)
    Case.objects.filter(pk=cleared.pk).update(state="CLOSED", resolution="CLEARED", closed_at=time.now)
    found = row()
    assert (found.policy, found.code, found.repairs) == ("for this test", "XID_119", 5)
    assert (found.same, found.other, found.alarms, found.open, found.known) == (1, 1, 2, 1, 4)
    assert found.waited_h == pytest.approx(2 * 8)  # eight GPUs each, for an hour
    assert found.wasted_h > 0 and set(found.cases) == {alarm.pk, cleared.pk}
    assert (found.verdict, open_.closed_at) == ("wait", None)


def test_a_machine_that_was_ended_or_started_anew_outside_was_no_false_alarm(time):
    scene.policy(**OBSERVED)
    gone, rebooted = observed(), observed()
    time.turn(1800)
    Case.objects.filter(pk=gone.pk).update(state="CLOSED", resolution="INSTANCE_GONE", closed_at=time.now)
    Case.objects.filter(pk=rebooted.pk).update(state="CLOSED", resolution="CLEARED", closed_at=time.now)
    type(rebooted.instance).objects.filter(pk=rebooted.instance_id).update(booted_at=time.now)
    found = row()
    assert (found.ended, found.alarms, found.waited_h) == (2, 0, pytest.approx(8.0))


def test_only_what_the_person_sees_and_one_policy_where_it_is_asked_for(time):
    scene.policy(**OBSERVED)
    observed()
    observed(factories.pool("other", "TEMPLATE"))
    assert row().repairs == 2
    assert row(user=factories.person("viewer", pool="other")).repairs == 1
    assert row(policy=Policy.objects.get().pk).repairs == 2
    assert rehearsal(policy=999).rows == []
    time.turn(8 * 86400)
    assert rehearsal(days=7).rows == [] and row().repairs == 2


@pytest.mark.parametrize(
    "good, of, said",
    [(16, 16, "ready"), (15, 15, "wait"), (0, 8, "not"), (38, 40, "ready"), (30, 32, "wait"), (0, 0, "wait")],
)
def test_ready_takes_enough_cases_that_were_rightly_found(good, of, said):
    found = ready.Row("policy", "p", 1, "XID_119", same=good, alarms=of - good)
    assert found.verdict == said
    low, high = outcomes.interval(good, of)
    assert 0 <= low <= high <= 1 and (not of or low <= good / of <= high)
    assert (found.missing == 0) == (said == "ready")
