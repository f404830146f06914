"""The fleet's map by keyboard and pointer: one tab stop, arrows between cells, words for the cell, Enter opens."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_arrows_move_between_cells_and_enter_opens(scene, visit):
    page = visit("operator", "/fleet/map/?group=pool")
    cells = page.locator(".rack a")
    assert page.locator('.rack a[tabindex="0"]').count() == 1
    page.locator('.rack a[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    expect(cells.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(cells.last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    sick = page.locator(f'.rack a[href="/instances/{scene["sick"].pk}/"]')
    sick.focus()
    expect(page.locator("#readout")).to_contain_text("XID_119: Ambiguous, GPU 3 of 8 bad, Waits for a person")
    cells.nth(1).hover()
    expect(page.locator("#readout")).to_have_text(re.compile(r"^i-\w+: "))
    expect(page.locator("#readout")).not_to_contain_text("XID_119")
    sick.hover()
    expect(page.locator("#readout")).to_contain_text("XID_119: Ambiguous")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/instances/{scene['sick'].pk}/")
