"""Before healthboard is removed: what it left in AWS is listed, and taken back by the engine, or by a person's command."""

from __future__ import annotations

import io
import shlex

import pytest
from django.core.management import CommandError, call_command

from healthboard import clock
from healthboard.cases import by_hand, retire
from healthboard.repairs import brakes, lifecycle
from healthboard.repairs.models import Call, Repair, Step, Switch
from tests import factories
from tests.repairs.driver import person


def _retire(*options: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("retire", *options, stdout=out)
    except SystemExit as end:
        return int(end.code), out.getvalue()
    return 0, out.getvalue()


def _drain_by_hand(drive, machine):
    row = drive.row(machine)
    by_hand.ask(row.pk, actor=person("operator"), action="DRAIN", reason="x", seen=by_hand.offer(row, "DRAIN").seen)
    assert drive.repaired(machine, seconds=5).state == "SUCCEEDED"


def _aside(drive):
    """(DRAINING, in Standby) as AWS has it, of machines that run."""
    world = drive.fleet.world
    drained = {i.id for i in world.instances.values() if i.state == "running" and i.id in world.container_of
               and world.container_of[i.id].status == "DRAINING"}  # fmt: skip
    standing = {m for g in world.groups.values() for m, told in g.members.items() if told["state"] != "InService"}
    return drained, standing


@pytest.fixture
def left_behind(db, drives):
    """One machine replaced, one drained by hand, one under repair in Standby, one drained by somebody else."""
    drive = drives("train=group:2,solo=template:3")
    drive.policy(undo_s=1, soak_s=60)
    replaced, drained, others = drive.fleet.pool("solo")
    drive.inject(replaced, "XID_79", 0)
    drive.until(lambda: Repair.objects.filter(irreversible=True).exists(), 400, 4.0)
    person("admin")
    status, said = _retire("--yes", "--as", "admin-one")
    assert status == 1 and "cannot be undone any more" in said and brakes.switch().acting
    assert drive.repaired(replaced, seconds=5).state == "SUCCEEDED"
    _drain_by_hand(drive, drained)
    drive.fleet.drain(others)
    broken = drive.machine("train")
    drive.inject(broken, "XID_79", 0)
    drive.until(lambda: (r := drive.repair(broken)) is not None and r.step == "replacement", 300, 3.0)
    drive.steps(2, 3)
    return drive, drained, broken, others


def test_nothing_of_ours_remains(left_behind):
    drive, drained, broken, others = left_behind
    assert _aside(drive)[0] == {drained.id, broken.id, others.id} and broken.id in _aside(drive)[1]
    made = drive.calls()
    status, said = _retire("--dry-run")
    assert status == 1 and drive.calls() == made and brakes.switch().acting
    assert f"{drained.id} is DRAINING since repair" in said and "can be stopped and undone" in said
    assert others.id not in said, "what somebody else did is theirs"
    for _ in range(40):  # as a person runs it, again and again
        status, said = _retire("--yes", "--as", "admin-one")
        if not [one for one in retire.left() if one.by != retire.PERSON]:
            break
        drive.steps(2, 5)
    assert _aside(drive) == ({others.id}, set()), said
    assert not brakes.switch().acting
    assert drive.group().desired == 2 and len(drive.fleet.pool("train")) == 2
    marked = [line.strip() for line in said.splitlines() if line.strip().startswith("aws ")]
    assert len(marked) == 1 and "delete-tags" in marked[0]
    words = shlex.split(marked[0])
    drive.fleet.ec2.delete_tags(
        Resources=[words[words.index("--resources") + 1]], Tags=[{"Key": words[-1].removeprefix("Key=")}]
    )
    drive.steps(2, 6)
    assert _retire() == (0, "nothing of healthboard's is left in AWS, as far as its database knows\n")
    assert drive.calls()["TerminateInstances"] == 1, "of the repair that was over before"
    assert all("healthboard:repair" not in i.tags for i in drive.fleet.world.instances.values() if i.state == "running")
    drive.sound()


def _left_in_standby() -> Repair:
    """Somebody answered "Leave it as it is"."""
    pool = factories.pool("train")
    machine = factories.instance(pool, group_name="train-asg", group_state="Standby")
    now = clock.now()
    row = Repair.objects.create(
        instance=machine, pool=pool, action="REPLACE", owner="GROUP", state="FAILED", requested_by="x", opened_at=now,
        not_before=now, next_at=now, closed_at=now,
    )  # fmt: skip
    step = Step.objects.create(repair=row, number=1, name="standby", started_at=now)
    Call.objects.create(
        step=step, repair=row, service="autoscaling", operation="EnterStandby", target=machine.instance_id, request={},
        fence=1, intended_at=now, answered_at=now, outcome="ok",
    )  # fmt: skip
    return row


def test_where_the_engine_has_no_way_back_a_person_is_given_the_command(db):
    row = _left_in_standby()
    status, said = _retire()
    assert status == 1 and f"{row.instance} is in Standby since repair {row.pk} (for a person)" in said
    assert f"exit-standby --region {row.instance.region} --auto-scaling-group-name train-asg --instance-ids " in said
    Call.objects.create(
        step=row.steps.get(), repair=row, service="autoscaling", operation="ExitStandby", fence=1, request={},
        target=row.instance.instance_id, intended_at=clock.now(), outcome="ok",
    )  # fmt: skip
    assert _retire()[0] == 0, "who put it into Standby since then is not us"


def test_a_name_in_a_command_is_no_command_of_its_own(db):
    """A group may be called almost anything; the command is there to be pasted into a shell of somebody with rights."""
    name = "train;$(touch${IFS}x)'`id`"
    row = _left_in_standby()
    type(row.instance).objects.update(group_name=name)
    [line] = [line.strip() for line in _retire()[1].splitlines() if line.strip().startswith("aws ")]
    words = shlex.split(line)
    assert words[words.index("--auto-scaling-group-name") + 1] == name and shlex.quote(name) in line


def test_a_machine_that_reads_broken_is_returned_by_nobody_but_a_person(db):
    """One that was drained because of it, by hand or by a repair that failed: no work is put on it unasked."""
    row = _left_in_standby()
    machine = row.instance
    row.calls.update(service="ecs", operation="UpdateContainerInstancesState", request={"status": "DRAINING"})
    told = {
        "ecs_status": "DRAINING",
        "group_state": "",
        "owner": "GROUP",
        "verdict": "HARDWARE",
        "verdict_code": "XID_79",
    }
    type(machine).objects.update(**told)
    [one] = retire.left()
    assert one.by == retire.PERSON and "reads XID_79: end it, or return it as it is" in one.what
    assert "--status ACTIVE" in one.command
    assert not [said for said in retire.take_back(person("admin")) if "return" in said]
    type(machine).objects.update(verdict="HEALTHY")
    assert [one.by for one in retire.left()] == [retire.TELL]


def test_what_holds_what_should_go_on_by_itself_is_told(db):
    row = _left_in_standby()
    Call.objects.all().delete()
    Repair.objects.update(state="UNDOING", closed_at=None, why_waiting="The stop switch was thrown by ada: looking")
    assert "goes on by itself (The stop switch was thrown by ada: looking)" in _retire()[1], row


def test_only_an_admin_retires_it(db, monkeypatch):
    brakes.switch()
    Switch.objects.update(acting=True)
    _left_in_standby()
    monkeypatch.setattr(lifecycle, "ask_stop", lambda *_, **__: pytest.fail("asked by somebody who may not"))
    person("operator")
    with pytest.raises(CommandError, match="admin"):
        _retire("--yes", "--as", "operator-one")
    with pytest.raises(CommandError, match="under whose name"):
        _retire("--yes")
    assert brakes.switch().acting
