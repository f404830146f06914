"""One machine, several registrations: which of them the row tells of, and that an older answer changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.fleet.models import Cluster, Instance, Interval, Pool
from tests import factories
from workers.collect import ecs_instances, sources

pytestmark = pytest.mark.django_db

ID = "i-0123456789abcdef0"
LONG_AGO = timedelta(days=9)


def told(number: int, *, connected=True, tasks=0, ago=timedelta(0), version=1, pause=False, provider="", id_=ID):
    """A container instance as ECS describes it. `ago`: when it registered."""
    tags = [{"key": "healthboard:pause", "value": "x"}] if pause else []
    return {
        "ec2InstanceId": id_, "containerInstanceArn": f"arn:ci/{number}", "status": "ACTIVE", "version": version,
        "agentConnected": connected, "runningTasksCount": tasks, "pendingTasksCount": 0, "tags": tags,
        "registeredAt": clock.now() - ago, **({"capacityProviderName": provider} if provider else {}),
    }  # fmt: skip


def store(cluster: Cluster, *items, at=None, pools=None) -> Instance:
    source = sources.source_of(cluster.account, cluster.region, "ecs", cluster.name)
    ecs_instances.store_instances(cluster, list(items), [], pools or {}, at or clock.now(), source)
    return Instance.objects.select_related("cluster", "pool").get(instance_id=ID)


def moved(old_first: bool):
    """A machine that wiped its agent's state and joined `new`; `old` keeps its registration, its agent away."""
    old, new = factories.cluster("old"), factories.cluster("new")
    provider = factories.pool("cap-a", cluster=old, provider_arn="arn:cap-a")
    store(old, told(1, tasks=4, ago=LONG_AGO, provider="cap-a"), pools={"cap-a": provider})
    rounds = [
        (old, told(1, connected=False, ago=LONG_AGO, version=9, provider="cap-a"), {"cap-a": provider}),
        (new, told(2, tasks=4, version=3), {}),
    ]
    return rounds if old_first else rounds[::-1]


@pytest.mark.parametrize("old_first", [True, False])
def test_a_registration_that_was_left_behind_does_not_speak_for_the_machine(old_first):
    rounds = moved(old_first)
    for again in range(3):
        for cluster, item, pools in rounds:
            row = store(cluster, item, pools=pools, at=clock.now() + timedelta(minutes=again))
            if again or cluster.name == "new":
                seen = row.cluster.name, row.container_arn, row.agent_connected, row.tasks_running
                assert seen == ("new", "arn:ci/2", True, 4), (again, cluster.name)
    open_ = Interval.objects.filter(instance=row, name="AGENT_CONNECTIVITY", until=None)
    assert "IMPAIRED" not in open_.values_list("value", flat=True) and open_.exists()


def test_whichever_cluster_its_agent_is_connected_to_has_it():
    old, new = factories.cluster("old"), factories.cluster("new")
    store(new, told(2))
    assert store(old, told(1, connected=False, ago=LONG_AGO)).cluster == new
    assert store(new, told(2, connected=False)).agent_connected is False, "its own cluster tells of it what it likes"
    assert store(old, told(1, connected=False, ago=LONG_AGO)).cluster == new, "the later one"
    assert store(old, told(1, ago=LONG_AGO)).cluster == old, "the one with an agent"
    Cluster.objects.filter(pk=old.pk).update(gone_at=clock.now())
    assert store(new, told(2, connected=False)).cluster == new, "a cluster that is gone has none"


def test_in_one_cluster_the_answer_tells_which_registration_counts():
    home = factories.cluster("old")
    store(home, told(1, ago=LONG_AGO, version=7))
    anew = store(home, told(1, connected=False, ago=LONG_AGO, version=8), told(2, connected=False))
    assert (anew.container_arn, anew.agent_connected) == ("arn:ci/2", False)
    ecs_instances.store_some(home, [told(1, tasks=3, ago=LONG_AGO, version=9)], clock.now())
    anew.refresh_from_db()
    assert (anew.container_arn, anew.tasks_running) == ("arn:ci/2", 0), "asked for before it registered anew"


def test_a_machine_leaves_the_pool_of_its_cluster_with_the_cluster():
    (_, left, _pools), (new, item, _) = moved(True)
    assert left["capacityProviderName"] == "cap-a"
    assert store(new, item).pool is None, "EC2's round finds its own"
    mine = Pool.objects.create(account=new.account, region=new.region, cluster=new, name="t", kind="TEMPLATE")
    Instance.objects.update(pool=mine)
    assert store(new, told(2, tasks=4, version=4)).pool == mine, "one of its cluster stays, though no provider is told"


def test_a_round_loads_the_rows_of_its_cluster_and_those_told_only():
    homes = [factories.cluster(f"c{number}") for number in range(4)]
    for number in range(20):
        factories.instance(factories.pool("p", cluster=homes[number % 4]))
    factories.instance(factories.pool("p", cluster=homes[0]), instance_id=ID)
    elsewhere = factories.instance(factories.pool("p", cluster=homes[1]), instance_id="i-0123456789abcdef1")
    rows = ecs_instances._known(homes[0], [ID, elsewhere.instance_id])
    assert len(rows) == 7 and rows[elsewhere.instance_id] == elsewhere
    assert store(homes[0], told(5)).cluster == homes[0]
