"""The workloads of a case are frozen when it opens: what ends or comes later only tightens how its machine is treated."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.cases import groups
from healthboard.fleet.models import Task
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.refusals import Held
from healthboard.repairs import agreement, brakes, lifecycle, opening, waiting
from healthboard.repairs.models import Call, Repair
from tests import factories
from tests.cases import scene
from tests.cases.scene import decided
from tests.cases.test_evidence import broken
from workers.repair.run import Run
from workers.repair.steps import prepare


def policy_of(settings: dict, by=None, **match) -> None:
    """A policy for what it matches: a workload or a pool; last edited by a person."""
    made = Policy.objects.create(name=f"of {match}", settings=settings, **match)
    data = {"name": made.name, "enabled": True, "settings": settings, **match}
    made.current = PolicyVersion.objects.create(policy=made, number=1, data=data, saved_at=clock.now(), saved_by=by)
    made.save()


@pytest.fixture
def careful(time):
    """A clear failure under a training job whose policy asks two people, in a fleet whose default acts by itself."""
    policy_of({"mode_hardware": "ask", "approvals": 2, "undo_s": 900}, workload="llm-train")
    on = scene.machine()
    factories.task(on, factories.workload("llm-train"))
    return broken(on)


def test_a_machine_whose_task_has_ended_is_asked_as_before(careful):
    case = scene.read(careful)
    assert (case.state, case.mode) == ("WAITING", "ask"), case.mode_why
    Task.objects.all().delete()
    again = scene.read(careful)
    assert (again.pk, again.state, again.mode) == (case.pk, "WAITING", "ask")
    assert not Repair.objects.exists() and again.evidence.count() == 1


def test_what_runs_there_instead_does_not_loosen_it(careful):
    scene.read(careful)
    Task.objects.all().delete()
    factories.task(careful, factories.workload("batch"))
    assert scene.read(careful).mode == "ask" and not Repair.objects.exists()


def test_what_comes_later_tightens_it(careful):
    scene.read(careful)
    policy_of({"mode_hardware": "observe"}, workload="batch")
    factories.task(careful, factories.workload("batch"))
    assert scene.read(careful).state == "OBSERVED"


def test_as_many_people_are_wanted_after_the_task_has_ended(careful, operator, approver):
    case = scene.read(careful)
    Task.objects.all().delete()
    assert decided(case, by=operator).outcome == "PENDING" and not Repair.objects.exists()
    assert decided(case, by=approver).outcome == "DONE"
    assert Repair.objects.get().settings["undo_s"] == 900


def test_an_idle_machine_stays_under_its_pools_policy_when_work_lands_there(time):
    policy_of({"mode_hardware": "ask"}, pool="solo")
    policy_of({"mode_hardware": "auto"}, workload="batch")
    on = broken()
    assert scene.read(on).mode == "ask"
    factories.task(on, factories.workload("batch"))
    assert scene.read(on).mode == "ask" and not Repair.objects.exists()


def test_a_repair_reads_its_machine_under_the_policy_of_what_ran_there(time):
    on = scene.machine()
    factories.task(on, factories.workload("llm-train"))
    scene.read(broken(on))
    run = Run(Repair.objects.get())
    assert run.repair.automatic and prepare.cleared(run) is None
    policy_of({"mode_hardware": "ask"}, workload="llm-train")
    Task.objects.all().delete()
    run.forget()
    assert "the policy now says ask" in prepare.cleared(run).why


def test_once_the_case_is_closed_only_what_runs_there_counts(careful, operator):
    decided(scene.read(careful), "dismiss", by=operator, reason="known")
    Task.objects.all().delete()
    scene.shows(careful, "XID_95", 1)
    assert scene.read(careful).mode == "auto"


def test_a_breaker_of_the_workload_holds_on_after_its_task_has_ended(time):
    on = scene.machine()
    factories.task(on, factories.workload("llm-train"))
    group = factories.case(verdict="CORRELATED", breaker=factories.breaker("llm-train", scope_kind="workload"))
    case = scene.read(broken(on))
    assert (case.state, case.parent) == ("HELD", group)
    Task.objects.all().delete()
    assert scene.read(on).state == "HELD" and not Repair.objects.exists()


@pytest.fixture
def under_repair(time):
    """A clear failure under a training job that is repaired by itself, claimed by a worker; its case."""
    on = scene.machine()
    factories.task(on, factories.workload("llm-train"))
    case = scene.read(broken(on))
    assert case.state == "DECIDED"
    time.turn(120)
    return lifecycle.claim(Repair.objects.get().pk, "host:1"), case


def paused(case, admin):
    brakes.pause(actor=admin, scope_kind="workload", scope="llm-train", reason="paper due", until=factories.ago(-7200))


def held_with_others(case, admin):
    groups.hold(account=case.account, region=case.region, scope=("workload", "llm-train"), code="XID_79",
                why="XID_79 on many", members=[])  # fmt: skip


STOPS = pytest.mark.parametrize(("stop", "says"), [(paused, "Paused by ada"), (held_with_others, "Breaker open")])


@STOPS
def test_no_repair_starts_during_a_stop_of_the_workload_that_the_fault_has_ended(under_repair, admin, stop, says):
    repair, case = under_repair
    stop(case, admin)
    Task.objects.all().delete()
    assert lifecycle.start(repair, "recheck").startswith(says)
    assert Repair.objects.get().state == "SCHEDULED"
    told = waiting.waiting_for(repair.instance, case, repair)
    assert any(row.text.startswith(says) for row in told), "the page says what holds it"


@STOPS
def test_nor_does_one_that_runs_change_anything_more(under_repair, admin, stop, says):
    repair, case = under_repair
    assert lifecycle.start(repair, "drain") is None
    Task.objects.all().delete()
    stop(case, admin)
    with pytest.raises(Held, match=says):
        lifecycle.intend(repair, service="ecs", operation="UpdateContainerInstancesState",
                         target=repair.instance.instance_id, request={})  # fmt: skip
    assert not Call.objects.exists()


def test_who_last_edited_the_policy_of_an_ended_workload_is_no_second_person(under_repair, admin):
    repair, _ = under_repair
    policy_of({"drain_timeout_s": 900}, by=admin.user, workload="llm-train")
    Task.objects.all().delete()
    assert admin.user.pk in agreement.editors(repair)


def test_a_repair_of_an_idle_machine_keeps_the_windows_of_its_pool(time):
    now = clock.now()
    big = f"{now - timedelta(days=1):%Y-%m-%d} to {now + timedelta(days=1):%Y-%m-%d} UTC: big run"
    policy_of({"blackouts": [big]}, pool="solo")
    case = scene.read(broken(scene.machine()))
    factories.task(case.instance, factories.workload("batch"))
    policy_of({"blackouts": []}, workload="batch")
    assert opening.closed(Repair.objects.get()) is not None
