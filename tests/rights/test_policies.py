"""The shipped IAM policies list exactly the operations that the code declares, and bind each changing one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml

from healthboard import operations
from tests.rights import asked, iam
from tests.rights.iam import Request, actions, allowed, policy

AT = "eu-west-1:123456789012"
MANAGED = {"healthboard:managed": "true"}
ROLES = ("reader", "actor")
CHANGING = sorted(
    asked.action(service, name)
    for service, names in operations.CHANGING.items() for name in names if name != "RunInstances"
)  # fmt: skip
#: with it a role could free itself, or a machine, of its bonds
NEVER = (
    "ec2:DeleteTags", "ec2:CreateTags", "autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags", "ecs:TagResource",
    "ecs:UntagResource", "ec2:ModifyInstanceAttribute", "ec2:ModifyInstanceMetadataOptions",
    "ec2:AssociateIamInstanceProfile", "ec2:ReplaceIamInstanceProfileAssociation",
)  # fmt: skip


def needed(process: str) -> set[str]:
    """IAM actions of the operations that the process declares."""
    found: set[str] = set()
    for service, names in operations.OF[process].items():
        for name in names:
            found |= {asked.action(service, name)} | asked.ALSO.get((service, name), set())
    return found


def without(statements: list[iam.Statement], action: str) -> list[iam.Statement]:
    """The same policy with one allowed action taken out."""
    left = copy.deepcopy(statements)
    for one in left:
        if one["Effect"] == "Allow":
            one["Action"] = [name for name in iam.listed(one["Action"]) if name != action]
    return [one for one in left if one["Action"]]


def about(action: str, tags: dict[str, str]) -> Request:
    """The question that IAM is asked for a changing call on a resource with these tags."""
    operation = action.partition(":")[2]
    if operation in asked.ON_INSTANCES:
        return asked.instance(action, AT, "i-0123456789abcdef0", tags)
    if action == "ecs:UpdateContainerInstancesState":
        return asked.container(action, AT, "gpu", "0f00ba7", tags)
    if action == "ecs:DeregisterContainerInstance":
        return Request(action, f"arn:aws:ecs:{AT}:cluster/gpu", {f"aws:ResourceTag/{k}": v for k, v in tags.items()})
    return asked.group(action, AT, "train-asg", tags)


@pytest.mark.parametrize("process", ROLES)
def test_a_policy_allows_the_declared_operations_no_more_and_no_less(process):
    assert set(actions(policy(f"{process}-policy"))) == needed(process)
    assert not [action for action in actions(policy(f"{process}-policy")) if "*" in action]


@pytest.mark.parametrize("process", ROLES)
def test_one_action_too_few_or_too_many_is_seen(process):
    """The comparison above is no formality: each single action that is taken out or put in makes it fail."""
    statements = policy(f"{process}-policy")
    for action in needed(process):
        assert set(actions(without(statements, action))) != needed(process), action
    more = [*statements, {"Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"}]
    assert set(actions(more)) != needed(process)


def test_the_boundary_is_what_both_roles_need_together():
    assert set(actions(policy("boundary-policy"))) == needed("reader") | needed("actor")
    assert not [one for one in policy("boundary-policy") if "Condition" in one and one["Effect"] == "Allow"]


def test_the_stop_denies_every_changing_operation_and_nothing_else():
    changing = {asked.action(service, name) for service, names in operations.CHANGING.items() for name in names}
    assert set(actions(policy("stop-policy"), "Deny")) == changing and actions(policy("stop-policy")) == []
    paused = next(one for one in policy("actor-policy") if one["Sid"] == "NothingThatIsPaused")
    assert set(paused["Action"]) == changing - {"ec2:RunInstances"}


@pytest.mark.parametrize("action", CHANGING)
def test_a_changing_call_is_allowed_on_what_is_managed_and_on_nothing_else(action):
    statements = policy("actor-policy")
    assert allowed(statements, about(action, MANAGED))
    assert not allowed(without(statements, action), about(action, MANAGED))
    for foreign in ({}, {"healthboard:managed": "false"}, {"managed": "true"}, {"Name": "prod-db"}):
        assert not allowed(statements, about(action, foreign)), foreign
    assert not allowed(statements, about(action, {**MANAGED, "healthboard:pause": ""})), "paused"
    assert not allowed(statements + policy("stop-policy"), about(action, MANAGED)), "stopped"
    assert not allowed(policy("reader-policy"), about(action, MANAGED)), "the reader changes nothing"
    assert allowed(policy("boundary-policy"), about(action, MANAGED))


@pytest.mark.parametrize("action", NEVER)
@pytest.mark.parametrize("name", ["actor-policy", "boundary-policy"])
def test_tags_and_attributes_are_denied_whatever_else_a_role_is_given(action, name):
    anything = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
    for tags in ({}, MANAGED):
        assert not allowed(policy(name) + anything, asked.instance(action, AT, "i-1", tags))


def test_tags_are_given_at_launch_alone():
    at_launch = Request("ec2:CreateTags", f"arn:aws:ec2:{AT}:instance/*", {"ec2:CreateAction": "RunInstances"})
    assert allowed(policy("actor-policy"), at_launch)
    for other in ("CreateVolume", "StartInstances"):
        assert not allowed(
            policy("actor-policy"), Request("ec2:CreateTags", at_launch.resource, {"ec2:CreateAction": other})
        )


def test_only_the_nodes_role_is_passed_and_only_to_ec2():
    def passing(role: str, service: str) -> Request:
        return Request("iam:PassRole", f"arn:aws:iam::123456789012:role/{role}", {"iam:PassedToService": service})

    assert allowed(policy("actor-policy"), passing("healthboard-node", "ec2.amazonaws.com"))
    assert not allowed(policy("actor-policy"), passing("admin", "ec2.amazonaws.com"))
    assert not allowed(policy("actor-policy"), passing("healthboard-node", "lambda.amazonaws.com"))


def test_the_reader_receives_from_the_queue_of_our_events_alone():
    for action in ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueUrl"):
        assert allowed(policy("reader-policy"), Request(action, f"arn:aws:sqs:{AT}:healthboard-events"))
        assert not allowed(policy("reader-policy"), Request(action, f"arn:aws:sqs:{AT}:payments"))
        assert not allowed(policy("actor-policy"), Request(action, f"arn:aws:sqs:{AT}:healthboard-events"))


@pytest.mark.parametrize("name", sorted(path.stem for path in iam.FOLDER.glob("*.json")))
def test_a_policy_fits_into_a_managed_policy(name):
    text = (iam.FOLDER / f"{name}.json").read_text()
    assert len("".join(text.split())) <= 6144
    assert json.loads(text)["Version"] == "2012-10-17"


# --- the template


class _Loader(yaml.SafeLoader):
    """CloudFormation's short forms, as {"Ref": …}, {"Fn::Sub": …}, {"Fn::GetAtt": …}."""


def _short(loader: _Loader, tag: str, node: yaml.Node) -> Any:
    made = (
        loader.construct_scalar(node)
        if isinstance(node, yaml.ScalarNode)
        else loader.construct_sequence(node, deep=True)
    )
    return {"Ref": made} if tag == "Ref" else {f"Fn::{tag}": made}


_Loader.add_multi_constructor("!", _short)


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    return yaml.load((iam.FOLDER / "healthboard.yaml").read_text(), _Loader)


def filled(value: Any) -> Any:
    """With the defaults of its parameters, in whatever account."""
    if isinstance(value, dict) and set(value) == {"Fn::Sub"}:
        text = value["Fn::Sub"].replace("${AWS::Partition}", "aws").replace("${AWS::AccountId}", "*")
        return text.replace("${NodeRole}", "healthboard-node").replace("${QueueName}", "healthboard-events")
    if isinstance(value, dict):
        return {key: filled(one) for key, one in value.items()}
    return [filled(one) for one in value] if isinstance(value, list) else value


def test_the_template_makes_the_same_policies(template):
    resources = template["Resources"]
    for name, role in (("reader", "ReaderRole"), ("actor", "ActorRole")):
        properties = resources[role]["Properties"]
        (inline,) = properties["Policies"]
        assert filled(inline["PolicyDocument"]["Statement"]) == policy(f"{name}-policy")
        assert properties["PermissionsBoundary"] == {"Ref": "Boundary"}
        assert "ManagedPolicyArns" not in properties
    boundary = resources["Boundary"]["Properties"]["PolicyDocument"]["Statement"]
    assert filled(boundary) == policy("boundary-policy")


@pytest.mark.parametrize("name", ROLES)
def test_a_role_is_assumed_by_its_own_process_with_the_external_id(template, name):
    (made,) = template["Resources"][f"{name.title()}Role"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    (shipped,) = policy(f"{name}-trust")
    assert made["Principal"] == {"AWS": {"Ref": f"{name.title()}Principal"}}
    for one, secret in ((made, {"Ref": "ExternalId"}), (shipped, "EXTERNAL-ID")):
        assert (one["Effect"], one["Action"], one["Sid"]) == (
            "Allow",
            "sts:AssumeRole",
            f"OnlyThe{name.title()}Process",
        )
        assert one["Condition"] == {
            "StringEquals": {"sts:ExternalId": secret, "sts:RoleSessionName": f"healthboard-{name}"}
        }
    (home,) = policy(f"{name}-process-policy")
    assert (home["Action"], home["Resource"]) == ("sts:AssumeRole", f"arn:aws:iam::*:role/healthboard-{name}")


def test_only_our_rule_sends_to_the_queue_and_what_is_in_it_is_encrypted(template):
    resources = template["Resources"]
    allow, deny = resources["EventsPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert allow["Principal"] == {"Service": "events.amazonaws.com"} and allow["Action"] == "sqs:SendMessage"
    assert allow["Condition"]["ArnEquals"] == {"aws:SourceArn": {"Fn::GetAtt": "Rule.Arn"}}
    assert allow["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert allow["Resource"] == deny["Resource"] == {"Fn::GetAtt": "Events.Arn"}
    assert resources["Events"]["Properties"]["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": "DeadEvents.Arn"}
    assert all(resources[name]["Properties"]["SqsManagedSseEnabled"] is True for name in ("Events", "DeadEvents"))


def test_the_rule_asks_for_every_kind_of_event_that_is_read(template):
    from healthboard.diagnosis import envelopes

    pattern = template["Resources"]["Rule"]["Properties"]["EventPattern"]
    assert set(pattern["detail-type"]) == set(envelopes.KINDS)
    assert pattern["source"] == ["aws.ecs", "aws.ec2", "aws.health"]


def test_the_template_passes_cfn_lint():
    from cfnlint.api import ManualArgs, lint

    found = lint((iam.FOLDER / "healthboard.yaml").read_text(), config=ManualArgs(regions=["eu-west-1", "us-east-1"]))
    assert [str(match) for match in found] == []
