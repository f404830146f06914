"""Breadth: what many instances have in common, and what is one broken node with its victims."""

from datetime import timedelta

import pytest

from healthboard.diagnosis.correlate import Bounds, Subject, correlate
from tests.diagnosis.build import NOW, ago


def nodes(n, codes=("XID_119",), *, first=0, at=60.0, all_codes=None, jobs=(), **scopes):
    scopes = {"pool": "train", **scopes}
    return [
        Subject(f"i-{first + k}", ago(at), tuple(codes), scopes, tuple(jobs), tuple(all_codes or codes))
        for k in range(n)
    ]


def groups(subjects, sizes=None, **kwargs):
    return correlate(subjects, now=NOW, sizes=sizes or {("pool", "train"): 20}, **kwargs)


def test_the_same_code_on_a_quarter_of_a_pool_is_one_incident():
    (got,) = groups(nodes(5))
    assert (got.kind, got.scope, got.code, len(got.instances)) == ("CORRELATED", ("pool", "train"), "XID_119", 5)


def test_fewer_than_four_or_than_a_quarter_are_none():
    assert groups(nodes(3)) == ()
    assert groups(nodes(5), {("pool", "train"): 21}) == ()


def test_three_are_enough_in_a_small_scope():
    assert groups(nodes(3), {("pool", "train"): 7})
    assert groups(nodes(2), {("pool", "train"): 6}) == ()


def test_five_different_clear_failures_are_no_storm():
    different = [nodes(1, (c,), first=n)[0] for n, c in enumerate(["XID_79", "XID_95", "XID_62", "XID_110", "XID_140"])]
    assert groups(different) == () and groups(different, {("pool", "train"): 6}) == ()


def test_ten_instances_whatever_their_codes_are_one_incident():
    many = [nodes(1, (f"XID_{40 + n}",), first=n)[0] for n in range(10)]
    (got,) = groups(many)
    assert got.code is None and len(got.instances) == 10


def test_only_what_lies_within_ten_minutes_counts():
    spread = [nodes(1, first=n, at=n * 400.0)[0] for n in range(5)]
    assert groups(spread) == ()


def test_the_cause_is_looked_for_in_every_scope():
    some = nodes(6, zone="us-east-1a", driver="610.48") + nodes(2, ("XID_79",), first=50, zone="us-east-1b")
    (got,) = groups(some, {("pool", "train"): 60, ("zone", "us-east-1a"): 20, ("driver", "610.48"): 6})
    assert got.scope == ("driver", "610.48")


def test_no_instance_is_in_two_groups():
    both = nodes(6, ("XID_119", "XID_74"), zone="a", image="ami-1", instance_type="p5")
    found = groups(both, {("pool", "train"): 10, ("zone", "a"): 8, ("image", "ami-1"): 9, ("instance_type", "p5"): 10})
    assert len(found) == 1


def test_a_zones_power_loss_is_one_incident():
    lost = nodes(8, ("EC2_SYSTEM_IMPAIRED", "ECS_AGENT_DISCONNECTED"), zone="us-east-1a")
    lost += nodes(4, ("EC2_SYSTEM_IMPAIRED",), first=8, pool="infer", zone="us-east-1a")
    sizes = {("pool", "train"): 30, ("pool", "infer"): 12, ("zone", "us-east-1a"): 14}
    (got,) = correlate(lost, now=NOW, sizes=sizes)
    assert got.scope == ("zone", "us-east-1a") and len(got.instances) == 12


def test_one_broken_node_and_its_mates_are_one_case_without_a_hold():
    root = nodes(1, ("XID_79",), first=999, at=70.0, jobs=["job-1"])
    mates = nodes(63, (), all_codes=("XID_45", "XID_43"), jobs=["job-1"])
    (got,) = correlate(root + mates, now=NOW, sizes={("pool", "train"): 64})
    assert (got.kind, got.root, got.code, len(got.victims)) == ("ROOT", "i-999", "XID_79", 63)


def test_victims_that_have_cases_of_their_own_are_victims_all_the_same():
    root = nodes(1, ("XID_79",), first=999, at=70.0, jobs=["job-1"])
    mates = nodes(10, ("XID_94",), jobs=["job-1"])
    (got,) = correlate(root + mates, now=NOW, sizes={("pool", "train"): 12})
    assert got.kind == "ROOT" and len(got.victims) == 10


def test_mates_of_another_time_or_job_are_no_victims():
    root = nodes(1, ("XID_79",), first=999, at=400.0, jobs=["job-1"])
    mates = nodes(5, (), all_codes=("XID_45",), jobs=["job-1"])
    assert groups(root + mates, {("pool", "train"): 64}) == ()
    other = nodes(5, (), all_codes=("XID_45",), at=400.0, jobs=["job-2"])
    assert groups(root + other, {("pool", "train"): 64}) == ()


def test_two_broken_nodes_in_one_job_are_no_root_and_victims():
    both = nodes(4, ("XID_79",), jobs=["job-1"])
    (got,) = groups(both, {("pool", "train"): 8})
    assert got.kind == "CORRELATED"


def test_a_storm_of_45_is_one_incident_that_repairs_nothing():
    storm = nodes(77, (), all_codes=("XID_45",), driver="580")
    (got,) = groups(storm, {("pool", "train"): 100, ("driver", "580"): 100})
    assert got.soft and got.code == "XID_45" and len(got.instances) == 77


def test_a_driver_roll_out_after_which_all_report_31_is_one_incident():
    fleet = nodes(40, (), all_codes=("XID_31",), driver="610.48.02")
    (got,) = groups(fleet, {("pool", "train"): 730, ("driver", "610.48.02"): 40})
    assert got.scope == ("driver", "610.48.02") and got.soft


def test_an_application_that_fails_on_all_its_nodes_is_its_own_fault():
    job = nodes(16, (), all_codes=("XID_31",), jobs=["job-1"])
    assert groups(job, {("pool", "train"): 16}) == ()


@pytest.mark.parametrize("notice", ["EC2_SPOT_INTERRUPTION", "EC2_REBALANCE", "CAPACITY_BLOCK_ENDING"])
def test_what_was_announced_is_no_storm(notice):
    assert groups(nodes(20, ("ECS_AGENT_DISCONNECTED",), all_codes=("ECS_AGENT_DISCONNECTED", notice))) == ()
    assert groups(nodes(20, (notice,))) == ()


def test_released_evidence_counts_no_more_but_later_evidence_does():
    scope = ("pool", "train")
    assert groups(nodes(6, at=60), released={scope: ago(30)}) == ()
    assert len(groups(nodes(6, at=60) + nodes(6, first=10, at=5), released={scope: ago(30)})[0].instances) == 6


def test_workloads_of_one_instance_each_count():
    some = [Subject(f"i-{n}", ago(9), ("XID_119",), {"workload:a": "a", "workload:b": "b"}) for n in range(4)]
    (got,) = correlate(some, now=NOW, sizes={("workload:a", "a"): 20, ("workload:b", "b"): 8})
    assert got.scope == ("workload", "b")


def test_the_bounds_are_settings():
    assert groups(nodes(5), bounds=Bounds(same_code=6)) == ()
    assert groups(nodes(2), bounds=Bounds(same_code=2, share=0.1))


def test_the_answer_does_not_depend_on_the_order():
    some = nodes(9, zone="a") + nodes(4, ("XID_79",), first=20, zone="b")
    sizes = {("pool", "train"): 20, ("zone", "a"): 12, ("zone", "b"): 8}
    assert groups(some, sizes) == groups(list(reversed(some)), sizes)


def test_what_lies_in_the_future_does_not_count():
    later = [Subject(s.instance, NOW + timedelta(seconds=5), s.codes, s.scopes) for s in nodes(5)]
    assert groups(later) == ()
