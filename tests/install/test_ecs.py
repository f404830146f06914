"""ecs.yaml: a task definition for each process, rights for two of them."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from django.core.management import get_commands

from healthboard.celery import TAKES
from tests.install.shipped import (
    FOLDER,
    MANAGE,
    OPTIONAL,
    PROCESSES,
    README,
    ROOT,
    WITHOUT_AWS,
    image,
    read_by_the_server,
)
from tests.rights.test_policies import _Loader

TEMPLATE = FOLDER / "ecs.yaml"
TASKS = (*PROCESSES, MANAGE)


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


def test_every_process_is_a_task_and_every_one_but_prepare_and_commands_a_service(resources, tasks):
    assert set(tasks) == set(TASKS)
    services = [one["Properties"] for one in resources.values() if one["Type"] == "AWS::ECS::Service"]
    assert {one["TaskDefinition"]["Ref"] for one in services} == {f"{name.title()}Task" for name in PROCESSES[1:]}
    # none starts before the database was prepared, by the image that comes next
    assert all(one["DesiredCount"]["Fn::If"][0::2] == ["Runs", 0] for one in services)
    images = {name: task["ContainerDefinitions"][0]["Image"]["Ref"] for name, task in tasks.items()}
    assert images == {name: "PrepareImage" if name == "prepare" else "Image" for name in TASKS}
    assert not any(one.get("EnableExecuteCommand") for one in services), (
        "nobody gets a shell in a process that has rights"
    )


@pytest.mark.parametrize("name", TASKS)
def test_a_task_runs_as_the_image_says_and_writes_to_one_place(tasks, name):
    (container,) = tasks[name]["ContainerDefinitions"]
    assert container["Command"] == [name if name != MANAGE else "help"] and container["User"] == image().user
    # the words of `run-task` replace Command alone
    assert container.get("EntryPoint") == ([*image().entrypoint, MANAGE] if name == MANAGE else None)
    assert container["ReadonlyRootFilesystem"] is True and container["LinuxParameters"]["Capabilities"] == {
        "Drop": ["ALL"]
    }
    assert [one["ContainerPath"] for one in container["MountPoints"]] == image().volumes
    assert ("HealthCheck" in container) == (name == "web")


@pytest.mark.parametrize("name", TASKS)
def test_only_reader_and_actor_have_a_role_each_its_own(resources, tasks, name):
    if name in (*WITHOUT_AWS, MANAGE):
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


@pytest.mark.parametrize("name", TASKS)
def test_secrets_come_from_outside_and_each_process_gets_its_own(tasks, name):
    (container,) = tasks[name]["ContainerDefinitions"]
    said = {one["Name"]: one["ValueFrom"]["Fn::Sub"] for one in container["Secrets"] if "Fn::If" not in one}
    own = {"DATABASE_OWNER_URL"} if name == "prepare" else {"REDIS_URL"}
    own |= {"HEALTHBOARD_EXTERNAL_ID"} if name in ("reader", "actor") else set()
    assert set(said) == {"DATABASE_URL", "HEALTHBOARD_SECRET_KEY"} | own
    assert said.get("REDIS_URL") in (None, f"/${{ParameterPath}}/{name if name != MANAGE else 'web'}/REDIS_URL")
    plain = {one["Name"] for one in container["Environment"]}
    assert plain | set(said) <= read_by_the_server() and not plain & set(said)


@pytest.mark.parametrize("name", TASKS)
def test_a_secret_that_only_some_need_is_given_where_its_parameter_says_so_to_its_process_alone(tasks, name):
    (container,) = tasks[name]["ContainerDefinitions"]
    asked = [one["Fn::If"] for one in container["Secrets"] if "Fn::If" in one]
    assert all(none == {"Ref": "AWS::NoValue"} for _, _, none in asked)
    said = {one["Name"]: (condition, one["ValueFrom"]["Fn::Sub"]) for condition, one, _ in asked}
    wanted = {one: one for one, whose in OPTIONAL.items() if whose == name}
    wanted |= {"DJANGO_SUPERUSER_PASSWORD": "FIRST_PASSWORD"} if name == MANAGE else {}
    assert said == {
        one: (f"Has{from_.removeprefix('HEALTHBOARD_').title().replace('_', '')}", f"/${{ParameterPath}}/{from_}")
        for one, from_ in wanted.items()
    }


def test_each_of_these_parameters_is_a_condition_that_is_off_by_itself_and_in_the_readme():
    template = yaml.load(TEMPLATE.read_text(), _Loader)
    for name in ("MetricsToken", "OidcClientSecret", "SecretKeyFallbacks", "SmtpPassword", "FirstPassword"):
        assert template["Parameters"][name]["Default"] == "false" and f"{name}=true" in README
        assert template["Conditions"][f"Has{name}"] == {"Fn::Equals": [{"Ref": name}, "true"]}


@pytest.mark.parametrize("name", TASKS)
def test_every_task_reads_the_file_of_further_settings_which_the_agent_may_fetch(resources, tasks, name):
    (container,) = tasks[name]["ContainerDefinitions"]
    one = {"Type": "s3", "Value": {"Ref": "EnvironmentFile"}}
    assert container["EnvironmentFiles"] == {"Fn::If": ["HasEnvironmentFile", [one], {"Ref": "AWS::NoValue"}]}
    (policy,) = resources["ExecutionRole"]["Properties"]["Policies"]
    may = [s["Fn::If"][1] for s in policy["PolicyDocument"]["Statement"] if "Fn::If" in s]
    assert [(s["Action"], s["Resource"]) for s in may] == [
        ("s3:GetObject", {"Ref": "EnvironmentFile"}),
        ("s3:GetBucketLocation", {"Fn::Select": [0, {"Fn::Split": ["/", {"Ref": "EnvironmentFile"}]}]}),
    ]


def test_whoever_writes_links_knows_where_the_pages_are(tasks):
    """`settings.URL` comes from HEALTHBOARD_ORIGINS: without it a message, or the call before a drain, links to nothing."""
    folders = {path.parent for path in (ROOT / "workers").rglob("*.py") if "settings.URL" in path.read_text()}
    stages = {folder.relative_to(ROOT / "workers").parts[0] for folder in folders} | {
        "notify"
    }  # by healthboard/notices
    writers = {name for name, taken in TAKES.items() if name != "all" and stages & set(taken)} | {"web"}
    told = {
        name for name in TASKS
        if "HEALTHBOARD_ORIGINS" in {one["Name"] for one in tasks[name]["ContainerDefinitions"][0]["Environment"]}
    }  # fmt: skip
    assert writers == {"web", "actor", "sender"} == told


def test_the_commands_of_the_readme_are_commands_and_hold_no_password(tasks):
    found = [json.loads(one)["containerOverrides"] for one in re.findall(r"'(\{\"containerOverrides.*?\]\})'", README)]
    assert len(found) == README.count("containerOverrides") >= 3
    for ((one),) in found:
        assert one["name"] == MANAGE == tasks[MANAGE]["ContainerDefinitions"][0]["Name"] and set(one) == {
            "name",
            "command",
        }
        assert one["command"][0] in get_commands() and not re.search("passw|secret", " ".join(one["command"]), re.I)
