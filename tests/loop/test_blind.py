"""AWS is silent or refuses: nothing is concluded from that, nothing new starts, and what was held goes on after."""

from __future__ import annotations

import time

import pytest

from tests.loop.conftest import set_default_policy
from tests.loop.stack import changing

pytestmark = pytest.mark.loop


@pytest.fixture(scope="module")
def stack(make_stack):
    made = make_stack(HEALTHBOARD_SANDBOX_POOLS="train=group:3,infer=group:2,solo=template:12")
    set_default_policy(made, undo_s=2)
    return made


# different codes: equal ones on so many of a small pool would be one incident
@pytest.mark.parametrize(
    ("trouble", "first", "second"), [("off", "XID_79", "ROW_REMAP_FAILURE"), ("throttle", "XID_64", "XID_79")]
)
def test_no_case_from_silence_and_the_held_repair_finishes_after(stack, trouble, first, second):
    instance = stack.members("solo")[0]
    before = {c["id"] for c in stack.cases()}
    stack.inject(instance, first, "--gpu", "1")
    stack.until(
        lambda: changing(stack.fleet(), "UpdateContainerInstancesState", target=instance), 150, "the drain to begin"
    )
    stack.manage("sandbox", "aws", trouble)
    stack.until(lambda: _blind(stack), 60, "the system to see that it is blind", every=2)
    fresh = stack.members("solo")[1]
    stack.inject(fresh, second, "--gpu", "2")
    time.sleep(15)
    new = {c["id"]: c for c in stack.cases() if c["id"] not in before}
    assert {i for c in new.values() for i in c["instances"]} <= {instance, fresh}
    assert not changing(stack.fleet(), "UpdateContainerInstancesState", target=fresh)
    stack.manage("sandbox", "aws", "ok")
    for name in (instance, fresh):
        stack.repaired(name, 240)
        assert len(changing(stack.fleet(), "TerminateInstances", target=name)) == 1


def _blind(stack) -> bool:
    return (
        stack.shell(
            "from healthboard.fleet.models import *;from healthboard.fleet.sources import blind;from healthboard import clock;"
            "print(any(blind(s, clock.now()) for s in Source.objects.filter(name__in=['ec2','ecs'])))"
        )
        == "True"
    )


def test_bad_reports_are_refused_and_store_nothing(stack):
    instance = stack.members("solo")[2]
    token = stack.manage("node-token", instance).stdout.strip()
    path = "/api/v1/node/reports"
    count = "from healthboard.fleet.models import *;print(HealthEvent.objects.count(), Head.objects.filter(channel='node').count())"
    before = stack.shell(count)
    good = {
        "schema": 1, "reporter": "1.0.0", "boot_id": "b" * 36, "seq": 10**9, "sent_at": "2020-01-01T00:00:00Z",
        "uptime_s": 5.0, "driver": "580.1", "nvml": {"state": "ok", "code": 0, "detail": ""}, "gpu_count": 0, "gpus": [],
        "kernel": [],
    }  # fmt: skip
    refused = {
        "wrong token": stack.request("POST", path, good, token="nonsense"),
        "no token": stack.request("POST", path, good, token=""),
        "a person's token": stack.request("POST", path, good, user="admin"),
        "another instance": stack.request("POST", path, {**good, "instance_id": "i-0123456789abcdef0"}, token=token),
        "not JSON": stack.request("POST", path, raw=b"\x00{not json", token=token),
        "a list": stack.request("POST", path, [good], token=token),
        "wrong types": stack.request("POST", path, {**good, "gpus": "eight", "seq": "x"}, token=token),
        "10 MB": stack.request("POST", path, raw=b"[" + b"1," * 5_000_000 + b"1]", token=token),
        "plain text": stack.request("POST", path, raw=b"hello", token=token, headers={"Content-Type": "text/plain"}),
    }
    for what, (status, answer) in refused.items():
        assert 400 <= status < 500 or (what == "10 MB" and status == 0), (what, status, answer)
        if status:
            assert isinstance(answer, dict) and answer.get("error"), (what, answer)
    assert stack.get("/healthz", token="")[0] == 200
    assert stack.shell(count) == before
