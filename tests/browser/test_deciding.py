"""A person decides in a real browser: by keys, by dialog, without JavaScript, and against a world that changed."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from healthboard import clock
from healthboard.cases import ends
from healthboard.cases.models import Case, Decision
from healthboard.people.models import Request
from healthboard.repairs.models import Repair, Switch

pytestmark = pytest.mark.browser


def _only(scene, name: str = "case") -> Case:
    """Leave one case waiting and nothing else, so that it heads the inbox."""
    kept = scene[name]
    Repair.objects.filter(state="ASKING").update(state="RUNNING")
    Request.objects.filter(state="WAITING").update(state="WITHDRAWN")
    Case.objects.filter(state="WAITING").exclude(pk=kept.pk).update(state="OBSERVED")
    return kept


def test_from_the_inbox_to_approved_in_three_keys(scene, visit):
    case = _only(scene)
    page = visit("operator", by_form=True)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/cases/{case.pk}/")
    page.keyboard.press("a")
    expect(page.locator("#dialog-approve")).to_be_visible()
    assert not Decision.objects.filter(case=case).exists()  # a key opens, it never carries out
    page.keyboard.press("Enter")
    expect(page.locator(".undo")).to_contain_text("starts in")
    assert Decision.objects.get(case=case).actor == "operator"


def test_on_a_phone_it_is_approved_by_taps_without_a_look_sideways(scene, visit):
    case = _only(scene)
    page = visit("operator", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.locator("a.open").first.tap()
    page.wait_for_url(f"**/cases/{case.pk}/")
    page.get_by_role("link", name="To the plan").tap()
    page.get_by_role("link", name=re.compile("^Approve")).tap()
    dialog = page.locator("#dialog-approve")
    expect(dialog).to_be_visible()
    box = dialog.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    dialog.locator("button.do").tap()
    expect(page.locator(".undo")).to_contain_text("starts in")
    assert Decision.objects.get(case=case).actor == "operator"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_undo_in_its_window_takes_it_back(scene, visit):
    case = _only(scene)
    page = visit("operator", f"/cases/{case.pk}/")
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".said")).to_contain_text("Undone")
    case.refresh_from_db()
    assert case.state == "WAITING"
    assert not case.instance.repairs.filter(closed_at=None).exists()


def test_a_dialog_closes_on_escape_and_gives_the_focus_back(scene, visit):
    page = visit("operator", f"/cases/{scene['case'].pk}/")
    page.get_by_role("link", name=re.compile("^Override")).click()
    expect(page.locator("#dialog-override")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#dialog-override")).to_be_hidden()
    expect(page.get_by_role("link", name=re.compile("^Override"))).to_be_focused()


def test_keys_can_be_switched_off(scene, visit):
    page = visit("operator")
    page.locator("#menu summary").click()
    page.get_by_role("button", name="Off").click()
    page.goto(f"/cases/{scene['case'].pk}/")
    page.keyboard.press("a")
    expect(page.locator("#dialog-approve")).to_be_hidden()


def test_a_plan_that_changed_is_refused_and_shows_what_changed(scene, visit):
    case = _only(scene)
    page = visit("operator", f"/cases/{case.pk}/")
    page.keyboard.press("a")
    plan = {**case.plan, "changed": [{"version": 2, "what": ["verdict AMBIGUOUS → HARDWARE"]}]}
    Case.objects.filter(pk=case.pk).update(plan_version=2, plan=plan)
    page.keyboard.press("Enter")
    expect(page.locator(".refusal")).to_contain_text("verdict AMBIGUOUS → HARDWARE")
    expect(page.locator(".refusal")).to_contain_text("Not done")
    expect(page.locator("[hx-get], [data-live]")).to_have_count(0)
    page.get_by_role("link", name="open it anew").click()
    expect(page.locator("#live[data-live]")).to_have_attribute("hx-get", f"/cases/{case.pk}/")
    expect(page.locator(".refusal")).to_have_count(0)
    assert not Decision.objects.filter(case=case).exists()


def test_of_two_operators_one_wins_and_the_other_learns_who(scene, visit):
    case = _only(scene)
    first, second = visit("operator", f"/cases/{case.pk}/"), visit("approver", f"/cases/{case.pk}/")
    for page in (first, second):
        page.keyboard.press("a")
    first.keyboard.press("Enter")
    expect(first.locator(".undo")).to_be_visible()
    second.locator("#dialog-approve button.do").click()
    expect(second.locator(".refusal")).to_contain_text("operator")
    assert Decision.objects.filter(case=case, repair__isnull=False).count() == 1


@pytest.mark.parametrize("kind", ["approve", "override", "dismiss", "snooze"])
def test_each_answer_works_without_scripts(scene, visit, kind):
    case = _only(scene)
    page = visit("operator", f"/cases/{case.pk}/", java_script_enabled=False)
    page.locator(f'a[href$="/answer/{kind}/"]').first.click()
    if kind == "override":
        page.get_by_label("Run diagnostics").check()
    if kind != "approve":
        page.get_by_label(re.compile("^Reason")).fill("seen before")
    page.locator("form.answer button.do").click()
    expect(page.locator(".said")).to_be_visible()
    decision = Decision.objects.get(case=case)
    assert (decision.kind, decision.actor, decision.via) == (kind, "operator", "web")


def test_override_dismiss_and_snooze_by_keys_alone_and_none_without_its_reason(scene, visit):
    page = visit("operator")
    for key, kind, case in zip("ods", ("override", "dismiss", "snooze"), scene["like"], strict=True):
        page.goto(f"/cases/{case.pk}/")
        page.keyboard.press(key)
        dialog = page.locator(f"#dialog-{kind}")
        expect(dialog).to_be_visible()
        if kind == "override":
            dialog.get_by_label("Run diagnostics").focus()
            page.keyboard.press("Space")
        if kind != "snooze":
            page.locator(f"#dialog-{kind} button.do").press("Enter")
            expect(dialog).to_be_visible()  # the browser holds it: a reason is required
            assert not Decision.objects.filter(case=case).exists()
        dialog.locator("textarea").focus()
        page.keyboard.type("seen before")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(".said")).to_be_visible()
        decision = Decision.objects.get(case=case)
        assert (decision.kind, decision.reason, decision.via) == (kind, "seen before", "web")
    states = [Case.objects.get(pk=case.pk).state for case in scene["like"]]
    assert states == ["DECIDED", "CLOSED", "SNOOZED"]


def test_a_question_that_expires_says_so_by_itself_and_nothing_is_done(scene, visit):
    case = _only(scene)
    page = visit("operator", f"/cases/{case.pk}/")
    expect(page.locator(".chips")).to_contain_text("expires in")
    Case.objects.filter(pk=case.pk).update(expires_at=clock.now())
    assert ends.expire(case.pk)
    expect(page.locator(".chips")).to_contain_text("nothing was done", timeout=9000)
    page.goto("/")
    expect(page.locator(f'tr[data-row="{case.pk}"]')).to_contain_text("expired")
    assert not case.instance.repairs.exists() and not Decision.objects.filter(case=case).exists()
    page.goto(f"/cases/{case.pk}/")  # it can still be answered
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(page.locator(".undo")).to_contain_text("starts in")


def test_several_like_cases_are_approved_at_once_and_a_changed_one_is_refused(scene, visit):
    like = scene["like"]
    page = visit("operator")
    for case in like:
        page.locator(f'tr[data-row="{case.pk}"] input[type=checkbox]').check()
    page.get_by_role("button", name="Approve selected").click()
    expect(page.locator("h1")).to_have_text("Approve 3 cases?")
    for case in like:
        expect(page.locator("main")).to_contain_text(case.instance.instance_id)
    Case.objects.filter(pk=like[0].pk).update(plan_version=5)
    page.get_by_role("button", name="Approve 3 cases").click()
    expect(page.locator("h1")).to_have_text("2 cases were answered, 1 refused")
    assert Decision.objects.filter(case__in=like, kind="approve").count() == 2


def test_the_stop_switch_is_thrown_in_one_form_and_shown_on_every_page(scene, visit):
    page = visit("operator", "/system/")
    page.locator("#stop-why").fill("too many at once")
    page.get_by_role("button", name="Stop everything").click()
    expect(page.locator(".notices .bad").first).to_contain_text("too many at once")
    assert Switch.objects.get().stopped
    page.goto("/fleet/")
    expect(page.locator(".notices .bad").first).to_contain_text("The stop switch is thrown")
    page.goto("/system/")
    expect(page.get_by_role("button", name="Let repairs go on")).to_be_disabled()


def test_a_viewer_sees_why_each_button_is_off(scene, visit):
    page = visit("viewer", f"/cases/{scene['case'].pk}/")
    approve = page.locator(".answers .button").first
    expect(approve).to_have_attribute("aria-disabled", "true")
    expect(page.locator(".plan")).to_contain_text("takes the role operator")
