"""The flight recorder's plots: drawn under the strict policy, kept over a swap, and not needed to read the figures."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from healthboard.cases.models import Case

pytestmark = pytest.mark.browser


def test_plots_are_drawn_without_a_violation_and_stay_when_the_page_changes(scene, visit):
    page = visit("operator", f"/cases/{scene['case'].pk}/")
    expect(page.locator(".plot canvas")).to_have_count(6)
    page.evaluate("document.querySelector('.plot canvas').dataset.same = 'yes'")
    page.locator(".plot .u-over").first.hover()
    expect(page.locator(".plot .now").first).to_contain_text("GPU 3:")
    Case.objects.filter(pk=scene["case"].pk).update(plan_version=2)
    page.evaluate("htmx.trigger(document.querySelector('[data-live]'), 'refresh')")
    expect(page.locator("#main")).to_contain_text("Plan version 2")
    expect(page.locator(".plot canvas[data-same=yes]")).to_have_count(1)
    assert page.evaluate(
        "document.querySelector('.plot canvas').getContext('2d').getImageData(60, 20, 200, 80).data.some(Boolean)"
    )


def test_the_figures_are_there_without_scripts(scene, visit):
    page = visit(
        "viewer", f"/cases/{scene['case'].pk}/", java_script_enabled=False, viewport={"width": 390, "height": 844}
    )
    page.locator("#figures summary").click()
    expect(page.locator("#figures tbody tr")).to_have_count(60)
    expect(page.locator("#figures")).to_contain_text("HW thermal slowdown")


def test_figures_over_time_are_plots_by_date_and_tables_without_scripts(scene, visit):
    page = visit("viewer", "/statistics/")
    expect(page.locator(".plot canvas")).to_have_count(6)
    expect(page.locator(".plot .key").nth(1)).to_have_text("policyapprovedoverriddenby hand")
    page.locator(".plot .u-over").first.hover()
    expect(page.locator(".plot .now").first).to_contain_text("all ")
    plain = visit("viewer", "/statistics/?by=week", java_script_enabled=False)
    plain.locator("#by-time summary").click()
    assert 5 <= plain.locator("#by-time tbody tr").count() <= 6
    plain.select_option("select[name=pool]", "train")
    plain.click("#filters button")
    expect(plain).to_have_url(re.compile("pool=train"))
