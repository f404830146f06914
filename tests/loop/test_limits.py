"""Never more than the pool can bear: budgets, and breadth that stops everything until a person releases it."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.loop.conftest import set_default_policy
from tests.loop.stack import changing

pytestmark = pytest.mark.loop


@pytest.fixture(scope="module")
def stack(make_stack):
    made = make_stack(speed=60)  # the whole fleet: ten of a smaller one would rightly be breadth
    set_default_policy(made, undo_s=2)
    return made


class Watch:
    """Counts, again and again, how many repairs are under way in a pool."""

    def __init__(self, stack, pools: tuple[str, ...]) -> None:
        self.stack, self.pools = stack, pools
        self.most = dict.fromkeys(pools, 0)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self._end.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._end.wait(1.0):
            instances = self.stack.standing()["instances"]
            for pool in self.pools:
                out = [
                    i for i in instances
                    if i["pool"] == pool and (i["status"] == "DRAINING" or (i["status"] == "ACTIVE" and i["state"] != "running"))
                ]  # fmt: skip
                self.most[pool] = max(self.most[pool], len(out))


def test_five_different_failures_in_each_pool_are_repaired_within_the_budget(stack):
    train, infer = stack.members("train")[:5], stack.members("infer")[:5]
    with Watch(stack, ("train", "infer")) as watch:
        for instance, code in zip(train, ("XID_79", "XID_95", "XID_62", "XID_110", "XID_140"), strict=True):
            stack.inject(instance, code)
        for instance, code in zip(infer, ("XID_79", "XID_95", "XID_62", "XID_48", "XID_140"), strict=True):
            stack.inject(instance, code)
        for instance in (*train, *infer):
            stack.repaired(instance, 500)
    assert 1 <= watch.most["train"] <= 4
    assert watch.most["infer"] == 1
    assert not [c for c in stack.cases() if c["verdict"] == "CORRELATED"]


def test_five_equal_failures_at_once_are_one_case_and_nothing_moves_until_it_is_released(stack):
    struck = stack.members("train")[5:10]
    stack.inject(struck, "XID_95")
    group = stack.until(lambda: _correlated(stack, len(struck)), 90, "one CORRELATED case of all five")
    assert sorted(group["instances"]) == sorted(struck)
    time.sleep(10)
    fleet = stack.fleet()
    for instance in struck:
        assert not changing(fleet, "UpdateContainerInstancesState", "RebootInstances", "EnterStandby", target=instance)
        assert stack.cases(instance, state="HELD")
    assert len([c for c in stack.cases() if c["verdict"] == "CORRELATED"]) == 1
    status, answer = stack.decide(stack.cases(struck[0], state="HELD")[0], "approve")
    assert status == 409, answer
    _release(stack, group["id"])
    with Watch(stack, ("train",)) as watch:
        for instance in struck:
            stack.repaired(instance, 400)
    assert 1 <= watch.most["train"] <= 4
    assert len([c for c in stack.cases() if c["verdict"] == "CORRELATED"]) == 1, "consumed evidence counts no more"


def _correlated(stack, members: int) -> dict | None:
    found = [c for c in stack.cases(state="WAITING") if c["verdict"] == "CORRELATED"]
    return next((c for c in found if len(c["instances"]) == members), None)


def _release(stack, case_id: int) -> None:
    """It takes two people: an admin asks for it, an approver confirms."""
    stack.shell(
        "from django.contrib.auth import get_user_model;from healthboard.people.actors import Actor;"
        "from healthboard.cases import second;users=get_user_model().objects;"
        "admin,approver=(Actor(name=n, via='command', user=users.get(username=n), recent=True) for n in ('admin', 'approver'));"
        f"row=second.ask_release({case_id}, actor=admin, reason='bad batch, understood');second.confirm(row.pk, actor=approver)"
    )


def test_a_pause_tag_and_other_owners_are_observed_and_never_touched(stack):
    fleet = stack.fleet()
    others = [
        i["instance_id"]
        for i in fleet["instances"]
        if i["pool"] not in ("train", "infer", "solo") and i["state"] == "running"
    ]
    assert len(others) >= 3, "AWS Batch and Managed Instances are there"
    tagged = stack.members("solo")[7]
    _tag(stack, tagged, "healthboard:pause", "on purpose")
    seen = f"from healthboard.fleet.models import *;print(Instance.objects.get(instance_id='{tagged}').paused_by_tag)"
    stack.until(lambda: stack.shell(seen) == "True", 60, "the tag to be seen")
    targets = [*others, tagged]
    for number, instance in enumerate(targets):
        stack.inject(instance, ("XID_79", "XID_95", "XID_62", "XID_140", "XID_110")[number % 5])
    for instance in targets:
        case = stack.case_of(instance, 40)
        assert case["state"] == "OBSERVED", case
        assert case["why_waiting"]
    time.sleep(15)
    calls = stack.fleet()["calls"]
    touched = [
        c
        for c in calls
        if c["target"] in targets and not c["operation"].startswith(("Describe", "Get", "List", "CreateTags"))
    ]
    assert not touched
    status, answer = stack.decide(stack.cases(tagged)[0], "approve")
    assert status == 409
    assert "pause" in json.dumps(answer)


def _tag(stack, instance: str, key: str, value: str) -> None:
    """By a client of a person's own: the product's gives no tags."""
    stack.shell(
        "import boto3;from healthboard.aws import sandbox_endpoint;"
        "boto3.client('ec2', endpoint_url=sandbox_endpoint(), region_name='us-east-1', aws_secret_access_key='made-up', "
        "aws_access_key_id='ASANDBOX111122223333').create_tags("
        f"Resources=['{instance}'], Tags=[{{'Key': '{key}', 'Value': '{value}'}}])"
    )
