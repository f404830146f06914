from __future__ import annotations

from tests.sandbox.conftest import code_of
from tests.sandbox.test_ec2 import control


def test_limits_are_enforced(calm):
    many = ["x"] * 101
    assert (
        code_of(lambda: calm.ecs.describe_container_instances(cluster="gpu", containerInstances=many))
        == "InvalidParameterException"
    )
    assert code_of(lambda: calm.ecs.describe_tasks(cluster="gpu", tasks=many)) == "InvalidParameterException"
    assert (
        code_of(lambda: calm.ecs.describe_services(cluster="gpu", services=["x"] * 11)) == "InvalidParameterException"
    )
    eleven = [c.id for c in calm.world.containers.values()][:11]
    assert (
        code_of(
            lambda: calm.ecs.update_container_instances_state(
                cluster="gpu", containerInstances=eleven, status="DRAINING"
            )
        )
        == "InvalidParameterException"
    )
    assert code_of(lambda: calm.ecs.list_tasks(cluster="moon")) == "ClusterNotFoundException"


def test_lists_are_paged(calm):
    pages = calm.ecs.get_paginator("list_container_instances").paginate(cluster="gpu", PaginationConfig={"PageSize": 9})
    arns = [a for page in pages for a in page["containerInstanceArns"]]
    assert len(arns) == len(set(arns)) == 42


def test_what_is_missing_comes_back_in_failures_with_http_200(fleet):
    one = fleet.container(fleet.pool("solo")[0])
    answer = fleet.ecs.describe_container_instances(cluster="gpu", containerInstances=[one.id, "0" * 32])
    assert [c["ec2InstanceId"] for c in answer["containerInstances"]] == [one.instance]
    assert [f["reason"] for f in answer["failures"]] == ["MISSING"]
    answer = fleet.ecs.update_container_instances_state(
        cluster="gpu", containerInstances=[one.id, "0" * 32], status="DRAINING"
    )
    assert answer["containerInstances"][0]["status"] == "DRAINING" and answer["failures"][0]["reason"] == "MISSING"
    assert fleet.ecs.describe_tasks(cluster="gpu", tasks=["0" * 32])["failures"][0]["reason"] == "MISSING"
    assert fleet.ecs.describe_clusters(clusters=["moon"])["failures"][0]["reason"] == "MISSING"


def test_registered_gpus_are_the_uuids_of_the_host(calm):
    one = calm.pool("train")[0]
    row = calm.ecs.describe_container_instances(cluster="gpu", containerInstances=[calm.container(one).id])[
        "containerInstances"
    ][0]
    gpus = next(r for r in row["registeredResources"] if r["name"] == "GPU")["stringSetValue"]
    assert gpus == [c["uuid"] for c in one.gpus] and row["capacityProviderName"] == "train"


def test_health_is_given_only_when_asked_for_and_says_what_is_wrong(fleet):
    one = fleet.pool("solo")[0]

    def health():
        answer = fleet.ecs.describe_container_instances(
            cluster="gpu", containerInstances=[fleet.container(one).id], include=["CONTAINER_INSTANCE_HEALTH", "TAGS"]
        )
        status = answer["containerInstances"][0]["healthStatus"]
        return status["overallStatus"], {d["type"]: d for d in status["details"]}

    plain = fleet.ecs.describe_container_instances(cluster="gpu", containerInstances=[fleet.container(one).id])
    assert "healthStatus" not in plain["containerInstances"][0]
    assert health()[0] == "OK"
    control(fleet, "inject", instances=[one.id], code="ECS_CONTAINER_RUNTIME_IMPAIRED")
    assert health()[0] == "IMPAIRED" and health()[1]["CONTAINER_RUNTIME"]["status"] == "IMPAIRED"
    control(fleet, "inject", instances=[one.id], code="ECS_CONTAINER_RUNTIME_IMPAIRED", clear=True)
    control(fleet, "inject", instances=[one.id], code="ECS_AGENT_DISCONNECTED")
    fleet.advance(1)
    assert health()[0] == "INSUFFICIENT_DATA"
    fleet.advance(35)
    assert health()[1]["AGENT_CONNECTIVITY"]["statusReason"].startswith("Agent disconnected since ")


def test_managed_instances_have_the_gpu_checks_and_repair_on(calm):
    one = calm.container(calm.pool("managed")[0])
    answer = calm.ecs.describe_container_instances(
        cluster="gpu", containerInstances=[one.id], include=["CONTAINER_INSTANCE_HEALTH"]
    )
    types = {d["type"] for d in answer["containerInstances"][0]["healthStatus"]["details"]}
    assert {"ACCELERATED_COMPUTE", "DAEMON"} <= types
    providers = {p["name"]: p for p in calm.ecs.describe_capacity_providers()["capacityProviders"]}
    assert providers["managed"]["managedInstancesProvider"]["autoRepairConfiguration"]["actionsStatus"] == "ENABLED"
    assert "train-asg" in providers["train"]["autoScalingGroupProvider"]["autoScalingGroupArn"]


def test_a_standalone_task_cannot_be_protected_and_a_service_task_can(fleet):
    tasks = fleet.ecs.list_tasks(cluster="gpu", serviceName="simulate")["taskArns"]
    fleet.ecs.update_task_protection(cluster="gpu", tasks=tasks[:1], protectionEnabled=True, expiresInMinutes=5)
    told = fleet.ecs.get_task_protection(cluster="gpu", tasks=tasks[:2])["protectedTasks"]
    assert [t["protectionEnabled"] for t in told] == [True, False]
    fleet.engine.step()
    alone = next(t for t in fleet.world.tasks.values() if t.service is None)
    answer = fleet.ecs.get_task_protection(cluster=alone.cluster, tasks=[alone.id])
    assert answer["protectedTasks"] == [] and answer["failures"][0]["reason"] == "TASK_NOT_VALID"


def test_stop_task_takes_its_time_and_the_service_starts_another(fleet):
    task = fleet.ecs.list_tasks(cluster="gpu", serviceName="chat")["taskArns"][0]
    answer = fleet.ecs.stop_task(cluster="gpu", task=task, reason="because")["task"]
    assert (answer["lastStatus"], answer["desiredStatus"]) == ("RUNNING", "STOPPED")
    fleet.advance(5)
    row = fleet.ecs.describe_tasks(cluster="gpu", tasks=[task])["tasks"][0]
    assert (row["lastStatus"], row["stopCode"], row["stoppedReason"]) == ("STOPPED", "UserInitiated", "because")
    fleet.advance(5)
    assert fleet.ecs.describe_services(cluster="gpu", services=["chat"])["services"][0]["runningCount"] == 6
    assert task not in fleet.ecs.list_tasks(cluster="gpu", serviceName="chat")["taskArns"]
    assert task in fleet.ecs.list_tasks(cluster="gpu", serviceName="chat", desiredStatus="STOPPED")["taskArns"]


def test_only_the_task_definition_tells_the_stop_time_out_and_a_task_may_take_as_long(fleet):
    boxes = [
        {"name": "work", "image": "busybox", "memory": 32, "stopTimeout": 600},
        {"name": "side", "image": "busybox", "memory": 32, "dependsOn": [{"containerName": "work", "condition": "START"}]},
    ]  # fmt: skip
    made = fleet.ecs.register_task_definition(family="slow", containerDefinitions=boxes)["taskDefinition"]
    started = fleet.ecs.run_task(cluster="gpu", taskDefinition="slow:1", count=1)["tasks"][0]
    assert started["taskDefinitionArn"] == made["taskDefinitionArn"]
    fleet.ecs.deregister_task_definition(taskDefinition="slow:1")
    for named in ("slow:1", made["taskDefinitionArn"]):
        told = fleet.ecs.describe_task_definition(taskDefinition=named)["taskDefinition"]
        assert told["status"] == "INACTIVE"
        assert [box.get("stopTimeout") for box in told["containerDefinitions"]] == [600, None]
        assert told["containerDefinitions"][1]["dependsOn"][0]["containerName"] == "work"
    assert code_of(lambda: fleet.ecs.describe_task_definition(taskDefinition="slow")) == "ClientException"
    assert code_of(lambda: fleet.ecs.describe_task_definition(taskDefinition="moon:1")) == "ClientException"

    task = fleet.world.tasks[started["taskArn"].rpartition("/")[2]]
    fleet.advance(10)
    fleet.ecs.stop_task(cluster="gpu", task=task.id)
    told = fleet.ecs.describe_tasks(cluster="gpu", tasks=[task.id])["tasks"][0]
    assert "stopTimeout" not in str(told) and task.until - fleet.world.now() > 30 / fleet.world.config.speed
    chat = next(t for t in fleet.world.tasks.values() if t.service == "chat")
    box = fleet.ecs.describe_task_definition(taskDefinition=f"chat:{chat.revision}")["taskDefinition"]
    assert [b.get("stopTimeout") for b in box["containerDefinitions"]] == [None]


def test_deregistering_wants_force_while_tasks_run(fleet):
    one = fleet.pool("train")[0]
    ref = fleet.container(one).id
    assert (
        code_of(lambda: fleet.ecs.deregister_container_instance(cluster="gpu", containerInstance=ref))
        == "InvalidParameterException"
    )
    answer = fleet.ecs.deregister_container_instance(cluster="gpu", containerInstance=ref, force=True)
    assert answer["containerInstance"]["status"] == "INACTIVE"
    assert ref not in str(fleet.ecs.list_container_instances(cluster="gpu"))
    assert (
        code_of(lambda: fleet.ecs.deregister_container_instance(cluster="gpu", containerInstance=ref))
        == "InvalidParameterException"
    )
    failed = fleet.ecs.update_container_instances_state(cluster="gpu", containerInstances=[ref], status="ACTIVE")[
        "failures"
    ]
    assert failed[0]["reason"] == "INACTIVE"


def test_agents_blink_by_themselves_and_come_back_within_seconds(fleet):
    away: set[str] = set()
    for _ in range(260):
        fleet.advance(1)
        away |= {c.instance for c in fleet.world.containers.values() if not c.connected}
        longest = max(
            (fleet.world.now() - c.disconnected_at for c in fleet.world.containers.values() if c.disconnected_at),
            default=0,
        )
        assert longest <= 4
    assert len(away) == 44
