"""What a time-out counts: the time in which something could have come, not the time in which nobody could look."""

from __future__ import annotations

import pytest
from django.db import transaction

from healthboard import clock
from healthboard.fleet import aws_answers
from healthboard.fleet.models import Source
from healthboard.people.actors import POLICY
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Repair
from tests import factories
from tests.cases import scene
from workers.repair import engine, turns
from workers.repair import run as running
from workers.repair.look import AwsTrouble, Look
from workers.repair.results import Ask, Done, Wait
from workers.repair.run import Run
from workers.repair.steps import leave, reboot, replace, undo
from workers.repair.steps.leave import TRIES as TRIES_OF_A_CALL
from workers.repair.stuck import TRIES, stuck
from workers.verify import carry, check

DRAIN, TRAIN = "UpdateContainerInstancesState", {"AutoScalingGroupName": "train-asg", "DesiredCapacity": 3}

pytestmark = pytest.mark.django_db


@pytest.fixture
def time(db):
    with scene.at() as turned:
        yield turned


def under_way(step: str, action: str = "REBOOT") -> Run:
    """A claimed repair at that step."""
    scene.acting()
    machine = scene.machine()
    with transaction.atomic():
        row = lifecycle.open_repair(instance=machine, action=action, actor=POLICY, values={}, not_before=clock.now())
    held = lifecycle.claim(row.pk, "host:1")
    assert lifecycle.start(held, step) is None
    return Run(held)


def test_while_aws_cannot_be_asked_no_time_out_runs(time):
    run = under_way("replacement")
    time.turn(50)
    run.stands()
    time.turn(5000)
    run.stands()
    assert run.in_step_for().total_seconds() == 50
    later = Run(run.repair)  # another claim, when AWS answers again
    assert later.in_step_for().total_seconds() == 50 and not later.late("launch_timeout_s", 900)
    later.goes_on()
    time.turn(1000)
    assert later.in_step_for().total_seconds() == 1050 and later.late("launch_timeout_s", 900)
    lifecycle.next_step(run.repair, "tasks")
    assert Run(run.repair).in_step_for().total_seconds() == 0, "each step has its own time"
    later.goes_on()  # nothing is counted twice


def test_what_cannot_be_seen_is_no_failed_verification(time):
    scene.seeing()
    run = under_way("verify")
    run.__dict__["look"] = Look(state="running")  # its agent is not back
    time.turn(7200)
    waits = check.verify(run)
    assert isinstance(waits, Wait) and "is blind" in waits.why
    Source.objects.all().delete()
    scene.seeing()
    asked = check.verify(run)
    assert isinstance(asked, Ask) and "its agent is away" in asked.why


def test_no_step_waits_without_an_end(time):
    scene.seeing()
    run = under_way("terminate", "REPLACE")
    waits = Wait(5, "shutting down")
    time.turn(clock.scaled(45 * 60 + 180).total_seconds())
    assert stuck(run, waits) is None, "its sources are blind"
    Source.objects.all().delete()
    scene.seeing()
    assert stuck(run, waits) is None, "still within"
    time.turn(1)
    asks = stuck(run, waits)
    assert isinstance(asks, Ask) and asks.why == "Terminate does not come to its end: shutting down."
    assert {c["key"] for c in asks.choices} == {"again", "undo"}
    run.repair.irreversible = True
    assert {c["key"] for c in stuck(run, waits).choices} == {"again"}
    assert stuck(run, Done("terminated")) is None
    run.values = {**run.values, "soak_s": 86400}
    assert stuck(run, waits) is None, "a long soak is no end that is missing"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            AwsTrouble("DescribeInstances: UnauthorizedOperation"),
            "AWS does not answer: DescribeInstances: Unauthorized",
        ),
        (ValueError("a fault of ours"), "internal error in drain: ValueError: a fault of ours"),
    ],
)
def test_trouble_that_lasts_asks_a_person(time, monkeypatch, error, said):
    longest = clock.scaled(45 * 60 + 180).total_seconds()
    run = under_way("drain")
    lifecycle.free_leases("host:1")
    operator = factories.actor(factories.person("operator"))

    def fails(*_):
        raise error

    def after(seconds: float, *, sees: bool = True) -> Repair:
        time.turn(seconds)
        Source.objects.all().delete()
        if sees:
            scene.seeing()
        Repair.objects.update(next_at=clock.now())
        engine.advance(run.repair.pk)
        return Repair.objects.get()

    monkeypatch.setattr(running, "look_at", fails)
    assert after(0).state == "RUNNING" and said in Repair.objects.get().why_waiting
    assert after(longest).state == "RUNNING", "still within"
    assert after(1, sees=False).state == "RUNNING", "a blind source has a breaker of its own"
    after(0)
    aws_answers.note(run.instance.account, run.instance.region, good=1, bad=1, error="it fails for everybody")
    assert after(longest + 1).state == "RUNNING", "so has AWS that fails for the whole place"
    after(1000)
    assert after(longest).state == "RUNNING", "counted anew"
    asks = after(1)
    assert asks.state == "ASKING" and f"Drain does not come to its end: {said}" in asks.why_waiting
    assert {c["key"] for c in asks.facts["choices"]} == {"again", "undo"}
    factories.call(run.step, "UpdateContainerInstancesState")  # one that has changed nothing begins anew instead
    lifecycle.answer(asks.pk, actor=operator, choice="again", reason="the permission is there now")
    assert after(1).state == "RUNNING", "counted anew after an answer"
    lifecycle.ask_stop(asks.pk, actor=operator)
    assert after(1).state == "UNDOING"
    asks = after(longest + 1)
    assert asks.state == "ASKING" and {c["key"] for c in asks.facts["choices"]} == {"again", "leave"}
    lifecycle.answer(asks.pk, actor=operator, choice="leave", reason="I look after it")
    assert (after(1).state, Repair.objects.get().outcome) == ("FAILED", "LEFT")


def test_a_passing_trouble_does_not_count_toward_a_later_one(time, monkeypatch):
    run = under_way("drain")
    lifecycle.free_leases("host:1")
    looks = [AwsTrouble("DescribeInstances: Throttling"), None, AwsTrouble("DescribeInstances: Throttling")]

    def looked(*_):
        if (error := looks.pop(0)) is not None:
            raise error
        return Look(state="running", paused_by="instance")

    monkeypatch.setattr(running, "look_at", looked)
    for seconds in (0, 1000, 3600):
        time.turn(seconds)
        Source.objects.all().delete()
        scene.seeing()
        Repair.objects.update(next_at=clock.now())
        engine.advance(run.repair.pk)
    assert not looks and Repair.objects.get().state == "RUNNING"


def test_a_stop_is_repeated_only_under_its_guard(time):
    scene.seeing()
    run = under_way("stop", "RELOCATE")
    scene.shows(run.instance, "XID_79")
    request = {"InstanceIds": [run.instance.instance_id]}
    factories.call(run.step, "StopInstances", "unknown", service="ec2", request=request)
    time.turn(120)
    run.__dict__["look"] = Look(state="running", container={"status": "ACTIVE", "runningTasksCount": 1})
    waits = reboot.stop(run)
    assert isinstance(waits, Wait) and "is blind" in waits.why
    Source.objects.all().delete()
    scene.seeing()
    asks = reboot.stop(run)
    assert isinstance(asks, Ask) and "Somebody set it back to ACTIVE" in asks.why
    assert run.repair.calls.count() == 1


@pytest.mark.parametrize(
    ("step", "operation", "shown", "does"),
    [
        ("drain", DRAIN, Look(state="running", container={"status": "ACTIVE"}), leave.drain),
        ("standby", "EnterStandby", Look(state="running", lifecycle="InService", group=TRAIN), leave.standby),
        ("stop", "StopInstances", Look(state="running"), reboot.stop),
        ("start", "StartInstances", Look(state="stopped"), reboot.start),
        ("rejoin", "ExitStandby", Look(state="running", lifecycle="Standby", group=TRAIN), reboot.rejoin),
        ("activate", DRAIN, Look(state="running", container={"status": "DRAINING"}), reboot.activate),
        ("detach", "DetachInstances", Look(state="running", lifecycle="Standby", group=TRAIN), replace.detach),
        ("terminate", "TerminateInstances", Look(state="running"), replace.terminate),
        ("deregister", "DeregisterContainerInstance", Look(state="terminated", container={}), replace.deregister),
        ("undo_standby", "ExitStandby", Look(state="running", lifecycle="Standby", group=TRAIN), undo.undo_standby),
        ("undo_drain", DRAIN, Look(state="running", container={"status": "DRAINING"}), undo.undo_drain),
    ],
)
def test_after_a_persons_try_again_a_step_has_all_its_tries_once_more(time, monkeypatch, step, operation, shown, does):
    """Also where an earlier step, or the one before that word, had used them up."""
    monkeypatch.setattr(replace, "may_end", lambda run: None)
    for module in (reboot, replace):
        monkeypatch.setattr(module, "still_bad", lambda run: None)
    monkeypatch.setattr(reboot, "still_empty", lambda run: None)
    monkeypatch.setattr(replace, "_protected", lambda run: None)
    run = under_way(step, "REPLACE")
    sent = []
    monkeypatch.setattr(run, "change", lambda service, called, *_, **__: sent.append(called) or ("ok", {}))
    status = "ACTIVE" if step in ("activate", "undo_drain") else "DRAINING"
    request = {**leave._state(run, status), "InstanceIds": [run.instance.instance_id]}
    if step.startswith("undo_"):
        earlier = {"request": leave._state(run, "DRAINING"), "service": "ecs"}
        factories.call(run.step, "EnterStandby" if "standby" in step else DRAIN, **earlier)
    run.__dict__["look"] = shown

    def tried_out() -> None:
        for _ in range(TRIES_OF_A_CALL):
            assert not isinstance(does(run), Ask)
            factories.call(run.step, operation, "unknown", request=request)
            time.turn(120)
        assert isinstance(does(run), Ask) and sent == [operation] * TRIES_OF_A_CALL

    tried_out()
    sent.clear()
    turns.answered(run, "again")
    run.forget()
    run.__dict__["look"] = shown
    tried_out()


@pytest.mark.parametrize("outcome", ["not sent", "OperationNotPermitted", "Throttling"])
def test_what_was_not_done_leaves_the_repair_as_reversible_as_it_was(time, outcome):
    run = under_way("terminate", "REPLACE")
    intent = {"service": "ec2", "operation": "TerminateInstances", "target": run.instance.instance_id, "request": {}}
    call = lifecycle.intend(run.repair, irreversible=True, **intent)
    assert Repair.objects.get().irreversible and run.repair.irreversible
    lifecycle.answered(run.repair, call, outcome)
    assert not Repair.objects.get().irreversible and not run.repair.irreversible
    person = factories.actor(factories.person("operator"))
    lifecycle.ask_stop(run.repair.pk, actor=person)  # not too late
    assert Repair.objects.get().stop_asked_by == person.name


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_what_may_have_been_done_stays_irreversible_also_after_a_later_refusal(time, outcome):
    run = under_way("terminate", "REPLACE")
    intent = {"service": "ec2", "operation": "TerminateInstances", "target": run.instance.instance_id, "request": {}}
    lifecycle.answered(run.repair, lifecycle.intend(run.repair, irreversible=True, **intent), outcome)
    lifecycle.answered(run.repair, lifecycle.intend(run.repair, irreversible=True, **intent), "Throttling")
    assert Repair.objects.get().irreversible


def test_a_repair_that_cannot_be_begun_for_a_fault_of_ours_ends_and_its_case_asks(time, monkeypatch):
    scene.acting()
    on = scene.machine()
    gpu = factories.gpus(on, 1)[0]
    scene.shows(on, "XID_79", gpu=gpu.uuid)
    scene.lost(on, gpu.uuid)
    scene.seeing()
    case = scene.read(on)
    repair = Repair.objects.get()
    broken = True

    def begin(run):
        if broken:
            raise RuntimeError("no such column")
        return Wait(5, "waits for the window")

    monkeypatch.setattr(engine, "_may_start", begin)

    def passes(count: int) -> None:
        for _ in range(count):
            time.turn(120)
            engine.advance(repair.pk)
        repair.refresh_from_db()

    passes(TRIES - 1)
    assert repair.state == "SCHEDULED" and "internal error in the start: RuntimeError" in repair.why_waiting
    broken = False
    passes(1)  # a pass that comes to its end: what comes later is counted anew
    broken = True
    passes(TRIES - 1)
    assert repair.state == "SCHEDULED"
    passes(1)
    assert (repair.state, repair.outcome) == ("FAILED", "INTERNAL_ERROR") and not repair.calls.exists()
    assert "no such column" in repair.outcome_why and "nothing was changed" in repair.outcome_why
    carry.sweep()
    case.refresh_from_db()
    assert case.state == "WAITING" and "no such column" in case.why_waiting
    scene.seeing()
    again = scene.read(on)
    assert again.expires_at is not None and Repair.objects.count() == 1, "a person is asked, nothing begins anew"


def test_the_ladder_climbs_to_another_host_by_a_persons_word_only(time):
    scene.seeing()
    run = under_way("verify")
    Repair.objects.filter(pk=run.repair.pk).update(settings={"ladder": ["REBOOT", "RELOCATE"]}, owner="PLAIN")
    run.repair.refresh_from_db()
    run = Run(run.repair)
    gpu = factories.gpus(run.instance, 1)[0]
    scene.shows(run.instance, "XID_79", gpu=gpu.uuid)
    scene.lost(run.instance, gpu.uuid)
    assert run.reading.assessment.verdict == "HARDWARE" and run.repair.automatic
    engine.climb(run, "the fault is still there")
    run.repair.refresh_from_db()
    assert (run.repair.state, run.repair.action) == ("ASKING", "REBOOT")
