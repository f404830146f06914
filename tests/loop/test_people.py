"""Ambiguous cases wait for people; what they answer is carried out once, or refused with a reason.

No code is injected into three machines: a workload may have few of them, and then it would rightly be breadth.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect

from tests.loop.conftest import set_default_policy
from tests.loop.stack import PASSWORD, changing

pytestmark = pytest.mark.loop

CHANGES = (
    "UpdateContainerInstancesState", "RunInstances", "TerminateInstances", "RebootInstances", "EnterStandby",
)  # fmt: skip


@pytest.fixture(scope="module")
def stack(make_stack):
    made = make_stack(HEALTHBOARD_SANDBOX_POOLS="train=group:3,infer=group:2,solo=template:12")
    set_default_policy(made, undo_s=4)
    made.ambiguous = dict(zip(("browser", "two", "undo", "stale", "snooze"), made.members("solo"), strict=False))
    for name, code in {"browser": 119, "two": 120, "undo": 109, "stale": 120, "snooze": 109}.items():
        made.inject(made.ambiguous[name], f"XID_{code}")  # each waits until its test comes
    made.healthy = made.members("solo")[5]
    return made


@pytest.fixture
def page(chromium):
    context = chromium.new_context()
    yield context.new_page()
    context.close()


def _waiting(stack, instance: str) -> dict:
    return stack.until(
        lambda: next((c for c in stack.cases(instance) if c["state"] == "WAITING"), None), 90, f"{instance} to wait"
    )


def test_an_ambiguous_case_waits_untouched_and_is_repaired_when_approved_in_a_browser(stack, page):
    instance = stack.ambiguous["browser"]
    case = _waiting(stack, instance)
    assert (case["verdict"], case["mode"]) == ("AMBIGUOUS", "ask")
    time.sleep(5)
    assert not changing(stack.fleet(), *CHANGES, target=instance)

    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text) if said.type == "error" else None)
    page.goto(stack.url + "/")
    page.fill("#id_username", "operator")
    page.fill("#id_password", PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name=re.compile("Xid 119")).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("119")
    says = page.locator("section", has=page.get_by_role("heading", name="Who says what"))
    for vendor in ("NVIDIA", "ECS", "EKS"):
        expect(says).to_contain_text(vendor)
    page.get_by_role("link", name=re.compile("^Approve")).click()
    page.locator("#dialog-approve").get_by_role("button", name=re.compile("^Approve")).click()
    expect(page.locator(".undo")).to_contain_text("starts in")
    stack.repaired(instance, 200)
    expect(page.locator("#live")).to_contain_text("epaired", timeout=15_000)  # the page follows by itself
    assert not refused


def test_of_two_approvals_at_once_one_succeeds_and_one_is_refused(stack):
    instance = stack.ambiguous["two"]
    case = _waiting(stack, instance)
    stack.token("operator"), stack.token("admin")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda u: stack.decide(case, "approve", user=u), ("operator", "admin")))
    codes = sorted(a[0] for a in answers)
    assert codes[0] in (200, 201)
    assert codes[1] == 409, answers
    assert len(stack.repairs(instance)) == 1
    status, _ = stack.request("POST", f"/api/v1/cases/{case['id']}/decisions", {
        "decision": "dismiss", "reason": "late", "plan_version": case["plan_version"],
        "evidence_hash": case["evidence_hash"],
    })  # fmt: skip
    assert status == 409


def test_undo_within_its_time_makes_no_changing_call(stack):
    instance = stack.ambiguous["undo"]
    set_default_policy(stack, undo_s=20)
    case = _waiting(stack, instance)
    status, answer = stack.decide(case, "approve")
    assert status in (200, 201), answer
    stack.shell(
        "from django.contrib.auth import get_user_model;from healthboard.cases.answers import undo;"
        "from healthboard.people.actors import Actor;"
        "u=get_user_model().objects.get(username='operator');"
        f"undo({case['id']}, actor=Actor(name='operator', via='command', user=u))"
    )
    set_default_policy(stack, undo_s=4)
    time.sleep(22)
    assert not changing(stack.fleet(), *CHANGES, target=instance)
    assert _waiting(stack, instance)["state"] == "WAITING"
    status, answer = stack.decide(_waiting(stack, instance), "dismiss", reason="known driver bug")
    assert status in (200, 201), answer
    assert stack.closed(instance, 10)["resolution"] == "DISMISSED"
    time.sleep(4)
    assert [c["state"] for c in stack.cases(instance)] == ["CLOSED"], "a dismissed case does not come back by itself"
    told = stack.shell(
        f"from healthboard.audit.models import *;print([r.summary for r in AuditRow.objects.filter(instance='{instance}')])"
    )
    assert "known driver bug" in told


def test_a_stale_plan_is_refused_and_says_what_changed(stack):
    instance = stack.ambiguous["stale"]
    case = _waiting(stack, instance)
    stack.inject(instance, "XID_79", "--gpu", "2")
    stack.until(lambda: stack.cases(instance)[0]["plan_version"] != case["plan_version"]
                or stack.cases(instance)[0]["state"] == "DECIDED", 90, "the plan to change")  # fmt: skip
    status, answer = stack.decide(case, "approve")
    assert status == 409
    assert answer["detail"]
    found = stack.cases(instance)
    assert len(found) == 1, f"escalated in place: {found}"
    stack.repaired(instance, 200)


def test_snoozed_it_comes_back_and_diagnose_brings_an_answer(stack):
    instance = stack.ambiguous["snooze"]
    case = _waiting(stack, instance)
    status, answer = stack.decide(case, "snooze", snooze_s=60, reason="after lunch")
    assert status in (200, 201), answer
    assert stack.cases(instance)[0]["state"] == "SNOOZED"
    stack.shell(
        "from healthboard.cases.models import *;from healthboard import clock;"
        f"Case.objects.filter(pk={case['id']}).update(snoozed_until=clock.now())"
    )
    case = _waiting(stack, instance)
    status, answer = stack.decide(case, "override", action="DIAGNOSE", reason="look first")
    assert status in (200, 201), answer
    stack.until(
        lambda: stack.shell(
            "from healthboard.fleet.models import *;"
            f"print(NodeRequest.objects.filter(instance__instance_id='{instance}').exclude(answered_at=None).count())"
        ) == "1",
        120, "the node's answer", every=2,
    )  # fmt: skip
    assert _waiting(stack, instance)
    assert not changing(stack.fleet(), *CHANGES, target=instance)


def test_the_stop_switch_holds_everything_until_it_is_released(stack):
    instance = stack.healthy
    actor = (
        "from django.contrib.auth import get_user_model;from healthboard.people.actors import Actor;"
        "from healthboard.repairs import brakes;u=get_user_model().objects.get(username='admin');"
        "a=Actor(name='admin', via='command', user=u, recent=True);"
    )
    stack.shell(actor + "brakes.stop(a, 'fire drill')")
    stack.inject(instance, "XID_79", "--gpu", "0")
    stack.until(
        lambda: any("stop switch" in r["why_waiting"].lower() for r in _repair_rows(stack, instance)),
        120,
        "it to be held",
    )
    assert not changing(stack.fleet(), *CHANGES, target=instance)
    stack.shell(actor + "brakes.resume(a, 'drill over')")
    stack.repaired(instance, 200)


def _repair_rows(stack, instance: str) -> list[dict]:
    import json

    return json.loads(
        stack.shell(
            "import json;from healthboard.repairs.models import *;"
            f"print(json.dumps(list(Repair.objects.filter(instance__instance_id='{instance}').values('state','why_waiting'))))"
        )
    )
