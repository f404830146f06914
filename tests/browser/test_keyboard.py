"""Without a mouse: from the log-in to an approved case, with single keys and without them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from healthboard.cases.models import Case, Decision
from healthboard.people.models import Request
from healthboard.repairs.models import Repair
from tests.factories import PASSWORD

pytestmark = pytest.mark.browser

#: from the loaded inbox to an approved case
MOST = 6


class Hands:
    """A keyboard that counts what is pressed."""

    def __init__(self, page) -> None:
        self.page, self.presses = page, 0

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.presses += 1

    def tab_to(self, selector: str, most: int = 60) -> None:
        """Tab until what `selector` names has the focus; it must be seen there."""
        for _ in range(most):
            self.press("Tab")
            if self.page.evaluate("selector => Boolean(document.activeElement?.matches(selector))", selector):
                return
        raise AssertionError(f"{selector} is not reached by {most} tabs")


@pytest.fixture
def logged_in(scene, chromium, live_server):
    """The inbox of an operator who has logged in by keys, with one case in it; and that case."""
    case = scene["case"]
    Case.objects.filter(state="WAITING").exclude(pk=case.pk).update(state="OBSERVED")
    Repair.objects.filter(state="ASKING").update(state="RUNNING")
    Request.objects.filter(state="WAITING").update(state="WITHDRAWN")
    context = chromium.new_context(base_url=live_server.url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(8000)
    page = context.new_page()
    page.goto("/")  # leads to the log-in, whose first field has the focus
    page.keyboard.type("operator")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_server.url}/")
    expect(page.locator("h1")).to_have_text("1 case waits for you")
    yield page, case
    context.close()


def test_from_the_log_in_to_approved_in_at_most_six_presses(logged_in):
    page, case = logged_in
    hands = Hands(page)
    hands.press("Enter")
    page.wait_for_url(f"**/cases/{case.pk}/")
    hands.press("a")
    expect(page.locator("#dialog-approve")).to_be_visible()
    assert not Decision.objects.filter(case=case).exists()  # a key opens, it never carries out
    hands.press("Enter")
    expect(page.locator(".undo")).to_contain_text("starts in")
    assert Decision.objects.get(case=case).kind == "approve"
    assert hands.presses <= MOST


def test_every_answer_key_opens_its_dialog_and_carries_nothing_out(logged_in):
    page, case = logged_in
    page.goto(f"/cases/{case.pk}/")
    posts = []
    page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
    for key, kind in (("a", "approve"), ("o", "override"), ("d", "dismiss"), ("s", "snooze")):
        page.keyboard.press(key)
        expect(page.locator(f"#dialog-{kind}")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator(f"#dialog-{kind}")).to_be_hidden()
    for key in "jkxp/?":
        page.keyboard.press(key)
    expect(page.locator("#help, #find:focus, #filters input:focus").first).to_be_visible()
    assert posts == []
    assert not Decision.objects.filter(case=case).exists()


def test_with_single_keys_off_tab_and_enter_do_it_all(logged_in):
    page, case = logged_in
    hands = Hands(page)
    hands.tab_to("#menu summary")
    hands.press("Enter")
    hands.tab_to("button[name=keys][value=off]")
    with page.expect_navigation():
        hands.press("Enter")
    hands.press("a")
    assert page.url.endswith("/")
    hands.tab_to("tbody a.open")
    hands.press("Enter")
    page.wait_for_url(f"**/cases/{case.pk}/")
    hands.press("a")
    expect(page.locator("#dialog-approve")).to_be_hidden()
    hands.tab_to("a[data-dialog=dialog-approve]")
    hands.press("Enter")
    expect(page.locator("#dialog-approve")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(".undo")).to_contain_text("starts in")


#: focusable things whose focus is not seen whole: under the bar that stays on top, or outside the window
UNSEEN = """() => {
  const found = [];
  for (const one of document.querySelectorAll('a[href], button:not(:disabled), input:not([type=hidden]), select, textarea, summary')) {
    if (!one.checkVisibility({ visibilityProperty: true }) || one.closest('dialog:not([open]), svg, .hidden, .skip')) continue;
    if (one.matches('.hidden, .skip, [tabindex="-1"]')) continue;
    one.focus();
    if (document.activeElement !== one) continue;
    const box = one.getBoundingClientRect();
    const at = document.elementFromPoint(box.left + Math.min(box.width, 20) / 2, box.top + Math.min(box.height, 10) / 2);
    if (!at || !(one.contains(at) || at.contains(one))) found.push(one.outerHTML.slice(0, 120));
  }
  return found;
}"""


@pytest.mark.parametrize("width", [1440, 390])
def test_what_has_the_focus_is_never_hidden(scene, visit, width):
    page = visit("operator", viewport={"width": width, "height": 800})
    case, repair = scene["case"].pk, scene["asking_repair"].pk
    for address in (
        "/",
        f"/cases/{case}/",
        "/fleet/",
        f"/instances/{scene['sick'].pk}/",
        f"/repairs/{repair}/",
        "/system/",
    ):
        page.goto(address)
        assert page.evaluate(UNSEEN) == [], address
