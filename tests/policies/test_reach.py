"""Whom a policy matches now is counted where it is made, so that a mistyped name is noticed."""

from __future__ import annotations

import pytest

from healthboard.policies import reach
from healthboard.policies.models import Policy
from tests import factories as make


@pytest.fixture
def fleet(db):
    train, infer = make.pool("train"), make.pool("infer")
    first, second = make.instance(train, tags={"team": "a"}), make.instance(train)
    make.instance(infer)
    make.instance(train, gone_at=make.ago(60), tags={"team": "a"})
    llm = make.workload("llm")
    llm.tags = {"tier": "gold"}
    llm.save()
    for one in (first, second):
        make.task(one, llm)
        make.task(one, make.workload("exporter", "DAEMON"))


@pytest.mark.parametrize(
    "match, count",
    [
        ({"workload": "llm"}, 2),
        ({"workload": "llm-srv"}, 0),
        ({"workload": "exporter"}, 0),
        ({"pool": "train"}, 2),
        ({"region": "us-east-1", "account": "111122223333"}, 3),
        ({"pool": "train", "tags": {"team": "a"}}, 1),
        ({"tags": {"tier": "gold"}}, 2),
        ({"tags": {"team": ""}, "workload": "llm"}, 1),
        ({"tags": {"tier": "silver"}}, 0),
    ],
)
def test_instances_are_counted_as_they_are_matched(fleet, match, count):
    assert reach.instances(Policy(name="x", **match)) == count


def test_it_is_said(fleet):
    assert reach.sentence(Policy(name="x", workload="llm")) == "2 instances match it now."
    assert "mistyped" in reach.sentence(Policy(name="x", pool="trian"))
    assert reach.sentence(Policy(is_default=True)) == ""
