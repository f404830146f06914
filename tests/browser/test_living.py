"""Live pages: they change by themselves, and never under the hand of the person who reads them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from healthboard.cases.models import Case
from tests import factories as make

pytestmark = pytest.mark.browser


def _poll(page) -> None:
    """What the five seconds do, at once."""
    page.evaluate("htmx.trigger(document.querySelector('[data-live]'), 'refresh')")


def test_a_new_case_appears_by_itself(scene, visit):
    page = visit("operator")
    case = make.case(title="Something new on a machine")
    expect(page.locator(f'tr[data-row="{case.pk}"]')).to_be_visible(timeout=9000)
    expect(page.locator("#spoken")).to_contain_text("wait for you")


def test_nothing_moves_while_rows_are_selected_and_a_pill_counts_what_is_new(scene, visit):
    page = visit("operator")
    page.locator("input[name=row]").first.check()
    case = make.case(title="Something new on a machine")
    expect(page.locator("#pill")).to_have_text("1 new – show", timeout=9000)
    expect(page.locator(f'tr[data-row="{case.pk}"]')).to_have_count(0)
    page.locator("#pill").click()
    expect(page.locator(f'tr[data-row="{case.pk}"]')).to_be_visible()


def test_under_the_pointer_rows_stay_while_the_pill_counts_and_the_state_of_the_system_is_told(scene, visit):
    page = visit("operator")
    row = page.locator("tbody tr").nth(2)
    row.hover()
    name, before = row.get_attribute("data-row"), row.bounding_box()
    for n in range(3):
        make.case(title=f"Something new on machine {n}", verdict="CORRELATED")
    expect(page.locator("#pill")).to_have_text("3 new – show", timeout=9000)
    make.switch(stopped=True, reason="fire")
    expect(page.locator(".switch")).to_contain_text("Stopped", timeout=9000)
    assert row.get_attribute("data-row") == name
    assert abs(row.bounding_box()["y"] - before["y"]) < 1
    page.locator("#pill").click()
    expect(page.get_by_role("link", name="Something new on machine 2")).to_be_visible()


def test_what_has_the_focus_keeps_it_and_ages_alone_raise_no_pill(scene, visit):
    page = visit("operator", "/fleet/")
    tab = page.get_by_role("link", name="Watch")
    tab.focus()
    row = make.instance(zone="us-east-1f")
    expect(page.locator(f'tr[data-row="{row.pk}"]')).to_be_attached(timeout=9000)
    expect(tab).to_be_focused()
    page.locator("tbody tr a.open").first.focus()
    row.seen_at = make.ago(0)
    row.save()
    with page.expect_response(lambda answer: "/fleet/" in answer.url and answer.status == 200):
        _poll(page)
    expect(page.locator("#pill")).to_be_hidden()


def test_an_open_dialog_is_not_swapped_away(scene, visit):
    page = visit("operator", f"/cases/{scene['case'].pk}/")
    page.keyboard.press("d")
    page.locator("#dialog-dismiss textarea").fill("half a sentence")
    make.audit("case.note", "something happened", by=make.actor(scene["people"]["admin"]), case_id=scene["case"].pk)
    expect(page.locator("#pill")).to_have_text("Changed – show", timeout=9000)
    expect(page.locator("#dialog-dismiss textarea")).to_have_value("half a sentence")


def test_pause_stops_the_polling(scene, visit):
    page = visit("operator")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-live-words]")).to_have_text("Paused")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(6000)
    assert asked == []


def test_a_dead_server_raises_the_stale_banner(scene, visit):
    page = visit("operator")
    page.route("**/*", lambda route: route.abort())
    expect(page.locator("#stale")).to_be_visible(timeout=30000)
    page.complaints.clear()  # the browser complains about each aborted request


def test_filters_push_an_address_that_shows_the_same_rows_to_others(scene, visit):
    page = visit("operator", "/fleet/")
    page.select_option("select[name=health]", "HARDWARE")
    page.wait_for_url("**/fleet/?health=HARDWARE**")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(Case.objects.filter(instance__verdict="HARDWARE", instance__gone_at=None).count())
    ids = rows.evaluate_all("rows => rows.map(row => row.dataset.row)")
    other = visit("viewer", page.url.replace(page.url.split("/fleet/")[0], ""), java_script_enabled=False)
    assert [row.get_attribute("data-row") for row in other.locator("tbody tr").all()] == ids


def test_j_and_k_move_and_slash_searches(scene, visit):
    page = visit("operator")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tr.cursor")).to_have_count(1)
    assert page.locator("tbody tr").first.get_attribute("class").endswith("cursor")
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("ja")
    expect(page.locator("#find")).to_have_value("ja")
