"""Sandbox mode reaches loopback and nothing else, whatever the environment and the user's files say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from botocore.awsrequest import AWSPreparedRequest

from healthboard import aws, aws_roles
from healthboard.config import BadSetting

#: looks real, belongs to nobody: AWS's own example keys
KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

PROBE = """
import socket, sys
asked = []
real = socket.getaddrinfo
def watch(host, *args, **kw):
    asked.append(str(host))
    return real(host, *args, **kw)
socket.getaddrinfo = watch
from healthboard import aws
for changing in (False, True):
    for service, call in (("ec2", "describe_instances"), ("ecs", "describe_clusters"),
                          ("autoscaling", "describe_auto_scaling_groups"), ("sts", "get_caller_identity"),
                          ("sqs", "get_queue_url"))[:4 if changing else 5]:
        client = aws.client(service, account="111122223333", region="us-east-1", changing=changing)
        getattr(client, call)(**({'QueueName': 'healthboard-events'} if service == 'sqs' else {}))
        key = client._request_signer._credentials.access_key
        assert key == "ASANDBOX111122223333", key
        assert client.meta.config.retries["total_max_attempts"] == (1 if changing else aws.READ_ATTEMPTS)
outside = {host for host in asked if host not in ("127.0.0.1", "::1", "localhost")}
assert not outside, outside
print("only loopback:", len(asked))
"""


def test_real_looking_credentials_change_nothing(sandbox_process, tmp_path):
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(f"[default]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")
    (folder / "config").write_text(
        "[default]\nregion=eu-central-1\nendpoint_url=https://ec2.eu-central-1.amazonaws.com\nretry_mode=legacy\n"
        "max_attempts=9\nuse_fips_endpoint=true\nca_bundle=/nonexistent\n"
        "[profile prod]\nrole_arn=arn:aws:iam::123456789012:role/admin\nsource_profile=default\n"
        "[services x]\nec2 =\n  endpoint_url = https://example.com\n"
    )
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "HEALTHBOARD_MODE": "sandbox",
        "HEALTHBOARD_HOME": str(sandbox_process.home),
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEXAMPLE",
        "AWS_PROFILE": "prod",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "https://ec2.eu-central-1.amazonaws.com",
        "AWS_ENDPOINT_URL_EC2": "https://ec2.eu-central-1.amazonaws.com",
        "AWS_USE_FIPS_ENDPOINT": "true",
        "AWS_USE_DUALSTACK_ENDPOINT": "true",
        "AWS_CA_BUNDLE": "/nonexistent",
        "AWS_MAX_ATTEMPTS": "7",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.2/x",
        "HTTP_PROXY": "http://192.0.2.1:3128",
        "HTTPS_PROXY": "http://192.0.2.1:3128",
        "http_proxy": "http://192.0.2.1:3128",
    }
    done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("only loopback:")


def test_a_request_that_would_leave_is_stopped_before_it_is_sent(sandbox, monkeypatch):
    api = aws.client("ec2", account="111122223333", region="us-east-1")
    api._endpoint.host = "https://ec2.us-east-1.amazonaws.com"
    api.meta.events.register_first(
        "before-call", lambda params, **_: params.update(url="https://ec2.us-east-1.amazonaws.com/")
    )
    with pytest.raises(aws.OutsideSandbox, match=r"ec2\.us-east-1\.amazonaws\.com"):
        api.describe_instances()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::1]:80/x", "http://127.8.0.1/"])
def test_loopback_addresses_are_let_through(url):
    aws.refuse_outside(AWSPreparedRequest("GET", url, {}, b"", False))


@pytest.mark.parametrize(
    "url",
    [
        "https://ec2.us-east-1.amazonaws.com/",
        "http://169.254.169.254/latest",
        "http://localhost.example.com/",
        "http://localhost:80/",  # a name could point anywhere
        "http://127.0.0.1@example.com/",
        "http://127.0.0.1.nip.io/",
        "http://0.0.0.0/",
        "http:///x",
        "",
    ],
)
def test_everything_else_is_refused(url):
    with pytest.raises(aws.OutsideSandbox):
        aws.refuse_outside(AWSPreparedRequest("GET", url, {}, b"", False))


@pytest.mark.parametrize("written", ["https://ec2.us-east-1.amazonaws.com", "http://10.0.0.1:80", "file:///etc", ""])
def test_an_endpoint_that_is_not_on_loopback_is_refused(written, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "sandbox.url").write_text(written)
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    with pytest.raises(BadSetting, match="not a loopback address"):
        aws.client("ec2", account="111122223333", region="us-east-1")


def test_without_a_sandbox_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    with pytest.raises(BadSetting, match="the sandbox is not running"):
        aws.client("ec2", account="111122223333", region="us-east-1")


# --- aws mode, without leaving the machine


@pytest.fixture
def real(monkeypatch, tmp_path):
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_aws_mode_without_accounts_or_regions_is_one_clear_line(real, monkeypatch):
    with pytest.raises(BadSetting, match="HEALTHBOARD_ACCOUNTS is not set"):
        aws.places()
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", "123456789012")
    with pytest.raises(BadSetting, match="HEALTHBOARD_REGIONS is not set"):
        aws.places()


def test_aws_mode_without_credentials_is_one_clear_line(real, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", "123456789012")
    monkeypatch.setenv("HEALTHBOARD_REGIONS", "eu-west-1")
    with pytest.raises(BadSetting, match="no AWS credentials found"):
        aws.client("ec2", account="123456789012", region="eu-west-1")


def test_credentials_of_another_account_are_refused(real, monkeypatch, sandbox_process):
    """The default chain is asked who it is, here at the sandbox's STS, before any client of the account is made."""
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", "444455556666")
    monkeypatch.setenv("HEALTHBOARD_REGIONS", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASANDBOX111122223333")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up")
    monkeypatch.setenv("AWS_ENDPOINT_URL", sandbox_process.url)
    with pytest.raises(BadSetting, match="belong to account 111122223333"):
        aws.client("ec2", account="444455556666", region="us-east-1")


def test_an_account_with_a_role_is_reached_by_assuming_it(real, monkeypatch, sandbox_process):
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", "111122223333,444455556666=arn:aws:iam::444455556666:role/healthboard")
    monkeypatch.setenv("HEALTHBOARD_REGIONS", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASANDBOX111122223333")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up")
    monkeypatch.setenv("AWS_ENDPOINT_URL", sandbox_process.url)
    monkeypatch.setattr(aws_roles, "_sessions", {})
    monkeypatch.setattr(aws, "_clients", {})
    for account in ("111122223333", "444455556666"):
        api = aws.client("sts", account=account, region="us-east-1")
        assert api.get_caller_identity()["Account"] == account


@pytest.mark.parametrize(
    "value, said",
    [("12345", "not an account"), ("123456789012=role", "not the ARN"), ("123456789012,123456789012", "twice")],
)
def test_bad_accounts_are_one_clear_line(monkeypatch, value, said):
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", value)
    with pytest.raises(BadSetting, match=said):
        aws.accounts()
