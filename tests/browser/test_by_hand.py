"""Actions by hand in a browser, without scripts: what is asked goes out by a plain form."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from healthboard.fleet.models import Instance
from healthboard.policies.defaults import ensure_default
from healthboard.repairs.models import Repair

pytestmark = pytest.mark.browser


def test_a_machine_is_drained_and_another_returned_each_with_its_plan_first(scene, visit):
    ensure_default()
    good, drained = scene["fleet"][0], scene["fleet"][2]
    Instance.objects.filter(pk=drained.pk).update(ecs_status="DRAINING")
    page = visit("operator", java_script_enabled=False, viewport={"width": 390, "height": 844})
    for on, button in ((good, "Drain"), (drained, "Return to service")):
        page.goto(f"/instances/{on.pk}/")
        page.get_by_role("link", name=f"{button}…", exact=True).click()
        expect(page.locator("#plan + .say")).to_contain_text(on.instance_id)
        page.fill("#reason", "a look at its cables")
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator(".said")).to_contain_text(f"Asked for: {button.lower()}.")
        expect(page.locator(".undo")).to_contain_text("Nothing has been changed yet")
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.locator("h1")).to_contain_text("Return to service")
    assert set(Repair.objects.filter(requested_by="operator", instance__in=[good, drained]).values_list("action", "state")) == {
        ("DRAIN", "SCHEDULED"), ("RETURN", "CANCELLED"),
    }  # fmt: skip
