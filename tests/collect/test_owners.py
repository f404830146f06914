"""Who replaces an instance: every owner, every piece of evidence, and evidence that disagrees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthboard.fleet.models import Owner
from healthboard.fleet.owners import CAREFUL, FLEET_TAG, GROUP_TAG, STACK_TAG, TEMPLATE_TAG, Facts, owner_of

ALONE = Facts(
    tags={}, operator="", cluster="gpu", cluster_batch=False, provider="", provider_kind="", group="", group_tags={}
)
MEMBER = replace(ALONE, group="a", tags={GROUP_TAG: "a", TEMPLATE_TAG: "lt-1"})
TEMPLATE = replace(ALONE, tags={TEMPLATE_TAG: "lt-1"})
PROVIDED = replace(MEMBER, provider="p", provider_kind="GROUP", provider_group="a")

TABLE = {
    "a member of a group": (MEMBER, "GROUP"),
    "a member of its capacity provider's group": (PROVIDED, "GROUP"),
    "a member whose tag has not arrived yet": (replace(MEMBER, tags={}), "GROUP"),
    "a member under a stack": (replace(MEMBER, tags={**MEMBER.tags, STACK_TAG: "s"}), "GROUP"),
    "a member that the group launched through a fleet": (replace(MEMBER, tags={**MEMBER.tags, FLEET_TAG: "f"}), "GROUP"),
    "from a launch template": (TEMPLATE, "TEMPLATE"),
    "from nothing": (ALONE, "PLAIN"),
    "from a template under a stack": (replace(TEMPLATE, tags={**TEMPLATE.tags, STACK_TAG: "s"}), "PLAIN"),
    "detached from its provider's group": (replace(PROVIDED, group="", tags={TEMPLATE_TAG: "lt-1"}), "PLAIN"),
    "managed by ECS, by its provider": (replace(ALONE, provider="m", provider_kind="MANAGED"), "ECS"),
    "managed by ECS, by EC2's word": (replace(ALONE, operator="ecs.amazonaws.com"), "ECS"),
    "in a cluster of Batch": (replace(MEMBER, cluster_batch=True), "BATCH"),
    "tagged by Batch": (replace(ALONE, tags={"AWSBatchServiceTag": "batch"}), "BATCH"),
    "in a group tagged by Batch": (replace(MEMBER, group_tags={"AWSBatchServiceTag": "batch"}), "BATCH"),
    "in a group named by Batch": (replace(MEMBER, group="AWSBatch-x", tags={}), "BATCH"),
    "of Kubernetes": (replace(TEMPLATE, tags={"kubernetes.io/cluster/x": "owned"}), "OTHER"),
    "of a node group of EKS": (replace(MEMBER, group_tags={"eks:cluster-name": "x"}), "OTHER"),
    "of Karpenter": (replace(TEMPLATE, tags={"karpenter.sh/nodepool": "x"}), "OTHER"),
    "of EMR": (replace(ALONE, tags={"aws:elasticmapreduce:job-flow-id": "j"}), "OTHER"),
    "of ParallelCluster": (replace(ALONE, tags={"parallelcluster:cluster-name": "x"}), "OTHER"),
    "of a fleet alone": (replace(TEMPLATE, tags={FLEET_TAG: "f"}), "OTHER"),
    "operated by somebody else": (replace(TEMPLATE, operator="sagemaker.amazonaws.com"), "OTHER"),
    "of a kind of provider that we do not know": (replace(TEMPLATE, provider="n", provider_kind="NONE"), "UNKNOWN"),
    "in no cluster": (replace(TEMPLATE, cluster=None, cluster_batch=None), "UNKNOWN"),
    "in a cluster whose use was not read": (replace(TEMPLATE, cluster_batch=None), "UNKNOWN"),
    "tags not read": (replace(TEMPLATE, tags=None), "UNKNOWN"),
    "operator not read": (replace(TEMPLATE, operator=None), "UNKNOWN"),
    "groups not read": (replace(TEMPLATE, group=None), "UNKNOWN"),
    "provider not read": (replace(TEMPLATE, provider_kind=None), "UNKNOWN"),
    "the group's tags not read": (replace(MEMBER, group_tags=None), "UNKNOWN"),
    # evidence that disagrees: the more careful
    "its tag names a group that does not have it": (replace(ALONE, tags={GROUP_TAG: "a", TEMPLATE_TAG: "l"}), "UNKNOWN"),
    "its tag names another group": (replace(MEMBER, tags={GROUP_TAG: "b"}), "UNKNOWN"),
    "its provider works with another group": (replace(PROVIDED, provider_group="b"), "UNKNOWN"),
    "managed by ECS and a member of a group": (replace(MEMBER, operator="ecs.amazonaws.com"), "ECS"),
    "of Batch and of Kubernetes": (replace(MEMBER, cluster_batch=True, tags={"eks:cluster-name": "x"}), "OTHER"),
    "of Batch, its tags not read": (replace(MEMBER, cluster_batch=True, tags=None), "UNKNOWN"),
}  # fmt: skip


@pytest.mark.parametrize("facts, owner", TABLE.values(), ids=TABLE.keys())
def test_each_owner_is_told_with_its_evidence(facts, owner):
    told, evidence = owner_of(facts)
    assert told == owner
    assert evidence and all(isinstance(sentence, str) and sentence for sentence in evidence)


def test_every_owner_of_the_model_has_a_place_in_the_order_of_care():
    assert set(CAREFUL) == {str(owner) for owner in Owner}
    assert {owner for _, owner in TABLE.values()} == set(CAREFUL)


TAGS = st.none() | st.dictionaries(
    st.sampled_from([GROUP_TAG, TEMPLATE_TAG, STACK_TAG, FLEET_TAG, "AWSBatchServiceTag", "eks:x", "Name"]),
    st.sampled_from(["a", "b"]),
)
FACTS = st.builds(
    Facts,
    tags=TAGS,
    operator=st.sampled_from([None, "", "ecs.amazonaws.com", "x.amazonaws.com"]),
    cluster=st.sampled_from([None, "gpu"]),
    cluster_batch=st.sampled_from([None, True, False]),
    provider=st.just("p"),
    provider_kind=st.sampled_from([None, "", "GROUP", "MANAGED", "NONE"]),
    provider_group=st.sampled_from(["", "a"]),
    group=st.sampled_from([None, "", "a", "AWSBatch-a"]),
    group_tags=TAGS,
)


@given(FACTS)
def test_what_could_not_be_read_is_never_acted_on(facts):
    told, evidence = owner_of(facts)
    assert told in CAREFUL and evidence
    if None in (facts.tags, facts.operator, facts.cluster, facts.cluster_batch, facts.provider_kind, facts.group):
        assert told == "UNKNOWN"
    if told in ("GROUP", "TEMPLATE"):
        assert facts.cluster_batch is False and facts.operator == "" and facts.provider_kind != "MANAGED"
        assert bool(facts.group) == (told == "GROUP")


@given(FACTS, st.sampled_from(["tags", "operator", "cluster_batch", "group", "provider_kind"]))
def test_knowing_less_never_makes_it_bolder(facts, lost):
    less = owner_of(replace(facts, **{lost: None}))[0]
    assert CAREFUL.index(less) <= CAREFUL.index(owner_of(facts)[0])
