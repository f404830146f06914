"""Every page in both themes and both widths: accessible, silent, and no wider than its window."""

from __future__ import annotations

import pytest

from tests.browser.shots import pages

pytestmark = pytest.mark.browser

RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}


def _breaches(page) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:160]} ({v['nodes'][0]['failureSummary'][:240]})" for v in found]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_passes_axe(scene, visit, theme):
    page = visit("admin", color_scheme=theme, bypass_csp=True)
    wrong = {}
    for name, address in {**pages(scene), "login": "/accounts/login/"}.items():
        page.goto(address)
        if found := _breaches(page):
            wrong[name] = found
    assert wrong == {}


def test_open_dialogs_and_help_pass_axe(scene, visit):
    page = visit("operator", bypass_csp=True)
    page.goto(f"/cases/{scene['case'].pk}/")
    wrong = []
    for key in "aods":
        page.keyboard.press(key)
        wrong += _breaches(page)
        page.keyboard.press("Escape")
    page.keyboard.press("?")
    wrong += _breaches(page)
    assert wrong == []


def test_no_page_is_wider_than_a_phone(scene, visit):
    page = visit("admin", viewport={"width": 390, "height": 844})
    wide = {}
    for name, address in pages(scene).items():
        page.goto(address)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide[name] = page.evaluate(
                "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 391)"
                ".slice(-3).map(e => e.outerHTML.slice(0, 120))"
            )
    assert wide == {}


def test_hostile_text_is_shown_and_never_run(scene, visit):
    page = visit("admin")
    for address in (f"/cases/{scene['evil'].pk}/", f"/instances/{scene['evil'].instance_id}/", "/", "/fleet/"):
        page.goto(address)
        assert page.title() not in ("1", "2")
        assert page.locator("main img, main script").count() == 0
    page.goto(f"/cases/{scene['evil'].pk}/")
    assert "<script>document.title=2</script> {{ 7*7 }}" in page.locator("h1").inner_text()
