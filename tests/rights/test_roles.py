"""Which role each process assumes in which account, and how: in aws mode, at the sandbox's STS."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import botocore.session
import pytest

from healthboard import aws, aws_roles, operations
from healthboard.config import BadSetting
from tests.collect.conftest import ACCOUNTS

OWN, OTHER = ACCOUNTS
REGION = "eu-west-1"


@pytest.fixture
def real(monkeypatch, tmp_path, sandbox_process):
    """aws mode with made-up keys, the sandbox as its endpoint by botocore's own setting; what STS is asked."""
    for name, value in {
        "HEALTHBOARD_MODE": "aws", "HEALTHBOARD_ACCOUNTS": f"{OWN},{OTHER}", "HEALTHBOARD_REGIONS": REGION,
        "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": f"ASANDBOX{OWN}",
        "AWS_SECRET_ACCESS_KEY": "made-up", "AWS_ENDPOINT_URL": sandbox_process.url,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_roles, "_sessions", {})
    monkeypatch.setattr(aws, "_clients", {})
    asked: list[dict[str, Any]] = []
    plain = aws_roles._plain

    def watched() -> botocore.session.Session:
        made = plain()
        made.register("provide-client-params.sts.AssumeRole", lambda params, **_: asked.append(dict(params)))
        return made

    monkeypatch.setattr(aws_roles, "_plain", watched)
    return asked


def call(account: str, *, changing: bool = False, **more: Any) -> str:
    """The account that a call of this process arrives in."""
    api = aws.client("sts", account=account, region=REGION, changing=changing, **more)
    return api.get_caller_identity()["Account"]


@pytest.mark.parametrize("process, role", [("reader", "reading"), ("actor", "acting")])
def test_reader_and_actor_assume_a_role_of_their_own_in_every_account(real, monkeypatch, process, role):
    monkeypatch.setenv("HEALTHBOARD_READER_ROLE", "reading")
    monkeypatch.setenv("HEALTHBOARD_ACTOR_ROLE", "acting")
    monkeypatch.setenv("HEALTHBOARD_EXTERNAL_ID", "our-own-7")
    monkeypatch.setenv("HEALTHBOARD_PROCESS", process)
    assert [call(OWN), call(OTHER)] == [OWN, OTHER]
    assert [asked["RoleArn"] for asked in real] == [f"arn:aws:iam::{account}:role/{role}" for account in ACCOUNTS]
    assert {(asked["RoleSessionName"], asked["ExternalId"]) for asked in real} == {
        (f"healthboard-{process}", "our-own-7")
    }


def test_one_worker_for_all_reads_and_changes_under_different_roles(real, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_READER_ROLE", f"reading,arn:aws:iam::{OTHER}:role/path/elsewhere")
    monkeypatch.setenv("HEALTHBOARD_ACTOR_ROLE", "acting")
    call(OTHER)
    call(OTHER, changing=True)
    call(OTHER, part="actor")
    assert [asked["RoleArn"].rpartition("/")[2] for asked in real] == ["elsewhere", "acting"]
    assert all("ExternalId" not in asked for asked in real)


def test_without_roles_of_their_own_the_accounts_role_is_taken(real, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", f"{OWN},{OTHER}=arn:aws:iam::{OTHER}:role/healthboard")
    assert [call(OWN), call(OTHER)] == [OWN, OTHER]
    assert [asked["RoleArn"] for asked in real] == [f"arn:aws:iam::{OTHER}:role/healthboard"]


def test_the_probe_goes_by_the_rights_of_the_person_who_runs_it(real, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_ACTOR_ROLE", "acting")
    assert call(OWN, changing=True, allowed=operations.PROBE) == OWN
    assert real == []


@pytest.mark.parametrize("minutes, renewed", [(60, False), (16, False), (15, True)])
def test_credentials_are_kept_and_renewed_before_they_end(real, monkeypatch, minutes, renewed):
    """botocore renews those that last less than a quarter of an hour more, at their next use."""
    monkeypatch.setattr(aws_roles, "LASTS", timedelta(minutes=minutes))
    monkeypatch.setenv("HEALTHBOARD_READER_ROLE", "reading")
    for _ in range(4):
        call(OWN)
    assert len(real) >= 4 if renewed else len(real) == 1
    assert {asked["DurationSeconds"] for asked in real} == {minutes * 60}


def test_tokens_come_from_the_regions_own_sts(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_STS_REGIONAL_ENDPOINTS", "legacy")
    monkeypatch.setenv("HOME", str(tmp_path))
    made = aws_roles._plain().create_client(
        "sts", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    assert made.meta.endpoint_url == "https://sts.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("HEALTHBOARD_READER_ROLE", "a role!", "neither a role's name nor its ARN"),
        ("HEALTHBOARD_READER_ROLE", "arn:aws:iam::12:role/x", "neither a role's name nor its ARN"),
        ("HEALTHBOARD_EXTERNAL_ID", "x", "HEALTHBOARD_EXTERNAL_ID must have"),
    ],
)
def test_a_bad_role_or_external_id_is_one_clear_line(real, monkeypatch, name, value, said):
    monkeypatch.setenv("HEALTHBOARD_READER_ROLE", "reading")
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSetting, match=said):
        call(OWN)
