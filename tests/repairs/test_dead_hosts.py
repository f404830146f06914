"""A dead host and a task that cannot be stopped: ended without a person only by the policy, with every proof."""

from __future__ import annotations

import pytest

from healthboard.refusals import NotAllowed
from healthboard.repairs.lifecycle import answer
from healthboard.sandbox.entities import Task
from tests import two
from tests.repairs.driver import person
from workers.repair.left import _not_replaced, dead_host, unkillable
from workers.repair.look import tasks_on
from workers.repair.results import Ask, Back, Done, Wait
from workers.repair.run import Run
from workers.repair.steps import leave, replace

DRAIN = "UpdateContainerInstancesState"


@pytest.fixture
def solo(db, drives):
    """Room elsewhere for each task: two tasks of four GPUs on four machines of eight."""
    return drives("solo=template:4")


def busy(drive):
    """A machine with a service's task."""
    world = drive.fleet.world
    for machine in drive.fleet.pool("solo"):
        tasks = [t for t in world.live_tasks(world.container_of[machine.id].id) if t.service == "simulate"]
        if tasks:
            return machine, tasks[0]
    raise AssertionError("no machine is busy")


def standalone(drive, machine, **more):
    world = drive.fleet.world
    with drive.fleet.engine.sandbox.lock:
        return world.add(
            Task(
                id=world.new_hex("task", 32), cluster="gpu", container=world.container_of[machine.id].id, family="once",
                revision=1, group="family:once", started_by="somebody", gpus=[], created_at=world.now(), last="RUNNING",
                started_at=world.now(), **more,
            )
        )  # fmt: skip


def test_a_dead_host_asks_by_default(solo):
    machine, _ = busy(solo)
    solo.inject(machine, "EC2_SYSTEM_IMPAIRED")
    case = solo.opened(machine)
    solo.steps(15, 2)
    case.refresh_from_db()
    assert (case.state, case.mode) == ("WAITING", "ask") and not solo.calls()


def test_a_dead_host_with_every_proof_is_replaced_where_the_policy_says_so(solo):
    solo.policy(dead_host="auto")
    machine, _ = busy(solo)
    solo.inject(machine, "EC2_SYSTEM_IMPAIRED")
    repair = solo.repaired(machine, within=900)
    assert (repair.state, repair.outcome, repair.automatic) == ("SUCCEEDED", "REPLACED", True), solo.said()
    assert "host is dead" in repair.steps.get(name="tasks").note
    assert solo.fleet.container(machine).status == "INACTIVE"
    solo.sound()


def one_standalone(drive, machine, task):
    standalone(drive, machine)


def one_protected(drive, machine, task):
    task.protected_until = drive.fleet.world.now() + 86400


@pytest.mark.parametrize("missing", [one_standalone, one_protected])
def test_a_dead_host_with_one_proof_missing_asks_and_is_not_ended(solo, missing):
    solo.policy(dead_host="auto")
    machine, task = busy(solo)
    missing(solo, machine, task)
    solo.inject(machine, "EC2_SYSTEM_IMPAIRED")
    repair = solo.until(
        lambda: (r := solo.repair(machine)) and r.state == "ASKING" and r.step == "tasks" and r, 900
    )  # fmt: skip
    assert "Not proven" in repair.why_waiting, repair.why_waiting
    assert machine.state == "running" and not solo.calls(machine)["TerminateInstances"]
    with pytest.raises(NotAllowed):
        answer(repair.pk, actor=person("operator"), choice="force_tasks", reason="it must")
    solo.rules()
    two.answer(repair.pk, actor=person("approver"), choice="force_tasks", reason="they are gone")
    assert solo.repaired(machine, within=600).outcome == "REPLACED", solo.said()
    solo.sound()


def test_a_host_whose_check_is_good_is_not_dead_however_long_its_agent_is_away(solo):
    solo.policy(dead_host="auto", drain_timeout_s=600)
    machine, _ = busy(solo)
    solo.one_pass()
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "drain")
    solo.inject(machine, "ECS_AGENT_DISCONNECTED")
    repair = solo.asking(machine, within=900)
    assert repair.step == "tasks" and "drain time-out" in repair.why_waiting
    assert machine.state == "running"


def stuck(drive):
    machine, task = busy(drive)
    drive.inject(machine, "UNKILLABLE_TASK")
    drive.inject(machine, "XID_79", 0)
    return machine, task


def test_a_task_that_cannot_be_stopped_asks_by_default_and_a_persons_word_is_kept(solo):
    machine, _ = stuck(solo)
    repair = solo.until(lambda: (r := solo.repair(machine)) and r.state == "ASKING" and r, 900)
    assert "cannot be stopped" in repair.why_waiting
    assert {c["key"] for c in repair.facts["choices"]} == {"unkillable", "undo"}
    answer(repair.pk, actor=person("operator"), choice="unkillable", reason="it hangs")
    assert solo.repaired(machine, within=300).outcome == "REPLACED", solo.said()
    solo.sound()


def test_a_task_that_cannot_be_stopped_is_given_up_where_the_policy_says_so(solo):
    solo.policy(unkillable="auto")
    machine, _ = stuck(solo)
    repair = solo.repaired(machine, within=900)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REPLACED")
    assert "cannot be stopped" in repair.steps.get(name="tasks").note
    solo.sound()


def proofs_missing(drive, machine, task):
    """What each of the proofs says when it alone is missing, and () once all are there again."""
    row, repair = drive.row(machine), drive.repair(machine)
    repair.settings = {**repair.settings, "dead_host": "auto", "unkillable": "auto"}
    world = drive.fleet.world
    service = world.services["gpu/simulate"]

    def asked() -> list[str]:
        run = Run(repair)
        here = tasks_on(row)
        found = [left for rule in (dead_host, unkillable) if (left := rule(run, here))]
        assert len(found) == 1 and found[0].allowed, found
        return list(found[0].missing)

    assert asked() == []
    extra = standalone(drive, machine, desired="STOPPED", stopping_at=task.stopping_at or world.now() - 3600)
    told = [asked()]
    world.remove(extra)
    task.protected_until = world.now() + 86400
    told.append(asked())
    task.protected_until = None
    drive.rules({"operation": "GetTaskProtection", "do": "half", "times": 1})
    assert "may be protected" in asked()[0]
    drive.rules({"operation": "DescribeServices", "do": "fields", "fields": ["runningCount"], "times": 9})
    assert any("does not tell its counts" in one for one in asked())
    drive.rules()
    service.desired += 40
    told.append(asked())
    service.desired -= 40
    drive.rules({"service": "ecs", "operation": "DescribeTasks", "do": "empty", "times": 9})
    told.append(Run(repair).look.tasks and list(_not_replaced(Run(repair), tasks_on(row))))
    drive.rules()
    assert asked() == []
    return told


def test_a_task_that_cannot_be_stopped_is_given_up_with_every_proof_only(solo):
    machine, task = stuck(solo)
    solo.until(lambda: (r := solo.repair(machine)) and r.state == "ASKING", 900)
    alone, protected, short, thin = proofs_missing(solo, machine, task)
    assert "standalone task" in alone[0] and "is protected" in protected[0] and "elsewhere" in short[0]
    assert "ECS lists 0 of" in thin[0]
    run = Run(solo.repair(machine))
    run.values = {**run.values, "unkillable_margin_s": 10**7}
    assert unkillable(run, tasks_on(solo.row(machine))) is None, "not before its margin is over"


def test_a_host_is_dead_with_every_proof_only(solo):
    solo.policy(dead_host="auto")
    machine, task = busy(solo)
    solo.one_pass()
    solo.inject(machine, "EC2_SYSTEM_IMPAIRED")
    solo.at_step(machine, "tasks", within=900)
    solo.working = False
    solo.until(lambda: dead_host(Run(solo.repair(machine)), tasks_on(solo.row(machine))).proven, 300, 5)
    alone, protected, short, thin = proofs_missing(solo, machine, task)
    assert "standalone task" in alone[0] and "is protected" in protected[0] and "elsewhere" in short[0]
    assert "ECS lists 0 of" in thin[0]
    run = Run(solo.repair(machine))
    run.values = {**run.values, "disconnect_s": 10**7}
    assert dead_host(run, tasks_on(solo.row(machine))) is None, "its agent is not away for long enough"
    machine.state = "stopped"
    found = dead_host(Run(solo.repair(machine)), tasks_on(solo.row(machine)))
    assert found.proven and "is stopped" in found.why


def test_directly_before_a_reboot_it_is_still_drained_and_empty(solo):
    machine, _ = busy(solo)
    solo.one_pass()
    solo.inject(machine, "XID_95", 0)
    solo.at_step(machine, "reboot")
    solo.working = False
    container, world = solo.fleet.container(machine), solo.fleet.world

    def said(**values):
        run = Run(solo.repair(machine))
        run.values = {**run.values, **values}
        return leave.still_empty(run)

    assert said() is None
    container.status = "ACTIVE"
    assert "back to ACTIVE" in said().why, "somebody wants it to serve, though it is empty still"
    container.status = "DRAINING"
    task = standalone(solo, machine)
    assert said().why == "1 tasks are on it again" and isinstance(said(), Wait)
    solo.steps(2, 5)
    assert isinstance(said(drain_timeout_s=60), Ask), "no wait is without an end"
    task.desired, task.stopping_at = "STOPPED", world.now() - 3600
    task.group, task.service = "service:simulate", "simulate"
    assert isinstance(said(), Wait)
    assert said(unkillable="auto") is None, "what counts as gone needs no more waiting"
    task.last, container.connected = "STOPPED", False
    assert said() is None, "its agent said that nothing runs there before it went away"
    Run(solo.repair(machine)).remember(emptied="")
    assert "counts no task, but its agent is away" in said().why


def test_a_standalone_task_is_waited_for_and_then_asked_about(solo):
    solo.policy(drain_timeout_s=600)
    machine = solo.machine("solo")
    task = standalone(solo, machine)
    solo.inject(machine, "XID_79", 0)
    solo.until(lambda: solo.repair(machine), 40)
    repair = solo.asking(machine, within=900)
    assert "drain time-out" in repair.why_waiting and "family:once" in repair.why_waiting
    assert machine.state == "running" and task.last == "RUNNING"
    answer(repair.pk, actor=person("operator"), choice="wait_longer", reason="it ends tonight")
    task.last = task.desired = "STOPPED"
    assert solo.repaired(machine).outcome == "REPLACED"
    solo.sound()


def test_that_ecs_does_not_list_it_for_a_moment_proves_nothing(solo):
    machine, _ = busy(solo)
    solo.one_pass()
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "tasks")
    container = solo.fleet.container(machine)
    hidden = solo.fleet.world.containers.pop(container.id)
    solo.steps(3)
    assert machine.state == "running" and not solo.calls(machine)["TerminateInstances"]
    repair = solo.repair(machine)
    assert repair.step == "tasks"
    solo.fleet.world.containers[hidden.id] = hidden
    assert solo.repaired(machine).outcome == "REPLACED"


def test_a_task_that_comes_back_before_the_end_holds_it_up(solo):
    machine = solo.machine("solo")
    solo.one_pass()
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "terminate")
    task = standalone(solo, machine)
    solo.steps(8)
    assert machine.state == "running" and "tasks are on it again" in solo.repair(machine).why_waiting
    task.last = task.desired = "STOPPED"
    assert solo.repaired(machine).outcome == "REPLACED"


def test_people_give_up_the_tasks_that_they_were_shown_and_none_that_come_later(solo):
    solo.policy(drain_timeout_s=600)
    machine = solo.machine("solo")
    first = standalone(solo, machine)
    solo.one_pass()
    solo.inject(machine, "XID_79", 0)
    repair = solo.asking(machine, within=900)
    two.answer(repair.pk, actor=person("approver"), choice="force_tasks", reason="it hangs")
    kept = solo.repair(machine).facts["given_up"]
    assert len(kept["tasks"]) == 2 and kept["unseen"] == 0, "that one, and the daemon's, which stops last"
    assert any(arn.endswith(first.id) for arn in kept["tasks"])
    solo.at_step(machine, "terminate")
    solo.working = False
    container = solo.fleet.container(machine)

    def said(**facts):
        run = Run(solo.repair(machine))
        run.facts.update(facts)
        return replace.may_end(run), leave.still_empty(run), leave.tasks(run)

    assert said()[:2] == (None, None) and isinstance(said()[2], Done)
    end, restart, again = said(given_up=None)
    assert isinstance(end, Back) and isinstance(restart, Wait), "of an earlier release, which did not keep which"
    assert not isinstance(again, Done)
    solo.rules({"service": "ecs", "operation": "DescribeTasks", "do": "empty", "times": 10**6})
    assert isinstance(said()[0], Back), "what ECS leaves out was given up by nobody"
    solo.rules()
    container.status = "ACTIVE"
    assert all("back to ACTIVE" in one.why for one in said()), "somebody wants it to serve"
    container.status = "DRAINING"
    hidden = solo.fleet.world.containers.pop(container.id)
    assert isinstance(said()[2], Wait), "those by name are not all that may run where ECS does not list it"
    assert isinstance(said(given_up={"unlisted": True})[2], Done)
    solo.fleet.world.containers[hidden.id] = hidden
    later = standalone(solo, machine)
    assert said()[0] == Back("tasks", "3 tasks are on it again")
    solo.working = True
    repair = solo.asking(machine, within=900)
    assert repair.step == "tasks" and machine.state == "running" and not solo.calls(machine)["TerminateInstances"]
    two.answer(repair.pk, actor=person("approver"), choice="force_tasks", reason="that one too")
    assert len(solo.repair(machine).facts["given_up"]["tasks"]) == 3 and later.last == "RUNNING"
    assert solo.repaired(machine).outcome == "REPLACED", solo.said()
    solo.sound()


def test_no_tasks_prove_nothing_where_the_agent_is_away_and_the_machine_runs(solo):
    """ECS may tell of a registration that the agent left behind: the machine may be at work under another."""
    machine = solo.machine("solo")
    solo.one_pass()
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "tasks")
    solo.working = False
    world, container = solo.fleet.world, solo.fleet.container(machine)
    for task in world.live_tasks(container.id):
        task.last = task.desired = "STOPPED"
    container.connected, container.agent_away = False, "left"

    def said(**values):
        run = Run(solo.repair(machine))
        run.values = {**run.values, **values}
        return run, leave._left(run)

    run, waits = said()
    assert (run.look.tasks, run.look.connected, run.look.state) == (0, False, "running")
    assert isinstance(waits, Wait) and not leave.has_left(run)
    run, asks = said(disconnect_s=0)
    assert isinstance(asks, Ask) and "agent is away" in asks.why
    assert {c["key"] for c in asks.choices} == {"again", "force_tasks", "undo"}
    machine.state = "stopped"
    run, left = said()
    assert isinstance(left, Done) and leave.has_left(run), "what is stopped runs nothing"
    machine.state = "running"
    assert not leave.has_left(said()[0]), "it may, once it runs again"
    container.connected = True
    run, left = said()
    assert isinstance(left, Done) and leave.has_left(run)
    container.connected = False
    assert leave.has_left(said()[0]), "this registration was seen empty by its agent, while it was drained"
