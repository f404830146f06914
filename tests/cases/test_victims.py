"""One node breaks and its whole job speaks: one case on that node, its mates named as victims, nothing held."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.cases.models import Case
from healthboard.fleet.models import JobStop, Task
from healthboard.repairs.models import Breaker
from tests import factories
from tests.cases import scene
from workers.decide import breadth, instance

pytestmark = pytest.mark.django_db
JOB = "llm/run-7"


@pytest.fixture
def job():
    """The broken node and eleven mates, all of one job."""
    scene.acting()
    scene.seeing()
    home = factories.pool("solo", "TEMPLATE")
    root, *mates = [scene.machine(home) for _ in range(12)]
    for node in (root, *mates):
        factories.task(node, job=JOB)
    gpu = factories.gpus(root)[3]
    scene.shows(root, "XID_79", 60, gpu=gpu.uuid)
    scene.lost(root, gpu.uuid)
    for n, mate in enumerate(mates):
        scene.shows(mate, ("XID_94", "XID_45", "XID_43")[min(n // 4, 2)], 50)
        if n > 8:
            factories.event(mate, "COMMUNICATION_ERROR", source="ecs", at=factories.ago(40), text="ncclRemoteError")
    for node in (root, *mates):
        instance.read(node.pk)
    return root, mates


def ended(root, mates) -> None:
    """ECS lists no task of it any more."""
    Task.objects.filter(job=JOB).delete()
    JobStop.objects.create(
        account=root.account, region=root.region, cluster=root.cluster, name=JOB, left=0,
        nodes={node.instance_id: 8 for node in (root, *mates)}, at=clock.now(),
    )  # fmt: skip


@pytest.mark.parametrize("gone", [False, True], ids=["while it stops", "when it is gone"])
def test_one_case_and_eleven_victims(job, gone):
    root, mates = job
    if gone:
        ended(root, mates)
    breadth.look()
    breadth.look()
    case = Case.objects.get(instance=root)
    assert (case.verdict, case.code, case.state) == ("HARDWARE", "XID_79", "DECIDED")
    assert case.victims == sorted(mate.instance_id for mate in mates)
    assert not Breaker.objects.exists() and not Case.objects.filter(instance=None).exists()
    assert not Case.objects.filter(instance__in=mates, state="HELD").exists()


def test_a_job_that_stopped_long_ago_explains_nothing(job):
    ended(*job)
    JobStop.objects.update(at=clock.now() - timedelta(hours=1))
    breadth.look()
    assert Case.objects.get(instance=job[0]).victims == []
