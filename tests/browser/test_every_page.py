"""Every page and state in both themes and both widths: accessible, silent, and no wider than its window."""

from __future__ import annotations

import re

import pytest
from django.http import HttpResponse
from django.test import Client

from healthboard.cases.models import Case
from healthboard.people import grants, passwords
from healthboard.repairs.models import Switch
from tests.browser import axe
from tests.browser.shots import pages
from tests.factories import PASSWORD
from tests.pages.addresses import every

pytestmark = pytest.mark.browser


def _all(scene) -> dict[str, str]:
    """The pages that pictures are taken of, and any that the URL configuration knows beyond them."""
    named = pages(scene)
    shown = {re.sub(r"\d+|\?.*", "", address) for address in named.values()}
    asked = Client()
    asked.force_login(scene["people"]["admin"])
    rest = {name: address for name, address in every().items() if re.sub(r"\d+|\?.*", "", address) not in shown}
    return {**named, **{name: address for name, address in rest.items() if _is_page(asked.get(address))}}


def _is_page(answer: HttpResponse) -> bool:
    return answer.status_code == 200 and answer["Content-Type"].startswith("text/html")


def test_every_page_passes_axe_in_both_themes_and_widths(scene, visit):
    page = visit("admin", bypass_csp=True)
    wrong = {}
    for name, address in _all(scene).items():
        page.goto(address)
        wrong |= {f"{name} {where}": found for where, found in axe.everywhere(page).items()}
    assert wrong == {}, axe.told(wrong)


def test_open_dialogs_menus_and_refusals_pass_axe_in_both_themes_and_widths(scene, visit):
    page = visit("operator", bypass_csp=True)
    wrong = {}

    def look(name: str) -> None:
        wrong.update({f"{name} {where}": found for where, found in axe.everywhere(page).items()})

    page.locator("input[name=row]").first.check()
    look("inbox, rows selected")
    page.locator("#menu summary").click()
    look("the menu")
    page.goto(f"/cases/{scene['case'].pk}/")
    for key in "aods?":
        page.keyboard.press(key)
        look(f"the dialog of {key}")
        page.keyboard.press("Escape")
    page.keyboard.press("a")
    Case.objects.filter(pk=scene["case"].pk).update(plan_version=7)
    page.locator("#dialog-approve button.do").click()
    page.locator(".refusal").wait_for()
    look("a plan that changed")
    page.goto("/cases/99999999/")
    look("no such case")
    page.goto("/no/such/page/")
    look("no such page")
    assert wrong == {}, axe.told(wrong)


def test_the_log_in_and_empty_pages_pass_axe(people, visit, chromium, live_server):
    page = visit("viewer", bypass_csp=True)
    wrong = {}
    for address in ("/", "/fleet/", "/fleet/map/", "/jobs/", "/repairs/", "/audit/", "/system/", "/condemned/"):
        page.goto(address)
        wrong |= {f"{address} {where}": found for where, found in axe.everywhere(page).items()}
    page.context.clear_cookies()
    page.goto("/accounts/login/")
    page.fill("#id_username", "viewer")
    page.fill("#id_password", "wrong")
    page.click("button.do")
    wrong |= {f"log-in {where}": found for where, found in axe.everywhere(page).items()}
    passwords.given(people["viewer"])
    page.fill("#id_username", "viewer")
    page.fill("#id_password", PASSWORD)
    page.click("button.do")
    page.get_by_role("heading", name="Change your password").wait_for()
    wrong |= {f"to be chosen {where}": found for where, found in axe.everywhere(page).items()}
    assert wrong == {}, axe.told(wrong)


def test_admin_is_no_worse_than_stock_django(scene, visit):
    """What Django's own pages break (its list of groups, a group's form) is Django's; ours add nothing to it."""
    grants.sync(scene["people"]["admin"])  # lets admins into the admin's pages
    page = visit("admin", bypass_csp=True)

    def broken(*addresses: str) -> dict[str, str]:
        found = {}
        for address in addresses:
            assert page.goto(f"/admin/{address}").status == 200, address
            assert page.url.endswith(f"/admin/{address}"), f"{address} led to {page.url}"
            found |= {line.split(":")[0]: f"{address}: {line}" for line in axe.breaches(page)}
        return found

    stock = broken("", "auth/group/", "auth/group/add/", "password_change/done/")
    pages = _admin_pages(page)
    assert len(pages) > 20
    ours = broken(*pages)
    new = {rule: where for rule, where in ours.items() if rule not in stock}
    assert not new, "\n".join(new.values())


def _admin_pages(page) -> list[str]:
    """Every list of the admin's index, and every form to add something that it offers."""
    page.goto("/admin/")
    links = page.locator("#content a[href^='/admin/']").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    return sorted({link.removeprefix("/admin/") for link in links if "/auth/group" not in link and link.count("/") > 3})


def test_no_page_is_wider_than_a_phone_or_breaks_its_policy(scene, visit):
    """With the policy in force: a violation is a complaint, which `visit` refuses at the end."""
    page = visit("admin", viewport={"width": 390, "height": 844})
    wide = {}
    for name, address in _all(scene).items():
        page.goto(address)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide[name] = page.evaluate(
                "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 391)"
                ".slice(-3).map(e => e.outerHTML.slice(0, 120))"
            )
    assert wide == {}


def test_on_a_phone_the_stop_switch_takes_no_row_of_its_own(scene, visit):
    page = visit("admin", viewport={"width": 390, "height": 844})
    for acting in (True, False):
        Switch.objects.update(acting=acting)
        page.goto("/system/")
        last, state, stop = (page.locator(f".tabs-main {what}").bounding_box()
                             for what in ("a:nth-last-of-type(2)", ".switch", ".stop-now"))  # fmt: skip
        middle = stop["y"] + stop["height"] / 2
        assert last["y"] < middle < last["y"] + last["height"], (acting, last, stop)
        assert state["y"] < middle < state["y"] + state["height"], (acting, state, stop)


def test_a_violation_of_the_policy_would_be_seen(people, visit):
    page = visit("viewer")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=1\">')")
    page.wait_for_timeout(300)
    assert any("CSP" in text for text in page.complaints)
    assert page.title() != "1"
    page.complaints.clear()


def test_hostile_text_is_shown_and_never_run(scene, visit):
    """On every page: what a node, a tag or a task is named is text, turns no other text and hides nothing."""
    page = visit("admin")
    evil = scene["evil"]
    shown_on = set()
    for name, address in _all(scene).items():
        page.goto(address)
        assert page.title() not in ("1", "2"), name
        assert page.locator("main img, main script").count() == 0, name
        text = page.locator("body").inner_text()
        assert not any(strange in text for strange in "\u202e\u202c\x1b\x07"), name
        shown_on |= {name} if "{{ 7*7 }}" in text else set()
    assert shown_on >= {"inbox", "case-hostile", "cases", "instance-hostile", "jobs-risk", "handover"}, shown_on
    page.goto(f"/cases/{evil.pk}/")
    heading = page.locator("h1").inner_text()
    assert "<script>document.title=2</script> {{ 7*7 }} ⟨202E⟩drowssap⟨202C⟩ ␛[31m␇ WWW" in heading
