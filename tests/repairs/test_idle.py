"""Waiting until a machine is idle: nothing is taken from it meanwhile, and after the longest wait a person is asked."""

from __future__ import annotations

import pytest

from healthboard.repairs import waiting
from healthboard.repairs.lifecycle import answer
from healthboard.repairs.models import Occupancy
from healthboard.repairs.second import waits_for_budget
from tests.repairs.driver import person
from tests.repairs.test_dead_hosts import busy, standalone
from tests.repairs.test_windows import blackout
from workers.repair import idle
from workers.repair.idle import still_running
from workers.repair.look import AwsTrouble
from workers.repair.run import Run
from workers.repair.steps import checkpoint

DRAIN = "UpdateContainerInstancesState"


@pytest.fixture
def solo(db, drives):
    return drives("solo=template:4")


def waits(drive, machine):
    return drive.until(lambda: (r := drive.repair(machine)) and r.why_waiting.startswith("Not idle") and r, 60)


def test_it_waits_without_its_budget_until_the_standalone_task_has_ended(solo):
    machine, service = busy(solo)
    task = standalone(solo, machine)
    solo.policy(wait_for_idle="standalone")
    solo.inject(machine, "XID_79", 0)
    repair = waits(solo, machine)
    assert repair.state == "SCHEDULED" and "job once/somebody" in repair.why_waiting
    [row] = [w for w in waiting.waiting_for(repair.instance, solo.case(machine), repair) if w.kind == "idle"]
    assert "no standalone or protected task" in row.text and "once that has ended" in row.then
    solo.steps(6)
    with solo.fleet.engine.sandbox.lock:
        service.protected_until = solo.fleet.world.now() + 86400
    assert [text for text in still_running(Run(repair)) if text.endswith("is protected")]
    with solo.fleet.engine.sandbox.lock:
        service.protected_until = None
    assert not solo.calls(machine) and not Occupancy.objects.exists()
    with solo.fleet.engine.sandbox.lock:
        solo.fleet.world.remove(task)
    done = solo.repaired(machine)
    assert (done.pk, done.outcome) == (repair.pk, "REPLACED") and done.steps.get(name="idle").note == "idle"
    solo.sound()


def test_after_the_longest_wait_a_person_is_asked_and_may_wait_longer_or_go_on(solo):
    machine, _ = busy(solo)
    standalone(solo, machine)
    solo.policy(wait_for_idle="standalone", idle_wait_s=300, drain_timeout_s=60)
    solo.inject(machine, "XID_79", 0)
    repair = solo.asking(machine)
    assert repair.step == "idle" and "Not idle" in repair.why_waiting and not solo.calls(machine)
    assert [c["key"] for c in repair.facts["choices"]] == ["wait_longer", "not_idle", "undo"]
    answer(repair.pk, actor=person("operator"), choice="wait_longer", reason="it is nearly done")
    assert waits(solo, machine).state == "SCHEDULED"
    repair = solo.asking(machine)
    answer(repair.pk, actor=person("operator"), choice="not_idle", reason="it hangs")
    solo.until(lambda: solo.calls(machine)[DRAIN], 30)
    assert solo.asking(machine).step == "tasks", "the task is not stopped by force"
    solo.sound()


def test_a_job_is_waited_for_where_the_policy_says_job_and_one_that_begins_at_the_last_moment_is_seen(solo):
    solo.one_pass()
    machine, task = busy(solo)
    solo.policy(wait_for_idle="job")
    solo.inject(machine, "XID_79", 0)
    repair = solo.at_step(machine, "drain")
    assert repair.steps.get(name="idle").state == "DONE", "a service's task is no job"
    with solo.fleet.engine.sandbox.lock:
        task.tags["healthboard:job"] = "llm-7"
    repair = waits(solo, machine)
    assert repair.state == "SCHEDULED" and "job llm-7" in repair.why_waiting and not solo.calls(machine)
    with solo.fleet.engine.sandbox.lock:
        task.tags.clear()
    assert solo.repaired(machine).outcome == "REPLACED"


def test_directly_before_the_drain_nobody_is_asked_and_no_earlier_wait_counts(solo):
    solo.one_pass()
    machine, task = busy(solo)
    job(solo, task, "llm-7")
    solo.policy(wait_for_idle="job", idle_wait_s=300)
    solo.inject(machine, "XID_79", 0)
    first = waits(solo, machine).facts["busy_since"]
    job(solo, task, "")
    solo.at_step(machine, "drain")
    solo.working = False
    solo.steps(6, 5)  # longer than the policy waits, at the sandbox's speed
    job(solo, task, "llm-8")
    solo.working = True
    repair = waits(solo, machine)
    assert "job llm-8" in repair.why_waiting and repair.state == "SCHEDULED" and not solo.calls(machine)
    assert solo.asking(machine).step == "idle" and not solo.calls(machine), "once that has lasted long enough as well"
    assert solo.repair(machine).facts["busy_since"] > first
    solo.sound()


def test_a_persons_word_to_go_on_is_about_what_ran_then_and_not_about_what_runs_when_it_begins_days_later(solo):
    solo.one_pass()
    machine, task = busy(solo)
    job(solo, task, "llm-7")
    solo.policy(wait_for_idle="job", idle_wait_s=300)
    solo.inject(machine, "XID_79", 0)
    answer(solo.asking(machine).pk, actor=person("operator"), choice="not_idle", reason="it hangs")
    solo.at_step(machine, "drain")
    solo.policy(blackouts=[blackout()])
    solo.until(lambda: solo.repair(machine).why_waiting.startswith("In a blackout"), 60)
    job(solo, task, "llm-8")
    solo.policy(blackouts=[])
    assert "job llm-8" in waits(solo, machine).why_waiting and not solo.calls(machine)


def test_an_answer_before_anything_was_changed_begins_anew_under_what_holds_then(solo):
    machine = solo.machine("solo")
    solo.policy(wait_for_idle="standalone", idle_wait_s=120)
    standalone(solo, machine)
    solo.inject(machine, "XID_79", 0)
    repair = solo.asking(machine)
    solo.policy(budget_absolute=0)
    answer(repair.pk, actor=person("operator"), choice="not_idle", reason="it hangs")
    told = "Budget of solo: 0 of 0"
    repair = solo.until(lambda: (r := solo.repair(machine)) and r.why_waiting.startswith(told) and r, 30)
    assert repair.state == "SCHEDULED" and waits_for_budget(repair)
    assert repair.facts["not_idle_allowed"] == ["job once/somebody"]
    second = standalone(solo, machine)
    second.started_by = "another"
    solo.policy(budget_absolute=None)
    assert "job once/another" in waits(solo, machine).why_waiting, "the word was about what ran then"
    with solo.fleet.engine.sandbox.lock:
        solo.fleet.world.remove(second)
    solo.policy(mode_hardware="observe")
    done = solo.repaired(machine)
    assert done.state == "CANCELLED" and "the policy now says observe" in done.outcome_why, solo.said()
    assert not solo.calls(machine)
    solo.sound()


def test_what_ecs_leaves_out_is_not_taken_for_idle(solo):
    machine, _ = busy(solo)
    standalone(solo, machine)
    solo.policy(wait_for_idle="standalone")
    solo.rules({"service": "ecs", "operation": "DescribeTasks", "do": "empty", "times": 10**6})
    solo.inject(machine, "XID_79", 0)
    told = "AWS does not answer: ECS lists 0 of "
    repair = solo.until(lambda: (r := solo.repair(machine)) and r.why_waiting.startswith(told) and r, 60)
    with pytest.raises(AwsTrouble, match="ECS lists 0 of"):
        idle.idle(Run(repair))
    with pytest.raises(AwsTrouble, match="ECS lists 0 of"):
        checkpoint._there(Run(repair))
    solo.steps(10)
    assert not solo.calls(machine)
    solo.rules()
    assert "job once/somebody" in waits(solo, machine).why_waiting


def job(drive, task, name):
    with drive.fleet.engine.sandbox.lock:
        task.tags.clear()
        task.tags.update({"healthboard:job": name} if name else {})
