"""While a source that a decision rests on is blind, nothing is decided by itself; it is once that sees again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case
from healthboard.fleet.models import Head, HealthEvent, Interval, Source
from healthboard.notices.models import Notice
from healthboard.policies.reading import reread
from healthboard.repairs.models import Breaker, Repair
from healthboard.repairs.waiting import waiting_for
from tests import factories
from tests.cases import scene
from workers.decide import time as passing
from workers.repair import engine, trips
from workers.repair.run import Run

pytestmark = pytest.mark.django_db


def broken(**fields) -> Case:
    """A machine that kernel log and NVML agree about: its policy would replace it."""
    on = scene.machine(**fields) if "owner" not in fields else factories.instance(factories.pool("train"))
    gpu = factories.gpus(on, 1)[0]
    scene.shows(on, "XID_79", gpu=gpu.uuid)
    scene.lost(on, gpu.uuid)
    return scene.read(on)


def blind(name: str, minutes: float = 5) -> None:
    Source.objects.filter(name=name).update(
        succeeded_at=clock.now() - timedelta(minutes=minutes), error="the request timed out", good_rounds=0
    )


def again(case: Case) -> Case:
    scene.read(case.instance)
    case.refresh_from_db()
    return case


@pytest.fixture
def sees(time):
    scene.acting()
    scene.seeing()
    return time


@pytest.mark.parametrize(("name", "owner"), [("ec2", ""), ("ecs", ""), ("autoscaling", "GROUP")])
def test_it_waits_visibly_and_is_decided_once_the_source_sees(sees, name, owner):
    blind(name)
    case = broken(**({"owner": owner} if owner else {}))
    assert (case.verdict, case.mode, case.state, case.expires_at) == ("HARDWARE", "auto", "WAITING", None)
    assert case.why_waiting == f"The source {Source.objects.get(name=name)} is blind: the request timed out"
    assert not Repair.objects.exists() and not case.decisions.exists()
    said = {row.kind: row for row in waiting_for(case.instance, case)}
    assert "person" not in said and "decides it by itself" in " ".join(r.text for r in waiting_for(case.instance, case))
    assert said["blind"].then == "It goes on by itself once the source tells again."
    again(case), again(case)
    assert AuditRow.objects.filter(verb="case.blind").count() == 1 and not Repair.objects.exists()
    scene.seeing()
    Source.objects.filter(name=name).update(good_rounds=1)
    assert again(case).state == "WAITING" and "watched first" in case.why_waiting, "one round is not enough"
    scene.seeing()
    sees.turn(5)
    passing.pass_over()  # time alone finds it: no new evidence is needed
    case.refresh_from_db()
    repair = Repair.objects.get()
    assert (case.state, case.why_waiting, repair.automatic, repair.state) == ("DECIDED", "", True, "SCHEDULED")


def silent(case: Case) -> None:
    """Its node and its machine fall silent: what is read of it says nothing any more."""
    HealthEvent.objects.filter(instance=case.instance).delete()
    Interval.objects.filter(instance=case.instance).delete()
    Head.objects.filter(instance=case.instance).delete()


def test_where_the_source_sees_again_and_the_node_is_silent_a_person_is_asked(sees):
    blind("ec2")
    case = broken()
    silent(case)
    assert again(case).expires_at is None and reread(case.instance).assessment.verdict == "UNKNOWN"
    assert case.why_waiting.startswith("The source ec2 is blind"), "nobody is asked while it is"
    scene.seeing()
    assert again(case).state == "WAITING" and case.expires_at is not None and not Repair.objects.exists()
    assert case.why_waiting.startswith("its evidence cannot be read now: ")
    assert Notice.objects.filter(kind="case_waiting", thread=f"case:{case.pk}").count() == 1
    until = case.expires_at
    assert again(case).expires_at == until, "once"
    assert next(row.kind for row in waiting_for(case.instance, case)) == "person"


def test_what_expired_before_it_became_blind_tells_so_once(sees):
    blind("ec2")
    case = broken()
    Case.objects.filter(pk=case.pk).update(expired_at=clock.now())
    again(case), again(case)
    assert AuditRow.objects.filter(verb="case.blind").count() == 1


def test_what_it_does_not_rest_on_holds_nothing(sees):
    blind("autoscaling")  # of a machine that no group owns
    factories.source("ec2", region="eu-west-1", age=3600, good_rounds=0)
    assert broken().state == "DECIDED"


def test_a_person_may_approve_meanwhile_and_that_repair_starts_with_sight(sees, operator):
    blind("ecs")
    case = broken()
    scene.decided(case, by=operator)
    repair = Repair.objects.get()
    assert (repair.state, repair.automatic, repair.requested_by) == ("SCHEDULED", False, "olga")
    assert "is blind" in engine._may_start(Run(repair)).why
    scene.seeing()
    assert engine._may_start(Run(repair)) is None


def test_blind_for_long_under_a_case_that_waits_for_it_opens_the_breaker(sees):
    blind("ecs", minutes=1)
    broken()
    trips.look()
    assert not Breaker.objects.exists()
    sees.turn(trips.BLIND_FOR.total_seconds())
    scene.seeing()
    blind("ecs", minutes=16)
    trips.look()
    assert Breaker.objects.get().kind == "BLIND" and "ecs" in Breaker.objects.get().why
