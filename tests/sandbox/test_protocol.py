"""Unmodified boto3 gets AWS's protocols, errors included."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError
from botocore.serialize import create_serializer
from hypothesis import given, settings
from hypothesis import strategies as st

from healthboard.sandbox.protocol.models import SERVICES, protocol_of, service_model
from healthboard.sandbox.protocol.parse import parse
from tests.sandbox.conftest import ACCOUNT, boto, code_of


def test_it_speaks_the_protocol_that_botocore_chose_for_each_service():
    assert {s: protocol_of(s) for s in SERVICES} == {
        "ec2": "ec2",
        "ecs": "json",
        "autoscaling": "query",
        "sts": "query",
        "sqs": "json",
    }


def test_the_account_comes_from_the_key_and_the_region_from_the_signature(calm):
    assert boto(calm.url, "sts").get_caller_identity()["Account"] == ACCOUNT
    assert boto(calm.url, "ec2", region="eu-west-1").describe_instances()["Reservations"] == []


def test_an_assumed_role_brings_keys_of_its_account(calm):
    sts = boto(calm.url, "sts")
    keys = sts.assume_role(RoleArn=f"arn:aws:iam::{ACCOUNT}:role/x", RoleSessionName="session")["Credentials"]
    assert boto(calm.url, "sts", key=keys["AccessKeyId"]).get_caller_identity()["Account"] == ACCOUNT
    assert (
        code_of(lambda: sts.assume_role(RoleArn="arn:aws:iam::999999999999:role/x", RoleSessionName="session"))
        == "AccessDenied"
    )


@pytest.mark.parametrize(
    "service, call, code",
    [
        ("ec2", lambda c: c.describe_instances(), "AuthFailure"),
        ("ecs", lambda c: c.list_clusters(), "UnrecognizedClientException"),
        ("autoscaling", lambda c: c.describe_auto_scaling_groups(), "InvalidClientTokenId"),
        ("sts", lambda c: c.get_caller_identity(), "InvalidClientTokenId"),
    ],
)
def test_a_key_of_nobody_is_refused_in_each_protocol(calm, service, call, code):
    assert code_of(lambda: call(boto(calm.url, service, account="999999999999"))) == code


@pytest.mark.parametrize(
    "service, call, code",
    [
        ("ec2", lambda c: c.describe_vpcs(), "UnsupportedOperation"),
        ("ecs", lambda c: c.describe_task_sets(cluster="gpu", service="x"), "UnknownOperationException"),
        ("autoscaling", lambda c: c.describe_policies(), "UnsupportedOperation"),
    ],
)
def test_an_operation_that_it_does_not_know_is_an_aws_error(calm, service, call, code):
    with pytest.raises(ClientError) as caught:
        call(boto(calm.url, service))
    assert caught.value.response["Error"]["Code"] == code
    assert "sandbox does not know" in caught.value.response["Error"]["Message"]


def test_a_request_without_a_signature_is_refused_and_never_html(calm):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(calm.url, data=b"Action=DescribeInstances", timeout=5)
    assert caught.value.code == 403 and b"MissingAuthenticationToken" in caught.value.read()


def test_the_control_urls_refuse_other_hosts_and_browsers(calm):
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        request = urllib.request.Request(f"{calm.url}/_sandbox/status", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=5)
        assert caught.value.code == 403


words = st.text(st.characters(categories=("L", "N", "P", "Zs"), max_codepoint=0x2FFF), min_size=1, max_size=20)
tags = st.lists(st.fixed_dictionaries({"Key": words, "Value": words}), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 99), token=words, tags=tags, dry=st.booleans(), data=st.binary(max_size=30))
def test_what_botocore_writes_for_ec2_is_read_back_as_given(count, token, tags, dry, data):
    given_params = {
        "MinCount": count,
        "MaxCount": count,
        "ClientToken": token,
        "DryRun": dry,
        "LaunchTemplate": {"LaunchTemplateName": token, "Version": "$Latest"},
        "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
        "NetworkInterfaces": [{"DeviceIndex": count, "SubnetId": "s", "Groups": ["a", "b"]}],
    }
    assert _there_and_back("ec2", "RunInstances", given_params) == given_params


@settings(max_examples=40, deadline=None)
@given(ids=st.lists(words, min_size=1, max_size=12), flag=st.booleans(), name=words)
def test_what_botocore_writes_for_auto_scaling_is_read_back_as_given(ids, flag, name):
    params = {"InstanceIds": ids, "AutoScalingGroupName": name, "ShouldDecrementDesiredCapacity": flag}
    assert _there_and_back("autoscaling", "EnterStandby", params) == params


@settings(max_examples=40, deadline=None)
@given(ids=st.lists(words, min_size=1, max_size=12), name=words)
def test_what_botocore_writes_for_ecs_is_read_back_as_given(ids, name):
    params = {"cluster": name, "containerInstances": ids, "include": ["TAGS"]}
    assert _there_and_back("ecs", "DescribeContainerInstances", params) == params


def _there_and_back(service, operation, params):
    from urllib.parse import urlencode

    model = service_model(service)
    request = create_serializer(protocol_of(service), False).serialize_to_request(
        params, model.operation_model(operation)
    )
    body = request["body"] if isinstance(request["body"], bytes) else urlencode(request["body"]).encode()
    read_operation, read = parse(service, request["headers"], body)
    assert read_operation == operation
    return read
