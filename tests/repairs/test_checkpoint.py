"""The call to the workload before its machine is drained, over real connections: answers, refusals, silence and lies."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time

import pytest

from healthboard.notices import outgoing
from healthboard.notices.models import Target
from healthboard.repairs.lifecycle import answer
from healthboard.repairs.models import Call, Occupancy
from tests.notices.conftest import Receiver
from tests.repairs.driver import person
from tests.repairs.kills import killing
from tests.repairs.test_dead_hosts import busy, standalone
from workers.repair.results import Ask, Skip
from workers.repair.run import Run
from workers.repair.steps.checkpoint import checkpoint

DRAIN = "UpdateContainerInstancesState"


@pytest.fixture
def hook():
    servers = []

    def made(name="train-hook", **said) -> Receiver:
        server = Receiver()
        server.says = lambda status=200, headers=None, **body: setattr(
            server, "answer", (status, headers or {}, json.dumps(body).encode())
        )
        server.says(**said)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        Target.objects.create(name=name, kind="webhook", address=server.url, secret="s" * 32, receivers=[])
        return server

    yield made
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def called(db, drives, hook):
    """`called(policy…)`: a drive whose policy calls the hook, a busy machine with a fault, and the hook."""

    def made(answers=None, **policy):
        drive = drives("solo=template:4")
        server = hook(**(answers or {"answer": "wait"}))
        drive.policy(checkpoint=["train-hook"], undo_s=0, **policy)
        machine, _ = busy(drive)
        drive.inject(machine, "XID_79", 0)
        return drive, machine, server

    return made


def tried(drive, machine):
    return Call.objects.filter(repair=drive.repair(machine), operation="Checkpoint")


def outcomes(drive, machine):
    return [(c.outcome, c.detail) for c in tried(drive, machine)]


def test_it_is_asked_until_it_is_ready_whatever_comes_between_and_only_then_drained(called, hook, monkeypatch):
    drive, machine, server = called(checkpoint_wait_s=1800)
    inside = hook("inside", answer="ready")
    monkeypatch.setattr(outgoing, "WHOLE_S", 0.3)
    drive.at_step(machine, "checkpoint")
    for said in (
        {"status": 500, "answer": "ready"},
        {"status": 302, "headers": {"Location": inside.url}, "answer": "ready"},
        {"answer": "certainly"},
        {"status": 202},
        {"answer": "wait"},
    ):
        server.says(**said)
        count = tried(drive, machine).count()
        drive.until(lambda count=count: tried(drive, machine).count() > count, 40)
    server.answer = (200, {}, b"[" * 60_000)
    drive.until(lambda: "neither" in outcomes(drive, machine)[-1][1] and tried(drive, machine).count() >= 6, 40)
    server.before_answer = lambda: time.sleep(0.6)
    drive.until(lambda: "no whole answer" in outcomes(drive, machine)[-1][1], 60)
    server.before_answer = lambda: None
    assert not drive.calls(machine) and drive.repair(machine).step == "checkpoint"
    assert inside.got == [], "a redirect is never followed"
    assert {outcome for outcome, _ in outcomes(drive, machine)} == {"no answer", "wait"}
    for words in ("answers 500", "answers 302", "neither ready, wait nor refuse", "not ready yet"):
        assert any(words in detail for _, detail in outcomes(drive, machine)), words
    server.says(answer="ready")
    repair = drive.repaired(machine)
    assert (repair.outcome, outcomes(drive, machine)[-1]) == ("REPLACED", ("ok", "ready"))
    assert repair.steps.get(name="checkpoint").note == "ready, says train-hook"
    drained = repair.calls.get(operation=DRAIN)
    assert tried(drive, machine).latest("pk").answered_at <= drained.intended_at
    _signed_and_the_same(server, repair)
    drive.sound()


def _signed_and_the_same(server, repair):
    """Each try has one id, a signature over time and body, and says what it is about."""
    assert {headers["x-healthboard-delivery"] for headers, _ in server.got} == {repair.calls.first().token}
    for headers, body in server.got:
        said = headers["x-healthboard-timestamp"].encode() + b"." + body
        assert headers["x-healthboard-signature"] == "v1=" + hmac.new(b"s" * 32, said, hashlib.sha256).hexdigest()
    told = json.loads(server.got[0][1])
    assert (told["kind"], told["instance"], told["action"]) == ("checkpoint", repair.instance.instance_id, "REPLACE")
    assert told["call"] == repair.calls.first().token and told["tasks"][0]["group"].startswith("service:")


def test_a_refusal_asks_a_person_and_nothing_is_drained(called):
    drive, machine, server = called({"answer": "refuse", "reason": "epoch 3 of 4\n<b>soon</b>"})
    repair = drive.asking(machine)
    assert "train-hook refuses: “epoch 3 of 4 <b>soon</b>”" in repair.why_waiting
    assert [c["key"] for c in repair.facts["choices"]] == ["again", "without_answer", "undo"]
    assert not drive.calls(machine) and len(server.got) == 1
    answer(repair.pk, actor=person("operator"), choice="again", reason="ask once more")
    drive.until(lambda: len(server.got) == 2, 20)
    assert len({headers["x-healthboard-delivery"] for headers, _ in server.got}) == 2, "a new question"
    repair = drive.asking(machine)
    answer(repair.pk, actor=person("operator"), choice="undo", reason="leave it to run")
    assert drive.repaired(machine).state == "CANCELLED" and not drive.calls(machine)
    drive.sound()


@pytest.mark.parametrize("silence", ["ask", "go_on"])
def test_silence_goes_by_the_policy_after_the_longest_wait(called, silence):
    drive, machine, server = called({"status": 503}, checkpoint_silence=silence, checkpoint_wait_s=120)
    if silence == "ask":
        repair = drive.asking(machine)
        assert "No “ready” from train-hook within" in repair.why_waiting and "answers 503" in repair.why_waiting
        assert not drive.calls(machine)
        _only_for_what_was_asked(drive, machine)
        answer(repair.pk, actor=person("operator"), choice="without_answer", reason="it is stuck")
    drive.until(lambda: drive.calls(machine)[DRAIN], 60)
    step = drive.repair(machine).steps.filter(name="checkpoint").latest("number")
    assert ("by a person" if silence == "ask" else "the policy says to go on") in step.note
    assert len(server.got) >= 2


def _only_for_what_was_asked(drive, machine):
    run = Run(drive.repair(machine))
    run.facts["without_answer"] = run.facts["called_for"]
    assert isinstance(checkpoint(run), Skip)
    other = standalone(drive, machine)
    assert isinstance(checkpoint(run), Ask), "work that came later was asked nothing yet"
    with drive.fleet.engine.sandbox.lock:
        drive.fleet.world.remove(other)


def test_a_lie_moves_nothing_but_the_drain(called):
    drive, machine, _ = called({"answer": "ready"}, drain_timeout_s=120)
    standalone(drive, machine)
    repair = drive.asking(machine)
    assert repair.step == "tasks" and "have not left within the drain time-out" in repair.why_waiting
    assert outcomes(drive, machine) == [("ok", "ready")]
    assert drive.calls(machine) == {DRAIN: 1} and machine.state == "running"
    drive.sound()


def test_while_it_asks_before_anything_was_changed_others_may_use_the_budget(called):
    drive, machine, server = called({"answer": "refuse"})
    first = drive.asking(machine)
    assert not Occupancy.objects.exists()
    other = next(one for one in drive.fleet.pool("solo") if one.id != machine.id)
    drive.policy(checkpoint=[])
    drive.inject(other, "XID_79", 0)
    second = drive.until(lambda: drive.calls(other)[DRAIN] and drive.repair(other), 100)
    server.says(answer="ready")
    answer(first.pk, actor=person("operator"), choice="again", reason="it may be ready now")
    drive.until(lambda: drive.repair(machine).why_waiting.startswith("Budget of solo: 1 of 1"), 60)
    assert not drive.calls(machine) and drive.repair(machine).steps.last().name == "checkpoint"
    assert second.pk != first.pk and Occupancy.objects.get(released_at=None).repair_id == second.pk
    drive.sound()


@pytest.mark.django_db(transaction=True)
def test_killed_at_every_point_of_the_call_it_is_asked_again_with_the_same_id(drives, hook):
    drive = drives("solo=template:4")
    server = hook(answer="ready")
    drive.policy(checkpoint=["train-hook"])
    machine, _ = busy(drive)
    drive.inject(machine, "XID_79", 0)
    # a kill between the intent and the sending leaves what one before the outcome does, and would take that one's place
    unsent = ("after", "checkpoint", "intend")
    with killing(drive, lambda point: point[1] == "checkpoint" and point != unsent) as kills:
        drive.until(lambda: drive.calls(machine)[DRAIN], 200)
    assert len(kills.at) >= 5, kills.at
    assert {("before", "checkpoint", "intend"), ("before", "checkpoint", "answered")} <= set(kills.at)
    told = outcomes(drive, machine)
    assert told[-1] == ("ok", "ready") and ("unknown", "the worker ended before an answer; read back") in told
    assert len(server.got) >= 2, "it was answered, but the worker died before it could write that down"
    assert len({headers["x-healthboard-delivery"] for headers, _ in server.got}) == 1
    assert not Call.objects.filter(answered_at=None).exists() and drive.calls(machine)[DRAIN] == 1
    drive.sound()
