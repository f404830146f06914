"""A newcomer makes a policy for one service: from the admin's first page, with a mistake, without documentation."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from healthboard.people import grants
from healthboard.policies import versions
from healthboard.policies.models import Policy
from tests.browser import axe
from tests.cases import scene as scene_of_cases


@pytest.fixture
def admin(scene):
    versions.ensure_default()
    grants.sync(scene["people"]["admin"])  # lets admins into the admin's pages


def test_its_pages_are_no_worse_than_stock_django(admin, visit):
    page = visit("admin", bypass_csp=True)
    # before what takes long: by then its sources would not have spoken for minutes; where AWS tells of no trouble
    scene_of_cases.asked(zone="us-east-1a")

    def broken(*addresses):
        found = {}
        for address in addresses:
            page.goto(f"/admin/{address}")
            assert page.url.endswith(f"/admin/{address}")
            found |= {line.split(":")[0]: f"{address}: {line}" for line in axe.breaches(page)}
        return found

    stock = broken("auth/user/", "auth/group/", "auth/group/add/", "password_change/done/")
    policy = Policy.objects.get().pk
    ours = broken(
        "policies/policy/", "policies/policy/add/", f"policies/policy/{policy}/change/", "policies/policyversion/"
    )
    assert {rule: where for rule, where in ours.items() if rule not in stock} == {}
    page.goto(f"/admin/policies/policy/{policy}/change/")
    page.get_by_label("Ambiguous findings:").select_option("observe")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Preview").click()
    preview = opened.value
    expect(preview.locator("#cases")).to_be_visible()
    assert axe.everywhere(preview) == {}, "the preview is a page of ours"


def add(page):
    page.goto("/admin/")
    page.locator("#content .model-policy").get_by_role("link", name="Policies").click()
    page.get_by_role("link", name="Add policy").first.click()
    page.wait_for_url("**/add/")


@pytest.mark.parametrize("options", [{}, {"java_script_enabled": False, "viewport": {"width": 390, "height": 844}}])
def test_a_newcomer_makes_a_policy_for_one_service(admin, visit, options):
    page = visit("admin", **options)
    add(page)
    for words in ("Everything that is filled in must match", "Write 90 s, 5 min, 4 h or 1 d.", "Default: 20 %."):
        assert words in page.locator("#content").inner_text()
    page.get_by_label("Name:").fill("web at night")
    page.get_by_label("Workload:").fill("infer-web")
    page.get_by_label("Clear hardware failures:").select_option("ask")
    page.get_by_label("Maintenance windows:").fill("weekdays at night")
    page.get_by_label("Why this change:").fill("busy by day")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".errorlist")).to_contain_text(
        "is not a window; write it as in Mon-Fri 22:00-06:00 Europe/Berlin."
    )
    page.get_by_label("Maintenance windows:").fill("Mon-Fri 22:00-06:00 Europe/Berlin")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Say it in words").click()
    said = opened.value.locator("#content").inner_text()
    assert "Repairs begin only within Mon-Fri 22:00-06:00 Europe/Berlin" in said and "Nothing was saved" in said
    assert not Policy.objects.filter(name="web at night").exists()
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/policies/policy/")
    told = page.locator(".messagelist").inner_text()
    assert "Version 1. For the workload infer-web: clear hardware failures are put before a person" in told
    policy = Policy.objects.get(name="web at night")
    assert policy.settings == {"mode_hardware": "ask", "windows": ["Mon-Fri 22:00-06:00 Europe/Berlin"]}
    page.locator("#result_list").get_by_role("link", name="web at night").click()
    page.get_by_role("button", name="Copy this policy as it was saved").click()
    expect(page.get_by_label("Name:")).to_have_value("Copy of web at night")
    expect(page.get_by_label("Enabled")).not_to_be_checked()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
