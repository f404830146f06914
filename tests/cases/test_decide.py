"""One `decide()` for all ways in: what it refuses, with which status, and that each refusal is on record."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases import answers, lifecycle
from healthboard.cases.models import Case, Decision
from healthboard.fleet.models import HealthEvent, Instance, Pool
from healthboard.people.actors import POLICY
from healthboard.refusals import AlreadyDecided, Changed, Closed, Held, Invalid, NotAllowed, NotFound
from healthboard.repairs import brakes
from healthboard.repairs.models import Repair, Switch
from tests import factories
from tests.cases import scene
from tests.cases.scene import decided


def refused(case, kind="approve", *, by, error, status, **more):
    with pytest.raises(error) as caught:
        decided(case, kind, by=by, **more)
    assert caught.value.status == status
    assert scene.refusals(case)[-1].endswith(caught.value.message)
    assert not Repair.objects.exists() and not Decision.objects.filter(outcome="DONE").exists()
    return caught.value


def test_an_approval_schedules_the_repair_with_its_undo_time(time, operator):
    case = scene.asked()
    decision = decided(case, by=operator)
    repair = Repair.objects.get()
    assert decision.repair == repair and decision.outcome == "DONE"
    assert (repair.action, repair.requested_by, repair.automatic) == (case.action, "olga", False)
    assert (repair.not_before - repair.opened_at).total_seconds() == 30
    case.refresh_from_db()
    assert case.state == "DECIDED"
    assert AuditRow.objects.filter(case_id=case.pk, verb="case.approve", actor="olga").exists()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("maybe", {}),
        ("override", {"action": "REPLACE"}),
        ("override", {"reason": "because"}),
        ("override", {"reason": "because", "action": "FORMAT"}),
        ("override", {"reason": "because", "action": "RELOCATE_ALL"}),
        ("approve", {"action": "REPLACE"}),
        ("approve", {"allow": ("force_tasks",)}),
        ("approve", {"allow": ("dead_host",)}),
        ("dismiss", {}),
        ("dismiss", {"reason": "   "}),
        ("snooze", {}),
        ("snooze", {"snooze_s": 59}),
        ("snooze", {"snooze_s": 8 * 86400}),
    ],
)
def test_an_incomplete_answer_is_refused(time, operator, kind, more):
    case = scene.asked()
    refused(case, kind, by=operator, error=Invalid, status=422, **more)


def test_an_unknown_case_is_not_found(time, operator):
    with pytest.raises(NotFound):
        answers.decide(99999, actor=operator, kind="approve", plan_version=1, evidence_hash="x")


def test_a_viewer_an_outsider_and_a_machine_may_not_decide(time, viewer):
    case = scene.asked()
    outsider = factories.actor(factories.person("operator", pool="train"))
    nobody = factories.actor(factories.person(""))
    for actor in (viewer, outsider, nobody, POLICY):
        refused(case, by=actor, error=NotAllowed, status=403)


def test_a_revoked_role_counts_at_once(time, operator):
    case = scene.asked()
    operator.user.grants.all().delete()
    refused(case, by=operator, error=NotAllowed, status=403)


def test_a_changed_plan_or_other_evidence_is_refused_with_what_changed(time, operator):
    case = scene.asked()
    refused(case, by=operator, error=Changed, status=409, evidence_hash="0" * 64)
    shown = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash}
    time.turn(5)
    scene.shows(case.instance, "XID_74", 1)
    scene.read(case.instance)
    error = refused(case, by=operator, error=Changed, status=409, **shown)
    assert any("XID_74" in what for what in error.details["changes"])
    assert error.details["plan_version"] > shown["plan_version"]


def test_what_no_reading_has_shown_yet_is_not_carried_out(time, operator, approver, django_capture_on_commit_callbacks):
    scene.policy(approvals=2)
    case = scene.asked()
    decided(case, by=operator)
    time.turn(5)
    scene.shows(case.instance, "XID_74", 1)
    with django_capture_on_commit_callbacks(execute=True):
        error = refused(case, by=approver, error=Changed, status=409)
    assert "XID_74" in error.details["changes"][0]
    due = Instance.objects.get(pk=case.instance_id).evaluate_next_at
    assert due <= clock.now(), "it is read anew at once, so that to look again shows it"
    scene.read(case.instance)
    assert decided(case, by=operator).outcome == "PENDING", "both look at what it reads now"
    assert decided(case, by=approver).repair is not None


def test_what_reads_good_now_is_left_to_the_repair(time, operator):
    case = scene.asked()
    HealthEvent.objects.all().delete()
    assert decided(case, by=operator).repair is not None


def test_a_machine_that_its_group_was_said_to_replace_is_not_replaced_by_us(time, operator):
    """Nor are its tasks counted as gone: the evidence reads as before, what would be done does not."""
    scene.policy(mode_hardware="ask")
    scene.acting()
    on = factories.instance(factories.pool("train", "GROUP"))
    factories.reading(on, "EC2_SYSTEM", "IMPAIRED", since=factories.ago(300))
    case = scene.read(on)
    assert case.plan["watch"] and case.state == "WAITING"
    Pool.objects.update(suspended=["ReplaceUnhealthy"])
    error = refused(case, by=operator, error=Changed, status=409)
    assert error.details["changes"] == [
        "its work cannot be drained any more", "its group does not replace it by itself any more",
    ]  # fmt: skip
    scene.read(on)
    decided(case, by=operator)
    repair = Repair.objects.get()
    assert repair.allowed == ["dead_host"] and not repair.facts.get("watch")


def test_a_new_plan_on_the_same_evidence_is_refused(time, operator):
    case = scene.asked()
    shown = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash}
    lifecycle.write(case, plan_version=case.plan_version + 1)
    refused(case, by=operator, error=Changed, status=409, **shown)


def test_a_second_approval_is_told_who_was_first(time, operator, approver):
    case = scene.asked()
    decided(case, by=operator)
    with pytest.raises(AlreadyDecided) as caught:
        decided(case, by=approver)
    assert "olga" in caught.value.message and Repair.objects.count() == 1


def test_a_closed_case_is_closed(time, operator):
    case = scene.asked()
    decided(case, "dismiss", by=operator, reason="known")
    with pytest.raises(Closed):
        decided(case, by=operator)
    assert Case.objects.get(pk=case.pk).resolution == "DISMISSED"


def test_an_expired_question_must_be_read_again(time, operator):
    case = scene.asked()
    shown = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash}
    time.turn(4 * 3600 + 1)
    from workers.decide import time as passing

    passing.pass_over()
    case.refresh_from_db()
    assert case.expired_at is not None and case.state == "WAITING"
    refused(case, by=operator, error=Changed, status=409, **shown)
    assert not Repair.objects.exists()


def test_a_pause_the_switch_or_a_breaker_refuse_an_approval(time, operator, admin):
    case = scene.asked()
    pause = brakes.pause(actor=admin, scope_kind="pool", scope="solo", reason="move", until=factories.ago(-600))
    refused(case, by=operator, error=Held, status=409)
    brakes.end_pause(pause.pk, admin)
    brakes.stop(operator, "look first")
    refused(case, by=operator, error=Held, status=409)
    brakes.resume(admin, "fine")
    brakes.open_breaker(account=case.account, region=case.region, kind="AWS_ERRORS", scope_kind="place", scope="",
                        why="errors", actor=POLICY)  # fmt: skip
    refused(case, by=operator, error=Held, status=409)


def test_where_acting_is_off_nothing_is_approved(time, operator):
    case = scene.asked()
    Switch.objects.update(acting=False)
    refused(case, by=operator, error=Held, status=409)


def test_terminate_first_takes_an_approver_who_logged_in_lately(time, operator, approver, admin):
    case = scene.asked("XID_119")
    values = {"kind": "override", "action": "REPLACE", "reason": "full", "allow": ("terminate_first",)}
    stale = factories.actor(approver.user, recent=False)
    refused(case, by=stale, error=NotAllowed, status=403, **values)
    assert decided(case, by=operator, **values).outcome == "PENDING", "asked for; it takes a second person"
    refused(case, by=operator, error=AlreadyDecided, status=409, **values)
    for actor in (factories.actor(factories.person("operator")), admin, stale):
        refused(case, by=actor, error=NotAllowed, status=403, **values)
    decided(case, by=approver, **values)
    assert Repair.objects.get().allowed == ["terminate_first"]


def test_one_approval_from_a_group_takes_a_member_of_it(time, operator):
    scene.policy(approver_group="owners")
    case = scene.asked()
    refused(case, by=operator, error=NotAllowed, status=403)
    operator.user.groups.add(Group.objects.create(name="owners"))
    assert decided(case, by=operator).repair is not None


def test_the_last_editor_of_the_policy_is_not_the_second_of_two(time, operator, approver):
    version = scene.policy(approvals=2)
    case = scene.asked()
    decided(case, by=operator)
    type(version).objects.filter(pk=version.pk).update(saved_by=approver.user)
    refused(case, by=approver, error=NotAllowed, status=403)
    type(version).objects.filter(pk=version.pk).update(saved_by=None)
    assert decided(case, by=approver).repair is not None


def test_two_people_must_agree_where_the_policy_says_so(time, operator, approver):
    scene.policy(approvals=2)
    case = scene.asked()
    first = decided(case, by=operator)
    assert first.outcome == "PENDING" and not Repair.objects.exists()
    with pytest.raises(AlreadyDecided):
        decided(case, by=operator)
    second = factories.actor(factories.person("operator"))
    with pytest.raises(NotAllowed):
        decided(case, by=second)
    assert decided(case, by=approver).repair is not None
    assert set(case.decisions.values_list("outcome", flat=True)) == {"DONE"}


def test_a_denial_wins_over_a_waiting_approval(time, operator, approver):
    scene.policy(approvals=2)
    case = scene.asked()
    decided(case, by=operator)
    decided(case, "dismiss", by=approver, reason="no")
    assert not Repair.objects.exists()
    waiting = case.decisions.get(kind="approve")
    assert (waiting.outcome, waiting.outcome_why) == ("REFUSED", "anna decided otherwise")


def test_an_approval_of_an_older_plan_does_not_count_for_the_newer(time, operator, approver):
    scene.policy(approvals=2)
    case = scene.asked()
    decided(case, by=operator)
    time.turn(5)
    scene.shows(case.instance, "XID_74", 1)
    scene.read(case.instance)
    assert decided(case, by=approver).outcome == "PENDING"
    assert not Repair.objects.exists()


def test_an_approver_must_be_of_the_policys_group(time, approver):
    scene.policy(approvals=2, approver_group="night shift")
    case = scene.asked()
    refused(case, by=approver, error=NotAllowed, status=403)
    approver.user.groups.add(Group.objects.create(name="night shift"))
    assert decided(case, by=approver).outcome == "PENDING"


def test_a_diagnostic_needs_no_second_person_and_no_undo_time(time, operator):
    scene.policy(approvals=2)
    case = scene.asked()
    decision = decided(case, "override", by=operator, action="DIAGNOSE", reason="what does it say")
    assert decision.repair.not_before == decision.repair.opened_at


def test_many_are_answered_one_by_one(time, operator):
    cases = [scene.asked() for _ in range(3)]
    rows = [{"case_id": c.pk, "plan_version": c.plan_version, "evidence_hash": c.evidence_hash} for c in cases]
    rows[1]["evidence_hash"] = "stale"
    results = dict(answers.decide_many(rows, actor=operator, kind="approve"))
    assert isinstance(results[cases[1].pk], Changed)
    assert Repair.objects.count() == 2
    with pytest.raises(Invalid):
        answers.decide_many(rows * 20, actor=operator, kind="approve")


def test_a_held_case_is_neither_approved_nor_put_aside(time, operator):
    case = scene.asked()
    factories_group(case)
    for kind, more in (("approve", {}), ("snooze", {"snooze_s": 600}), ("dismiss", {"reason": "no"})):
        refused(case, kind, by=operator, error=Held, status=409, **more)


def factories_group(case):
    from healthboard.cases import groups

    return groups.hold(
        account=case.account, region=case.region, scope=("pool", "solo"), code=case.code, why="many", members=[case]
    )


def test_a_correlated_case_is_released_not_approved(time, operator):
    case = scene.asked()
    group = factories_group(case)
    refused(group, by=operator, error=Held, status=409)


def test_an_undo_gives_the_question_back_and_stays_with_a_person(time, operator):
    scene.policy(mode_ambiguous="auto")
    scene.acting()
    on = scene.machine()
    scene.shows(on)
    case = scene.read(on)
    assert case.state == "DECIDED" and Repair.objects.get().automatic
    answers.undo(case.pk, actor=operator)
    case = scene.read(on)
    assert case.state == "WAITING" and "olga" in case.why_waiting
    assert Repair.objects.get().state == "CANCELLED"
    with pytest.raises(Closed):
        answers.undo(case.pk, actor=operator)
