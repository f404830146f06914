"""The whole product over two accounts and two regions at once: a repair in one place leaves the other three alone."""

from __future__ import annotations

import pytest

from tests.loop.conftest import make_stack, set_default_policy

__all__ = ["make_stack"]
pytestmark = pytest.mark.loop

ACCOUNTS, REGIONS = ("111122223333", "444455556666"), ("us-east-1", "eu-west-1")
READING = ("Describe", "List", "Get", "Assume")


def test_a_repair_in_one_place_changes_nothing_in_the_others(make_stack):
    stack = make_stack(
        HEALTHBOARD_ACCOUNTS=",".join(ACCOUNTS), HEALTHBOARD_REGIONS=",".join(REGIONS),
        HEALTHBOARD_SANDBOX_POOLS="train=group:2,solo=template:2",
    )  # fmt: skip
    set_default_policy(stack, undo_s=2)  # no person is waited for
    here = {"account": ACCOUNTS[1], "region": REGIONS[1]}
    fleet = stack.fleet()
    assert {(i["account"], i["region"]) for i in fleet["instances"]} == {(a, r) for a in ACCOUNTS for r in REGIONS}

    def in_pool(pool: str) -> list[str]:
        rows = [i for i in fleet["instances"] if {"account": i["account"], "region": i["region"]} == here]
        return [i["instance_id"] for i in rows if i["pool"] == pool and i["agent_connected"]]

    solo, member = in_pool("solo")[0], in_pool("train")[0]
    stack.inject(solo, "XID_79", "--gpu", "3")
    stack.inject(member, "XID_79", "--gpu", "1")
    for broken in (solo, member):
        case = stack.closed(broken, 240)
        assert (case["resolution"], case["account"], case["region"]) == ("REPAIRED", here["account"], here["region"])

    after = stack.fleet()
    changing = [c for c in after["calls"] if not c["operation"].startswith(READING) and c["service"] != "sqs"]
    assert changing and {(c["account"], c["region"]) for c in changing} == {(here["account"], here["region"])}
    ended = [c["target"] for c in changing if c["operation"] == "TerminateInstances" and c["outcome"] == "ok"]
    assert sorted(ended) == sorted([solo, member])
    assert len([c for c in changing if c["operation"] == "RunInstances" and c["outcome"] == "ok"]) == 1
    for group in after["groups"]:
        if group["pool"] == "train":
            assert (group["desired"], group["in_service"], group["standby"]) == (2, 2, 0), group
    assert {i for c in stack.cases() for i in c["instances"]} == {solo, member}
