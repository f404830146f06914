"""Real threads, real transactions: of two at once one is told no, and no limit is passed."""

from __future__ import annotations

import threading
import time as wall
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from healthboard import clock
from healthboard.cases import answers, ends, groups, lifecycle
from healthboard.cases.models import Case, Decision
from healthboard.people.actors import POLICY, WORKER
from healthboard.refusals import AlreadyDecided, Changed, Held, Refusal
from healthboard.repairs import brakes, budget, launches
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.models import Call, Launch, Occupancy, Repair
from healthboard.repairs.states import State
from tests import factories, standing, two
from tests.cases import scene
from workers.decide import instance

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Results or exceptions, in the order of the works."""
    results: list[Any] = [None] * len(works)
    gate = threading.Barrier(len(works))

    def run(place: int, work: Callable[[], Any]) -> None:
        try:
            gate.wait(10)
            results[place] = work()
        except Exception as error:
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def approve(case, actor):
    return lambda: answers.decide(
        case.pk, actor=actor, kind="approve", plan_version=case.plan_version, evidence_hash=case.evidence_hash
    )


def repair_of(on=None, *, values=None, actor=POLICY, due=True):
    scene.acting()
    on = on or scene.machine()
    now = clock.now()
    with transaction.atomic():
        row = repairs.open_repair(
            instance=on, action="REPLACE", actor=actor, values=values or {}, not_before=now - timedelta(seconds=1)
        )
    return row


@pytest.mark.parametrize("round_", range(3))
def test_of_two_approvals_at_once_one_is_carried_out(round_):
    case = scene.asked()
    people = [factories.actor(factories.person("operator")) for _ in range(4)]
    results = at_once(*(approve(case, p) for p in people))
    assert sum(isinstance(r, Decision) for r in results) == 1, results
    assert sum(isinstance(r, AlreadyDecided) for r in results) == 3, results
    assert Repair.objects.count() == 1


@pytest.mark.parametrize("round_", range(3))
def test_an_approval_and_new_evidence_at_once_end_in_one_of_the_two_orders(round_):
    case = scene.asked()
    operator = factories.actor(factories.person("operator"))
    scene.shows(case.instance, "XID_74", 1)
    decided, _ = at_once(approve(case, operator), lambda: scene.read(case.instance))
    assert isinstance(decided, Decision | Changed), decided
    case.refresh_from_db()
    assert (case.state == "DECIDED") == isinstance(decided, Decision)
    assert "XID_74" in case.codes
    if isinstance(decided, Decision):
        assert decided.evidence_hash != case.evidence_hash, "it rests on what was shown"


@pytest.mark.parametrize("round_", range(3))
def test_an_approval_and_the_expiry_at_once(round_):
    case = scene.asked()
    Case.objects.update(expires_at=factories.ago(1))
    operator = factories.actor(factories.person("operator"))
    decided, expired = at_once(approve(case, operator), lambda: ends.expire(case.pk))
    assert isinstance(decided, Decision) != (expired is True), (decided, expired)
    assert Repair.objects.count() == (0 if expired is True else 1)


def test_an_approval_and_the_end_of_the_evidence_at_once():
    case = scene.asked()
    operator = factories.actor(factories.person("operator"))

    def clears():
        with transaction.atomic():
            row = Case.objects.select_for_update().get(pk=case.pk)
            if row.state == "WAITING":
                lifecycle.close(row, "CLEARED", "it cleared", WORKER)
                return True
        return False

    decided, cleared = at_once(approve(case, operator), clears)
    assert isinstance(decided, Decision) != cleared
    assert isinstance(decided, Decision | Refusal)


def test_one_of_two_claims_gets_the_repair():
    row = repair_of()
    results = at_once(*(lambda n=n: repairs.claim(row.pk, f"host:{n}") for n in range(5)))
    assert sum(isinstance(r, Repair) for r in results) == 1
    row.refresh_from_db()
    assert row.fence == 1


def writes(held):
    """Everything that a worker may write."""
    return (
        lambda: repairs.settle(held, wait=timedelta(seconds=5), why="stale"),
        lambda: repairs.start(held, "recheck"),
        lambda: repairs.next_step(held, "drain"),
        lambda: repairs.remember(held, stale=True),
        lambda: repairs.intend(held, service="ec2", operation="TerminateInstances", target="i-1", request={}),
        lambda: repairs.ask(held, "stale", []),
        lambda: repairs.begin_undo(held, "stale"),
        lambda: repairs.finish(held, State.FAILED, "STALE", "stale"),
        lambda: repairs.change_action(held, "REBOOT", "recheck", "stale"),
        lambda: repairs.assign_replacement(held, "i-0123"),
        lambda: repairs.replacement_ended(held, "stale"),
        lambda: launches.note(held, Launch.Outcome.FAILED, zone="us-east-1a"),
    )


def test_a_stale_fence_writes_nothing():
    row = repair_of()
    stale = repairs.claim(row.pk, "host:1")
    repairs.free_leases("host:1")
    fresh = repairs.claim(row.pk, "host:2")
    assert repairs.start(fresh, "recheck") is None
    before = Repair.objects.filter(pk=row.pk).values().get()
    for write in writes(stale):
        with pytest.raises(repairs.LostFence):
            write()
    assert Repair.objects.filter(pk=row.pk).values().get() == before
    assert not Call.objects.exists() and not Launch.objects.exists()


def test_after_its_lease_a_worker_intends_nothing():
    row = repair_of()
    held = repairs.claim(row.pk, "host:1")
    assert repairs.start(held, "drain") is None
    Repair.objects.update(lease_until=factories.ago(1))
    with pytest.raises(repairs.LostFence):
        repairs.intend(held, service="ecs", operation="X", target="i-1", request={})


def test_a_leased_repair_is_not_claimed_by_another():
    row = repair_of()
    assert repairs.claim(row.pk, "host:1") and repairs.claim(row.pk, "host:2") is None
    assert repairs.due() == []


def test_a_worker_that_stands_still_right_after_its_claim_does_not_go_on_with_the_next_ones_fence():
    row = repair_of()
    taken_over = []

    def others():
        Repair.objects.update(lease_until=factories.ago(1))
        taken_over.append(repairs.claim(row.pk, "host:2"))

    with standing.once_written(others):
        assert repairs.claim(row.pk, "host:1") is None
    assert taken_over[0].fence == 2 and taken_over[0].lease_owner == "host:2"
    assert Repair.objects.get(pk=row.pk).lease_owner == "host:2"


def test_one_open_repair_per_instance():
    on = scene.machine()
    scene.acting()
    results = at_once(*(lambda: repair_of(on) for _ in range(4)))
    assert sum(isinstance(r, Repair) for r in results) == 1, results
    assert sum(isinstance(r, AlreadyDecided) for r in results) == 3


def test_five_starts_at_once_never_pass_the_budget():
    home = scene.solo()
    machines = [scene.machine(home) for _ in range(10)]
    rows = [repair_of(on, values={"budget_share": 0.2}) for on in machines[:5]]
    held = [repairs.claim(row.pk, f"host:{n}") for n, row in enumerate(rows)]
    results = at_once(*(lambda h=h: repairs.start(h, "recheck") for h in held))
    assert sum(r is None for r in results) == 2, results
    assert all(r is None or "Budget of solo" in r for r in results)
    assert Occupancy.objects.filter(released_at=None).count() == 2
    used = budget.usage(home, {"budget_share": 0.2})
    assert (used.size, used.allowed, used.out) == (10, 2, 2)


def test_two_takes_at_once_never_pass_the_budget():
    """Whatever else is locked around it: at the pool's row they take turns."""
    home = scene.solo()
    rows = [repair_of(on) for on in [scene.machine(home) for _ in range(9)][:2]]

    def take(row, after):
        wall.sleep(after)
        with transaction.atomic():
            held = budget.take(row, {"budget_share": 0.2})
            wall.sleep(0.4)
        return held

    first, second = at_once(lambda: take(rows[0], 0), lambda: take(rows[1], 0.2))
    assert first is None and "Budget of solo" in second


def running():
    held = repairs.claim(repair_of().pk, "host:1")
    assert repairs.start(held, "drain") is None
    return held


def intent(held, **more):
    return repairs.intend(
        held,
        service="ecs",
        operation="UpdateContainerInstancesState",
        target=held.instance.instance_id,
        request={},
        **more,
    )


def test_after_the_stop_switch_no_intent_is_committed():
    held = running()
    operator = factories.actor(factories.person("operator"))
    for _ in range(3):
        intended, _stopped = at_once(lambda: intent(held), lambda: brakes.stop(operator, "stop"))
        assert isinstance(intended, Call | Held), intended
        with pytest.raises(Held):
            intent(held)
        thrown = brakes.switch().changed_at
        late = Call.objects.filter(intended_at__gt=thrown + timedelta(milliseconds=200))
        assert not late.exists()
        brakes.resume(factories.actor(factories.person("admin")), "go on")


def test_an_intent_that_is_under_way_makes_the_switch_wait_and_not_the_reverse():
    held = running()
    operator = factories.actor(factories.person("operator"))
    order: list[str] = []
    under_way = threading.Event()

    def slow():
        with transaction.atomic():
            intent(held)
            order.append("intended")
            under_way.set()
            wall.sleep(0.3)
            order.append("committed")

    def stop():
        assert under_way.wait(20)
        brakes.stop(operator, "stop")
        order.append("stopped")

    assert not [r for r in at_once(slow, stop) if isinstance(r, Exception)]
    assert order == ["intended", "committed", "stopped"]


def test_after_a_breaker_has_opened_no_automatic_intent_is_committed():
    held = running()
    order: list[str] = []
    under_way = threading.Event()

    def slow():
        with transaction.atomic():
            intent(held)
            order.append("intended")
            under_way.set()
            wall.sleep(0.3)
            order.append("committed")

    def opens():
        assert under_way.wait(20)
        brakes.open_breaker(account=held.instance.account, region=held.instance.region, kind="CORRELATED",
                            scope_kind="pool", scope="solo", why="many", actor=WORKER)  # fmt: skip
        order.append("opened")

    assert not [r for r in at_once(slow, opens) if isinstance(r, Exception)]
    assert order == ["intended", "committed", "opened"]
    with pytest.raises(Held):
        intent(held)


def test_a_breaker_and_the_start_of_a_scheduled_repair_at_once():
    for _ in range(3):
        scene.acting()
        on = scene.machine()
        gpu = factories.gpus(on, 1)[0]
        scene.shows(on, "XID_79", gpu=gpu.uuid)
        scene.lost(on, gpu.uuid)
        case = scene.read(on)
        row = Repair.objects.get(instance=on)
        Repair.objects.filter(pk=row.pk).update(next_at=factories.ago(1))
        held = repairs.claim(row.pk, "host:1")

        def group(case=case):
            return groups.hold(
                account=case.account, region=case.region, scope=("zone", case.instance.zone), code=case.code, why="many",
                members=[case],
            )  # fmt: skip

        started, _ = at_once(lambda held=held: repairs.start(held, "recheck"), group)
        row.refresh_from_db()
        case.refresh_from_db()
        if row.state == "CANCELLED":
            assert case.state == "HELD" and (started is not None)
        else:
            assert case.state == "DECIDED" and row.state in ("RUNNING", "SCHEDULED")
            if row.state == "RUNNING":
                with pytest.raises(Held):
                    intent(held)
        group_case = Case.objects.filter(instance=None, state="WAITING").get()
        admin = factories.actor(factories.person("admin"))
        two.release_case(group_case.pk, actor=admin, reason="done")


def test_an_undo_and_the_end_of_the_repair_at_once_do_not_stand_in_each_others_way():
    for _ in range(4):
        case = scene.asked()
        operator = factories.actor(factories.person("operator"))
        row = approve(case, operator)().repair
        Repair.objects.filter(pk=row.pk).update(next_at=factories.ago(1))
        held = repairs.claim(row.pk, "host:1")
        assert repairs.start(held, "recheck") is None
        repairs.finish(held, State.FAILED, "NO_ROOM", "full")
        undone, carried = at_once(
            lambda case=case, operator=operator: answers.undo(case.pk, actor=operator),
            lambda held=held: ends.carry_back(held),
        )
        assert carried is None and (undone is None or isinstance(undone, Refusal)), (undone, carried)


def test_a_release_and_a_members_reading_at_once_do_not_stand_in_each_others_way():
    admin = factories.actor(factories.person("admin"))
    for _ in range(4):
        cases = [scene.asked() for _ in range(3)]
        group = groups.hold(account=cases[0].account, region=cases[0].region, scope=("pool", "solo"),
                                     code="XID_119", why="many", members=cases)  # fmt: skip
        for case in cases:
            scene.shows(case.instance, "XID_74", 1)
        results = at_once(
            lambda group=group: two.release_case(group.pk, actor=admin, reason="done"),
            *(lambda case=case: scene.read(case.instance) for case in cases),
        )
        assert not [r for r in results if isinstance(r, Exception)], results
        Case.objects.exclude(instance=None).update(state="CLOSED", closed_at=clock.now())


def test_of_two_rounds_at_once_one_reads_what_is_due(monkeypatch):
    scene.acting()
    on = scene.machine(evaluated_at=None)
    read, reread = [], instance.reread

    def slowly(row):
        read.append(row.pk)
        wall.sleep(0.3)
        return reread(row)

    monkeypatch.setattr(instance, "reread", slowly)
    at_once(instance.read_due, lambda: (wall.sleep(0.1), instance.read_due()))
    assert read == [on.pk]
