"""What new evidence, its end, time and breadth do to a case."""

from __future__ import annotations

import pytest

from healthboard.cases import ends
from healthboard.cases.models import Case
from healthboard.cases.states import Resolution
from healthboard.fleet.models import HealthEvent, Interval
from healthboard.refusals import Held, NotAllowed
from healthboard.repairs.models import Breaker, Call, Repair
from tests import factories, two
from tests.cases import scene
from tests.cases.scene import decided
from workers.decide import breadth
from workers.decide import time as passing


def broken(on=None):
    """A machine that EC2 and NVML agree about."""
    scene.acting()
    on = on or scene.machine()
    gpu = factories.gpus(on, 1)[0]
    scene.shows(on, "XID_79", gpu=gpu.uuid)
    scene.lost(on, gpu.uuid)
    return on


def test_a_worse_code_escalates_the_case_in_place(time):
    case = scene.asked()
    on = case.instance
    gpu = factories.gpus(on, 1)[0]
    scene.shows(on, "XID_79", 1, gpu=gpu.uuid)
    scene.lost(on, gpu.uuid)
    again = scene.read(on)
    assert again.pk == case.pk and Case.objects.count() == 1
    assert (again.verdict, again.code) == ("HARDWARE", "XID_79")
    assert again.plan_version > case.plan_version and again.evidence.count() == 2


def test_the_same_evidence_changes_nothing(time):
    case = scene.asked()
    for _ in range(3):
        time.turn(5)
        again = scene.read(case.instance)
    assert (again.plan_version, again.evidence_hash) == (case.plan_version, case.evidence_hash)
    assert again.evidence.count() == 1


def test_what_was_dismissed_does_not_come_back(time, operator):
    case = scene.asked()
    decided(case, "dismiss", by=operator, reason="known driver bug")
    time.turn(60)
    assert scene.read(case.instance).pk == case.pk


def test_a_new_event_after_a_dismissal_opens_a_new_case(time, operator):
    case = scene.asked()
    decided(case, "dismiss", by=operator, reason="known driver bug")
    time.turn(600)
    scene.shows(case.instance, "XID_119", 1)
    again = scene.read(case.instance)
    assert again.pk != case.pk and again.state == "WAITING"


def impaired(on):
    return factories.reading(on, "EC2_INSTANCE", "IMPAIRED", since=factories.ago(300))


def test_a_dismissed_condition_that_ended_and_began_anew_is_asked_again(time, operator):
    scene.acting()
    on = scene.machine()
    row = impaired(on)
    case = scene.read(on)
    assert case.state == "WAITING"
    decided(case, "dismiss", by=operator, reason="we are at it")
    assert scene.read(on).pk == case.pk
    Interval.objects.filter(pk=row.pk).update(until=factories.ago(-60), observations=20)
    time.turn(7200)
    factories.reading(on, "EC2_INSTANCE", "IMPAIRED", since=factories.ago(200))
    type(row.head).objects.filter(pk=row.head_id).update(last_at=factories.ago(1), count=900)
    again = scene.read(on)
    assert again.pk != case.pk and again.state == "WAITING"


def test_a_snooze_ends_by_itself(time, operator):
    case = scene.asked()
    decided(case, "snooze", by=operator, snooze_s=600)
    passing.pass_over()
    assert Case.objects.get().state == "SNOOZED"
    time.turn(601)
    passing.pass_over()
    assert Case.objects.get().state == "WAITING"


def test_a_snooze_may_be_set_anew(time, operator):
    case = scene.asked()
    decided(case, "snooze", by=operator, snooze_s=600)
    decided(case, "snooze", by=operator, snooze_s=6000)
    time.turn(700)
    passing.pass_over()
    assert Case.objects.get().state == "SNOOZED"


def test_a_snooze_wakes_when_it_gets_worse(time, operator):
    case = scene.asked()
    decided(case, "snooze", by=operator, snooze_s=6000)
    scene.policy(mode_hardware="ask")
    broken(case.instance)
    assert scene.read(case.instance).state == "WAITING"


def healthy(on):
    HealthEvent.objects.filter(instance=on).delete()
    for name in ("EC2_SYSTEM", "EC2_INSTANCE"):
        factories.reading(on, name, "OK", since=factories.ago(3000))
    for gpu in factories.gpus(on):
        factories.reading(on, "GPU_STATUS", "ok", channel="node", source="nvml", gpu=gpu.uuid)


def test_cleared_evidence_closes_the_case_after_the_policys_time(time):
    case = scene.asked()
    healthy(case.instance)
    again = scene.read(case.instance)
    assert again.state == "WAITING" and again.clear_since is not None, again.instance.verdict_why
    time.turn(31)
    type(case.instance.heads.first()).objects.update(last_at=factories.ago(1))
    again = scene.read(case.instance)
    assert (again.state, again.resolution) == ("CLOSED", "CLEARED")


def test_what_could_not_be_seen_does_not_count_as_clear(time):
    case = scene.asked()
    healthy(case.instance)
    assert scene.read(case.instance).clear_since is not None
    time.turn(20)
    type(case.instance.heads.first()).objects.update(last_at=factories.ago(4000))  # nothing was told since
    again = scene.read(case.instance)
    assert case.instance.__class__.objects.get().verdict == "UNKNOWN" and again.clear_since is None


def test_a_policy_may_keep_a_cleared_case_open(time):
    scene.policy(auto_resolve=False)
    case = scene.asked()
    healthy(case.instance)
    time.turn(600)
    type(case.instance.heads.first()).objects.update(last_at=factories.ago(1))
    assert scene.read(case.instance).state == "WAITING"


def test_the_policy_decides_a_clear_failure_by_itself(time):
    case = scene.read(broken())
    assert case.state == "DECIDED" and case.decisions.get().kind == "auto"
    assert Repair.objects.get().automatic


def test_one_witness_is_not_enough(time):
    scene.acting()
    on = scene.machine()
    scene.shows(on, "XID_79")
    case = scene.read(on)
    assert (case.state, case.may_act) == ("WAITING", False)
    assert not Repair.objects.exists()


def test_an_ended_machine_closes_its_case(time):
    case = scene.asked()
    type(case.instance).objects.update(gone_at=factories.ago(1), state="terminated")
    assert scene.read(case.instance).resolution == "INSTANCE_GONE"


def storm(count=5, home=None):
    scene.acting()
    home = home or scene.solo()
    machines = [scene.machine(home) for _ in range(max(count, 12))]
    for on in machines[:count]:
        broken(on)
        scene.read(on)
    return machines[:count]


def test_many_alike_become_one_group_case_that_holds_them(time):
    machines = storm()
    assert Repair.objects.filter(state="SCHEDULED").count() == 5
    breadth.look()
    group = Case.objects.get(instance=None)
    assert group.verdict == "CORRELATED" and group.breaker.released_at is None
    assert Case.objects.filter(parent=group, state="HELD").count() == len(machines)
    assert set(Repair.objects.values_list("state", flat=True)) == {"CANCELLED"}
    breadth.look()
    assert Case.objects.filter(instance=None).count() == 1 and Breaker.objects.count() == 1


def test_a_later_member_joins_the_group(time):
    storm()
    breadth.look()
    home = Case.objects.get(instance=None)
    late = scene.machine(scene.solo())
    broken(late)
    assert scene.read(late).parent == home


def test_only_an_admin_releases_and_the_members_become_cases_of_their_own(time, operator, admin):
    machines = storm()
    breadth.look()
    group = Case.objects.get(instance=None)
    with pytest.raises(NotAllowed):
        two.release_case(group.pk, actor=operator, reason="driver rolled back")
    time.turn(60)
    two.release_case(group.pk, actor=admin, reason="driver rolled back")
    group.refresh_from_db()
    assert (group.state, group.resolution) == ("CLOSED", Resolution.RELEASED)
    breadth.look()
    assert Case.objects.filter(instance=None).count() == 1, "the evidence so far is consumed"
    time.turn(2)
    scene.seeing()  # as rounds go on: nothing is decided by itself on what was told a minute ago
    states = {scene.read(on).state for on in machines}
    assert states == {"DECIDED"} and Repair.objects.filter(state="SCHEDULED").count() == 5


def test_only_later_cases_count_again_after_a_release(time, admin):
    storm()
    breadth.look()
    time.turn(60)
    two.release_case(Case.objects.get(instance=None).pk, actor=admin, reason="driver rolled back")
    time.turn(60)
    for _ in range(5):
        on = scene.machine(scene.solo())
        broken(on)
        scene.read(on)
    breadth.look()
    assert Case.objects.filter(instance=None, state="WAITING").count() == 1


def test_a_member_cannot_be_approved_past_its_group(time, operator):
    machines = storm()
    breadth.look()
    case = Case.objects.filter(instance=machines[0]).get()
    with pytest.raises(Held):
        decided(case, by=operator)


def test_three_of_a_scope_below_eight_are_breadth_already(time):
    home = scene.solo()
    machines = [scene.machine(home, zone=f"us-east-1{z}") for z in "abcab"]
    for on in machines[:3]:
        scene.acting()
        broken(on)
        scene.read(on)
    breadth.look()
    assert Case.objects.filter(state="HELD").count() == 3


def test_a_launch_of_ours_that_an_undo_ended_gets_no_case(time):
    scene.acting()
    surplus = scene.machine()
    undone = factories.repair(scene.machine(surplus.pool), state="CANCELLED", replacement=surplus)
    factories.call(factories.steps(undone, "undo_launch")[0], "TerminateInstances", target=surplus.instance_id)
    scene.shows(surplus, "XID_79", seconds=1)
    assert scene.read(surplus) is None


@pytest.mark.parametrize("told", [None, {"service": "workload"}, {"outcome": "AccessDeniedException"}])
def test_what_our_own_repairs_make_machines_show_is_no_common_cause(time, told):
    """Three reboots at once look impaired to EC2; without them the same would be breadth."""
    home = scene.solo()
    machines = [scene.machine(home, zone=f"us-east-1{z}") for z in "abcab"]
    scene.acting()
    for on, code in zip(machines[:3], ("XID_79", "XID_95", "XID_62"), strict=True):
        gpu = factories.gpus(on, 1)[0]
        scene.shows(on, code, gpu=gpu.uuid)
        scene.lost(on, gpu.uuid)
        scene.read(on)
    own = {f["code"] for case in Case.objects.all() for f in case.evidence.get().assessment["findings"]}
    assert Repair.objects.filter(state="SCHEDULED").count() == 3 and "EC2_INSTANCE_IMPAIRED" not in own
    time.turn(1)
    for repair in Repair.objects.all():
        factories.call(factories.steps(repair, "reboot")[0], "RebootInstances")
    time.turn(20)
    for on in machines[:3]:
        factories.reading(on, "EC2_INSTANCE", "IMPAIRED", since=factories.ago(15))
        assert "EC2_INSTANCE_IMPAIRED" in scene.read(on).codes
    breadth.look()
    assert not Case.objects.filter(instance=None).exists()
    # had nothing been done to them: no call, only one to the workload, or one that AWS refused
    Call.objects.update(**told) if told else Call.objects.all().delete()
    breadth.look()
    assert Case.objects.get(instance=None).code == "EC2_INSTANCE_IMPAIRED"


def test_the_end_of_a_repair_is_told_once(time, operator):
    case = scene.asked()
    decided(case, by=operator)
    repair = Repair.objects.get()
    from healthboard.people.actors import WORKER
    from healthboard.repairs import lifecycle as repairs
    from healthboard.repairs.states import State

    repairs.finish(repair, State.FAILED, "NO_ROOM", "full")
    for _ in range(2):
        ends.carry_back(repair)
    case.refresh_from_db()
    assert (case.state, case.tries, case.why_waiting) == ("WAITING", 1, "full")
    assert WORKER.name == "healthboard:worker"


def test_a_machine_that_its_repair_ended_gets_no_second_case(time, operator):
    """Its agent goes and its checks fall silent before the collectors miss it: that is its end, not a new fault."""
    from healthboard.repairs import lifecycle as repairs
    from healthboard.repairs.states import State

    case = scene.asked()
    decided(case, by=operator)
    assert repairs.start(Repair.objects.get(), "recheck") is None
    repairs.finish(Repair.objects.get(), State.SUCCEEDED, "REPLACED", "a new machine serves in its place")
    ends.carry_back(Repair.objects.get())
    scene.shows(case.instance, "XID_79", seconds=1)
    assert scene.read(case.instance).pk == case.pk
    assert Case.objects.get().resolution == "REPAIRED"
