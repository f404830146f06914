"""INV9: what is somebody else's is observed and never acted on, whatever it shows and whoever asks."""

from __future__ import annotations

import pytest

from healthboard.cases import by_hand, invariants
from healthboard.fleet.models import Cluster, Instance, Pool
from healthboard.refusals import Held
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.models import Call, Repair
from healthboard.repairs.recipes import recipe
from tests import factories
from tests.cases import scene
from tests.cases.scene import decided
from workers.repair import engine


def of(owner, **fields):
    return lambda: scene.machine(owner=owner, **fields)


def managed(auto_repair):
    def make():
        home = factories.pool("managed", "MANAGED", auto_repair=auto_repair)
        return factories.instance(home, owner="ECS")

    return make


def tagged_group():
    on = factories.instance(factories.pool("train", "GROUP"))
    Pool.objects.filter(pk=on.pool_id).update(paused_by_tag=True)
    return Instance.objects.get(pk=on.pk)


def tagged_cluster():
    on = scene.machine()
    Cluster.objects.filter(pk=on.cluster_id).update(paused_by_tag=True)
    return Instance.objects.get(pk=on.pk)


NOT_OURS = {
    "BATCH": of("BATCH"),
    "OTHER": of("OTHER"),
    "UNKNOWN": of("UNKNOWN"),
    "ECS that repairs by itself": managed(True),
    "ECS that does not say": managed(None),
    "ECS that does not repair": managed(False),
    "healthboard itself": of("TEMPLATE", is_self=True),
    "paused by a tag": of("TEMPLATE", paused_by_tag=True),
    "in a paused group": tagged_group,
    "in a paused cluster": tagged_cluster,
}
#: nothing by itself; DRAINING and back by a named person's word
BY_WORD_ONLY = "ECS that does not repair"
OURS = {
    "GROUP": lambda: factories.instance(factories.pool("train", "GROUP")),
    "TEMPLATE": of("TEMPLATE"),
}


def broken(on):
    scene.acting()
    gpu = factories.gpus(on, 1)[0]
    scene.shows(on, "XID_79", gpu=gpu.uuid)
    scene.lost(on, gpu.uuid)
    return scene.read(on)


@pytest.mark.parametrize("name", list(NOT_OURS))
def test_what_is_not_ours_is_observed(time, operator, name):
    case = broken(NOT_OURS[name]())
    assert (case.state, case.mode, case.verdict) == ("OBSERVED", "observe", "HARDWARE")
    assert case.why_waiting and not Repair.objects.exists()
    for action in ("REPLACE", "REBOOT", "RELOCATE", "DRAIN", "RETURN"):
        if name == BY_WORD_ONLY and action in ("DRAIN", "RETURN"):
            continue  # a named person may: see below
        with pytest.raises(Held):
            decided(case, "override", by=operator, action=action, reason="do it")
    assert not Repair.objects.exists() and not Call.objects.exists()


@pytest.mark.parametrize("action", ["DRAIN", "RETURN"])
def test_what_ecs_does_not_repair_is_drained_and_returned_by_a_persons_word(time, operator, action):
    on = NOT_OURS[BY_WORD_ONLY]()
    case = broken(on)
    assert {c["action"] for c in case.plan["choices"]} == {"DIAGNOSE", "DRAIN", "RETURN"}
    decision = decided(case, "override", by=operator, action=action, reason="its board is swapped by hand")
    assert (decision.repair.action, decision.repair.automatic, decision.repair.owner) == (action, False, "ECS")
    assert decision.case.plan["blockers"] == [] and "Nothing is done" not in decision.case.plan["sentence"]


@pytest.mark.parametrize("name", list(NOT_OURS))
def test_by_hand_the_same_holds_for_every_owner(time, operator, name):
    """What the instance's own page offers, and what it refuses though a form asks for it."""
    on = NOT_OURS[name]()
    scene.acting()
    scene.seeing()
    offered = {b["action"] for b in by_hand.buttons(on, operator.user) if b["why_not"] is None}
    assert offered == ({"DIAGNOSE", "DRAIN"} if name == BY_WORD_ONLY else {"DIAGNOSE"})
    if recipe("DRAIN", on.owner):
        seen = by_hand.offer(on, "DRAIN").seen
        if name == BY_WORD_ONLY:
            assert by_hand.ask(on.pk, actor=operator, action="DRAIN", reason="x", seen=seen).repair.action == "DRAIN"
        else:
            with pytest.raises(Held):
                by_hand.ask(on.pk, actor=operator, action="DRAIN", reason="x", seen=seen)
            assert not Repair.objects.exists()


@pytest.mark.parametrize("name", list(NOT_OURS))
def test_a_look_never_harms(time, operator, name):
    case = broken(NOT_OURS[name]())
    decision = decided(case, "override", by=operator, action="DIAGNOSE", reason="what does it say")
    engine.advance(decision.repair_id)
    if "paused" in name:  # it waits for the end of the pause, and says so
        assert "pause" in Repair.objects.get().why_waiting and not decision.repair.instance.requests.exists()
    else:
        assert decision.repair.instance.requests.count() == 1
    assert not Call.objects.exists()


@pytest.mark.parametrize("name", list(OURS))
def test_what_is_ours_is_repaired_by_policy(time, name):
    case = broken(OURS[name]())
    assert case.state == "DECIDED" and Repair.objects.get().automatic


def test_a_plain_instance_is_asked_about(time):
    case = broken(scene.machine(owner="PLAIN", template_id="", template_version=""))
    assert (case.state, case.mode) == ("WAITING", "ask")
    assert "REPLACE" not in {c["action"] for c in case.plan["choices"]}


def test_a_member_of_a_group_that_sees_it_too_is_watched(time):
    scene.acting()
    on = factories.instance(factories.pool("train", "GROUP"))
    factories.reading(on, "EC2_SYSTEM", "IMPAIRED", since=factories.ago(300))
    scene.read(on)
    assert Repair.objects.get().facts["watch"] is True


def test_a_group_that_does_not_replace_by_itself_is_not_relied_on(time):
    scene.acting()
    on = factories.instance(factories.pool("train", "GROUP", suspended=["ReplaceUnhealthy"]))
    factories.reading(on, "EC2_SYSTEM", "IMPAIRED", since=factories.ago(300))
    scene.read(on)
    repair = Repair.objects.first()
    assert repair is None or "watch" not in repair.facts


def test_an_intent_needs_exactly_one_instance_id(time, operator):
    from healthboard.refusals import Invalid

    case = scene.asked()
    repair = decided(case, by=operator).repair
    time.turn(40)
    held = repairs.claim(repair.pk, "test:1")
    assert repairs.start(held, "drain") is None
    for target in ("", "*", "all", "train-asg"):
        with pytest.raises(Invalid):
            repairs.intend(held, service="ec2", operation="TerminateInstances", target=target, request={})


def test_more_than_draining_of_what_ecs_owns_breaks_inv9(time, operator):
    on = NOT_OURS[BY_WORD_ONLY]()
    repair = decided(broken(on), "override", by=operator, action="DRAIN", reason="x").repair
    step = factories.steps(repair, "drain")[0]
    factories.call(step)
    assert not list(invariants.inv9())
    factories.call(step, "TerminateInstances", service="ec2")
    assert [line.split(" on ")[0] for line in invariants.inv9()] == ["INV9: TerminateInstances"]
    Repair.objects.filter(pk=repair.pk).update(automatic=True)
    assert len(list(invariants.inv9())) == 2


def test_a_machine_is_relocated_by_a_persons_word_only_whatever_the_policy_names(time, operator):
    scene.acting()
    scene.policy(codes={"XID_79": {"mode": "auto", "action": "RELOCATE"}})
    on = scene.machine()
    gpu = factories.gpus(on, 1)[0]
    scene.shows(on, "XID_79", gpu=gpu.uuid)
    scene.lost(on, gpu.uuid)
    case = scene.read(on)
    assert (case.action, case.mode, case.state) == ("RELOCATE", "ask", "WAITING") and not Repair.objects.exists()
    assert "only a named person" in case.mode_why and case.expires_at is not None
    scene.decided(case, by=operator)
    assert (Repair.objects.get().action, Repair.objects.get().requested_by) == ("RELOCATE", "olga")
