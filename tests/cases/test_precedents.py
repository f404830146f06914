"""What reboot, replacement and nothing came to, by signature; and when that speaks for another mode of a code."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.cases import precedents
from healthboard.people import access
from healthboard.policies.models import Policy
from healthboard.policies.versions import ensure_default
from tests import factories as make

pytestmark = pytest.mark.django_db


def past(action="", resolution="REPAIRED", *, kind="approve", home=None, days=3.0, on=None, codes=None, **instance):
    """A case that was closed `days` ago, after an hour."""
    on = on or make.instance(home or make.pool("train"), **instance)
    closed = clock.now() - timedelta(days=days)
    case = make.case(
        on, state="CLOSED", resolution=resolution, codes=codes or ["XID_119"], opened_at=closed - timedelta(hours=1),
        closed_at=closed, action="REBOOT",
    )  # fmt: skip
    if action:
        make.decision(case, kind=kind, action=action, repair=make.repair(on, state="SUCCEEDED", action=action))
    return case


def said(treatments):
    return {t.action: (t.cases, t.well, t.back) for t in treatments}


def current(**instance):
    return make.case(make.instance(make.pool("train"), **instance), codes=["XID_119"])


def test_what_each_action_came_to_for_the_same_codes_type_and_driver(db):
    for _ in range(2):
        past("REBOOT")
    past("REBOOT", "INSTANCE_GONE")
    past("REPLACE")
    past(resolution="CLEARED")
    past(resolution="DISMISSED")
    past("REPLACE", driver_version="570.1")
    past("REBOOT", codes=["XID_119", "XID_45"])
    past("REBOOT", instance_type="g6e.12xlarge")
    past("REBOOT", days=precedents.DAYS + 1)
    past("REBOOT", "MERGED")
    found = precedents.of_case(current())
    assert said(found.same) == {"REBOOT": (3, 2, 0), "NONE": (2, 1, 0), "REPLACE": (1, 1, 0)}
    assert said(found.any_driver)["REPLACE"] == (2, 2, 0)
    assert found.same[0].seconds == 3600 and (found.days, found.driver) == (180, "580.95.05")


def test_what_came_back_within_a_week_there_or_in_its_place_did_not_help(db):
    first = past("REBOOT", days=5)
    past("REBOOT", days=2, on=first.instance)
    replaced = past("REPLACE", days=9)
    repair = replaced.decisions.get().repair
    repair.replacement = make.instance(make.pool("train"))
    repair.save()
    past(resolution="DISMISSED", days=4, on=repair.replacement)
    past("REPLACE", days=30, on=make.instance(make.pool("train")))
    found = said(precedents.of_case(current()).same)
    assert found == {"REBOOT": (2, 1, 1), "REPLACE": (2, 1, 1), "NONE": (1, 0, 0)}


def test_a_group_or_a_wish_by_hand_has_no_signature(db):
    case = current()
    case.code = "BY_HAND"
    assert precedents.of_case(case) is None
    case.code, case.instance = "XID_119", None
    assert precedents.of_case(case) is None


def of_policy(policy=None, **scope):
    found = precedents.of_policy(access.seeing(make.person("admin", **scope)), policy)
    return {row.code: row for row in found}


def test_enough_good_ends_speak_for_auto_and_too_few_for_nothing(db):
    ensure_default()
    for _ in range(15):
        past("REBOOT")
    row = of_policy()["XID_119"]
    assert (row.mode, row.right, row.known, row.suggests, row.missing) == ("ask", 15, 15, "", 1)
    past("REBOOT")
    assert of_policy()["XID_119"].suggests == "auto"
    for _ in range(3):
        past(resolution="DISMISSED")
    row = of_policy()["XID_119"]
    assert (row.right, row.known, row.suggests) == (16, 19, "")
    past("REBOOT", kind="override")  # what a person overrode was not done as proposed
    assert (of_policy()["XID_119"].right, of_policy()["XID_119"].known) == (16, 20)


def test_bad_ends_of_what_a_policy_did_alone_speak_for_asking(db):
    ensure_default()
    policy = Policy.objects.get()
    policy.settings = {"codes": {"XID_119": {"mode": "auto"}}}
    for n in range(8):
        past("REBOOT", "REPAIRED" if n < 2 else "INSTANCE_GONE", kind="auto")
    past("REBOOT")  # by a person: says nothing about what is done alone
    row = of_policy(policy)["XID_119"]
    assert (row.mode, row.right, row.known, row.suggests) == ("auto", 2, 8, "ask")


def test_only_cases_that_the_policy_matches_and_the_person_sees_count(db):
    ensure_default()
    past("REBOOT", home=make.pool("train"))
    past("REBOOT", home=make.pool("infer"))
    with_work = past("REBOOT", home=make.pool("infer"))
    with_work.workloads.add(make.workload("llm"))
    assert of_policy()["XID_119"].cases == 3
    assert of_policy(Policy(pool="infer"))["XID_119"].cases == 2
    assert of_policy(Policy(workload="llm"))["XID_119"].cases == 1
    assert of_policy(pool="train")["XID_119"].cases == 1
    assert of_policy(Policy(pool="elsewhere")) == {}
    (sign,) = of_policy()["XID_119"].signatures
    assert (sign.instance_type, sign.driver, sign.cases) == ("p5.48xlarge", "580.95.05", 3)
