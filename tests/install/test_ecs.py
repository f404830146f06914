"""ecs.yaml: a task definition for each process, rights for two of them."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.install.shipped import FOLDER, PROCESSES, ROOT, WITHOUT_AWS, image, read_by_the_server
from tests.rights.test_policies import _Loader

TEMPLATE = FOLDER / "ecs.yaml"


@pytest.fixture(scope="module")
def resources() -> dict:
    return yaml.load(TEMPLATE.read_text(), _Loader)["Resources"]


@pytest.fixture(scope="module")
def tasks(resources) -> dict:
    return {
        name.removesuffix("Task").lower(): one["Properties"]
        for name, one in resources.items()
        if one["Type"] == "AWS::ECS::TaskDefinition"
    }


def test_the_template_passes_cfn_lint():
    from cfnlint.api import ManualArgs, lint

    assert [
        str(match) for match in lint(TEMPLATE.read_text(), config=ManualArgs(regions=["eu-west-1", "us-east-1"]))
    ] == []


def test_every_process_is_a_task_and_every_one_but_prepare_a_service(resources, tasks):
    assert set(tasks) == set(PROCESSES)
    services = [one["Properties"] for one in resources.values() if one["Type"] == "AWS::ECS::Service"]
    assert {one["TaskDefinition"]["Ref"] for one in services} == {f"{name.title()}Task" for name in PROCESSES[1:]}
    # none starts before the database was prepared, by the image that comes next
    assert all(one["DesiredCount"]["Fn::If"][0::2] == ["Runs", 0] for one in services)
    images = {name: task["ContainerDefinitions"][0]["Image"]["Ref"] for name, task in tasks.items()}
    assert images == {name: "PrepareImage" if name == "prepare" else "Image" for name in PROCESSES}
    assert not any(one.get("EnableExecuteCommand") for one in services), (
        "nobody gets a shell in a process that has rights"
    )


@pytest.mark.parametrize("name", PROCESSES)
def test_a_task_runs_as_the_image_says_and_writes_to_one_place(tasks, name):
    (container,) = tasks[name]["ContainerDefinitions"]
    assert container["Command"] == [name] and container["User"] == image().user
    assert container["ReadonlyRootFilesystem"] is True and container["LinuxParameters"]["Capabilities"] == {
        "Drop": ["ALL"]
    }
    assert [one["ContainerPath"] for one in container["MountPoints"]] == image().volumes
    assert ("HealthCheck" in container) == (name == "web")


@pytest.mark.parametrize("name", PROCESSES)
def test_only_reader_and_actor_have_a_role_each_its_own(resources, tasks, name):
    if name in WITHOUT_AWS:
        assert "TaskRoleArn" not in tasks[name]
        return
    assert tasks[name]["TaskRoleArn"] == {"Fn::GetAtt": f"{name.title()}ProcessRole.Arn"}
    role = resources[f"{name.title()}ProcessRole"]["Properties"]
    assert role["RoleName"] == f"healthboard-{name}-process" and "ManagedPolicyArns" not in role
    ((ours,),) = [p["PolicyDocument"]["Statement"] for p in role["Policies"]]
    shipped = json.loads((ROOT / f"docs/aws/{name}-process-policy.json").read_text())["Statement"][0]
    assert (ours["Effect"], ours["Action"]) == (shipped["Effect"], shipped["Action"])
    assert ours["Resource"]["Fn::Sub"].replace("${AWS::Partition}", "aws") == shipped["Resource"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


@pytest.mark.parametrize("name", PROCESSES)
def test_secrets_come_from_outside_and_each_process_gets_its_own(tasks, name):
    (container,) = tasks[name]["ContainerDefinitions"]
    said = {one["Name"]: one["ValueFrom"]["Fn::Sub"] for one in container["Secrets"]}
    own = {"DATABASE_OWNER_URL"} if name == "prepare" else {"REDIS_URL"}
    own |= {"HEALTHBOARD_EXTERNAL_ID"} if name not in WITHOUT_AWS else set()
    assert set(said) == {"DATABASE_URL", "HEALTHBOARD_SECRET_KEY"} | own
    assert said.get("REDIS_URL") in (None, f"/${{ParameterPath}}/{name}/REDIS_URL")
    plain = {one["Name"] for one in container["Environment"]}
    assert plain | set(said) <= read_by_the_server() and not plain & set(said)
