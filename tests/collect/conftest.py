"""A sandbox of its own for each test module that asks for one, without faults and without nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest

from healthboard import aws, wake
from tests.sandbox.conftest import boto

ACCOUNTS = ("111122223333", "444455556666")
REGIONS = ("us-east-1", "eu-west-1")


def start(home: Path, *, limit_s: float = 20, **more: str) -> SimpleNamespace:
    """A sandbox process on a spare port, its state in `home`."""
    env = {
        **os.environ,
        "HEALTHBOARD_MODE": "sandbox",
        "HEALTHBOARD_HOME": str(home),
        "HEALTHBOARD_SANDBOX_SCRIPT": "off",
        "HEALTHBOARD_SANDBOX_NODES": "off",
        "HEALTHBOARD_SANDBOX_POOLS": "train=group:6,solo=template:4",
        **more,
    }
    code = "from healthboard.sandbox.server import main; raise SystemExit(main())"
    log = (home / "sandbox.log").open("w")
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=log, stderr=log)
    url = home / "run" / "sandbox.url"
    for _ in range(int(limit_s / 0.05)):
        if url.exists():
            return SimpleNamespace(home=home, process=process, url=url.read_text().strip())
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    raise RuntimeError("the sandbox did not start: " + (home / "sandbox.log").read_text())


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    """There is none in these tests; waiting for it to refuse would make them slow."""
    monkeypatch.setattr(wake, "_quiet_until", float("inf"))


@pytest.fixture(scope="module")
def sandbox_process(tmp_path_factory):
    started = start(
        tmp_path_factory.mktemp("sandbox"),
        HEALTHBOARD_ACCOUNTS=",".join(ACCOUNTS),
        HEALTHBOARD_REGIONS=",".join(REGIONS),
    )
    yield started
    started.process.terminate()
    started.process.wait(10)


@pytest.fixture
def sandbox(sandbox_process, monkeypatch):
    """The sandbox that `aws.client` finds in this test."""
    monkeypatch.setenv("HEALTHBOARD_HOME", str(sandbox_process.home))
    monkeypatch.setattr(aws, "READ_ATTEMPTS", 1)  # botocore's own pauses between attempts would make the tests slow
    monkeypatch.setattr(aws, "_clients", {})
    yield sandbox_process
    control(sandbox_process, "aws", mode="ok")
    control(sandbox_process, "rules", rules=[])


def control(sandbox, path: str, **body):
    """One of the sandbox's control URLs."""
    request = urllib.request.Request(
        f"{sandbox.url}/_sandbox/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


@pytest.fixture
def account(db):
    from healthboard.fleet.models import Account  # models only once Django is set up

    return Account.objects.create(account_id=ACCOUNTS[0])


def client(service: str, account: str = ACCOUNTS[0], region: str = REGIONS[0]) -> boto3.client:
    """Somebody else's client: healthboard's own sends its declared operations and no others."""
    return boto(aws.sandbox_endpoint(), service, account, region)


def again() -> None:
    """Let the next round begin at once."""
    from healthboard.fleet.models import Source

    Source.objects.update(attempted_at=None)


def rounds(account, region: str = REGIONS[0], count: int = 2) -> None:
    """Full rounds of both collectors, ECS after EC2."""
    from workers.collect import ec2, ecs

    for _ in range(count):
        again()
        assert ec2.collect(account, region)
        assert ecs.collect(account, region)
