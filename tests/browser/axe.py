"""axe in the page that is open: put in once, asked in both themes and both widths."""

from __future__ import annotations

from functools import cache
from pathlib import Path

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES = {"runOnly": {"type": "tag", "values": TAGS}, "rules": {"target-size": {"enabled": True}},
         "resultTypes": ["violations"], "elementRef": False}  # fmt: skip
#: what a theme alone can change
COLOURS = {**RULES, "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}, "rules": {}}
WIDTHS = (1440, 390)


@cache
def _source() -> str:
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def breaches(page, options: dict = RULES) -> list[str]:
    """One line for each rule that the page breaks as it stands. Its context must bypass the CSP."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(_source())
    found = page.evaluate("options => axe.run(document, options).then(result => result.violations)", options)
    return [f"{v['id']}: {v['nodes'][0]['html'][:160]} ({v['nodes'][0]['failureSummary'][:240]})" for v in found]


def everywhere(page) -> dict[str, list[str]]:
    """(width, theme) -> what is wrong with the page there; nothing where it is clean in all four."""
    wrong = {}
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            if found := breaches(page, RULES if theme == "light" else COLOURS):
                wrong[f"{width} {theme}"] = found
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.emulate_media(color_scheme="light")
    return wrong


def told(wrong: dict[str, list[str]]) -> str:
    """Each breach once, with where it was seen."""
    seen: dict[str, list[str]] = {}
    for where, found in wrong.items():
        for line in found:
            seen.setdefault(line, []).append(where)
    return "\n".join(f"{line}\n    at {', '.join(where[:6])} ({len(where)} in all)" for line, where in seen.items())
