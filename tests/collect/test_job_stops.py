"""What is kept of a job whose tasks ECS lists no more, so that it can be told what stands still."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.fleet.models import JobStop, Task
from tests import factories as make
from workers.collect.ecs_tasks import Tasks, store_services, store_tasks

pytestmark = pytest.mark.django_db


def _described(node, number: int, status: str = "RUNNING", by: str = "run-7") -> dict:
    return {
        "taskArn": f"arn:aws:ecs:us-east-1:111122223333:task/gpu/{number:032x}", "containerInstanceArn": node.container_arn,
        "taskDefinitionArn": "arn:aws:ecs:us-east-1:111122223333:task-definition/llm:3", "startedBy": by,
        "group": "family:llm", "lastStatus": status, "desiredStatus": status, "containers": [{"gpuIds": ["a", "b"]}],
    }  # fmt: skip


@pytest.fixture
def told(db):
    nodes = [make.instance() for _ in range(3)]
    arns = {node.container_arn: node for node in nodes}

    def round_(*tasks: dict, gone: set[str] = frozenset()) -> None:
        cluster, at = nodes[0].cluster, clock.now()
        store_tasks(cluster, Tasks(described=list(tasks), gone=set(gone)), arns, store_services(cluster, [], at), at)

    round_.nodes = nodes
    return round_


def test_a_job_that_stops_is_remembered_with_its_nodes_and_gpus(told):
    tasks = [_described(node, n) for n, node in enumerate(told.nodes)]
    told(*tasks)
    assert not JobStop.objects.exists()
    told(*[{**task, "lastStatus": "STOPPED"} for task in tasks])
    assert not Task.objects.exists()
    stop = JobStop.objects.get()
    assert (stop.name, stop.family, stop.left) == ("llm/run-7", "llm", 0)
    assert stop.nodes == {node.instance_id: 2 for node in told.nodes}


def test_losing_one_node_after_the_other_keeps_the_first_moment_and_all_nodes(told):
    tasks = [_described(node, n) for n, node in enumerate(told.nodes)]
    told(*tasks)
    told(*tasks[1:], gone={tasks[0]["taskArn"]})
    first = JobStop.objects.get()
    assert (first.left, len(first.nodes)) == (2, 3)
    told(gone={task["taskArn"] for task in tasks})
    stop = JobStop.objects.get()
    assert (stop.left, stop.at, len(stop.nodes)) == (0, first.at, 3)


def test_what_is_lost_long_after_is_a_stop_of_its_own(told):
    tasks = [_described(node, n) for n, node in enumerate(told.nodes)]
    told(*tasks)
    told(*tasks[1:], gone={tasks[0]["taskArn"]})
    JobStop.objects.update(at=make.ago(3600))
    told(gone={task["taskArn"] for task in tasks})
    stop = JobStop.objects.get()
    assert stop.left == 0 and stop.at > make.ago(60)
    assert set(stop.nodes) == {node.instance_id for node in told.nodes[1:]}


@pytest.mark.parametrize("size", [2, 3])
def test_what_runs_again_is_forgotten_whatever_its_size(told, size):
    tasks = [_described(node, n) for n, node in enumerate(told.nodes)]
    told(*tasks)
    told(gone={task["taskArn"] for task in tasks})
    again = [_described(node, 10 + n) for n, node in enumerate(told.nodes)]
    told(*again[:size])
    assert not JobStop.objects.exists()


def test_a_lost_node_that_comes_back_makes_the_job_whole(told):
    tasks = [_described(node, n) for n, node in enumerate(told.nodes)]
    told(*tasks)
    told(*tasks[1:], gone={tasks[0]["taskArn"]})
    assert JobStop.objects.exists()
    told(*tasks[1:], _described(told.nodes[0], 9))
    assert not JobStop.objects.exists()


def test_a_task_that_ecs_did_not_tell_of_this_time_is_no_stop(told):
    tasks = [_described(node, n) for n, node in enumerate(told.nodes)]
    told(*tasks)
    told(*tasks[1:])
    assert Task.objects.count() == 3 and not JobStop.objects.exists()


def test_a_quiet_round_asks_nothing_about_jobs(told):
    tasks = [_described(node, n) for n, node in enumerate(told.nodes)]
    told(*tasks)
    with CaptureQueriesContext(connection) as seen:
        told(*tasks)
    assert not [q["sql"] for q in seen if "jobstop" in q["sql"]]
