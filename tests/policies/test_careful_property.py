"""Every declared order, field by field, for whatever settings there are; and no order of anything that matters."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthboard.policies import fields, windows
from healthboard.policies.fields import SETTINGS, Setting
from healthboard.policies.matching import Snapshot, Target, combine
from healthboard.policies.resolve import resolve, thresholds
from tests.policies import draw

WINDOWS = ("Mon-Fri 22:00-06:00 Europe/Berlin", "Sat,Sun 00:00-24:00 UTC", "02:00-04:00 America/New_York")
BLACKOUTS = ("2026-12-20 to 2027-01-02 UTC: freeze", "2026-12-02 08:00 to 2026-12-02 20:00 Asia/Tokyo")
TIMES = [datetime(2026, 12, 1, tzinfo=UTC) + timedelta(hours=7 * n) for n in range(12)]


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    """Values that the form would take for it; exceptions per code have tests of their own."""
    match setting.kind:
        case "choice":
            found: st.SearchStrategy[Any] = st.sampled_from(setting.choices)
        case "seconds" | "count":
            found = st.integers(int(setting.least), int(setting.most))
        case "share":
            found = st.floats(setting.least, setting.most, allow_nan=False)
        case "yes_no":
            found = st.booleans()
        case "names":
            found = st.lists(st.sampled_from(("operators", "llm", "sre")), unique=True, max_size=3)
        case "ladder":
            found = st.lists(st.sampled_from(setting.choices), unique=True, max_size=len(setting.choices))
        case "windows":
            found = st.lists(st.sampled_from(WINDOWS), unique=True, max_size=2)
        case "blackouts":
            found = st.lists(st.sampled_from(BLACKOUTS), unique=True, max_size=2)
        case "codes":
            return draw.settings.map(lambda drawn: drawn.get("codes", {}))
        case _:
            found = st.sampled_from(("", "sre", "ml"))
    return st.none() | found if setting.optional else found


everything = st.fixed_dictionaries({}, optional={s.name: values_of(s) for s in SETTINGS})


@st.composite
def policies(draw_: Any) -> list[Snapshot]:
    found = [Snapshot("default", {}, draw_(everything), default=True)]
    for name, match in (("a", {"workload": "a"}), ("b", {"workload": "b"}), ("a too", {"workload": "a"}),
                        ("train", {"pool": "train"}), ("tagged", {"tags": {"team": "x"}})):  # fmt: skip
        if draw_(st.booleans()):
            found.append(Snapshot(name, match, draw_(everything)))
    return found


def no_less_careful(setting: Setting, together: Any, alone: Any) -> bool:
    """Whether `together` allows nothing that `alone` does not, by the order that the setting declares."""
    match setting.careful:
        case "first":
            return setting.choices.index(together) <= setting.choices.index(alone)
        case "min":
            return (math.inf if together is None else together) <= (math.inf if alone is None else alone)
        case "max":
            return (math.inf if together is None else together) >= (math.inf if alone is None else alone)
        case "yes":
            return together or not alone
        case "no":
            return alone or not together
        case "common":
            return set(together) <= set(alone)
        case "union":
            return set(together) >= set(alone)
        case "within":
            return all(_closed(together, at) or not _closed(alone, at) for at in TIMES)
    raise AssertionError(f"{setting.name}: no test knows the order {setting.careful}")


def _closed(value: Any, at: datetime) -> bool:
    return windows.closed({"windows": value, "blackouts": []}, at) is not None


ORDERED = [s for s in SETTINGS if s.careful not in (None, "codes")]


@given(policies(), st.lists(draw.targets, min_size=1, max_size=3))
def test_each_declared_field_is_as_careful_as_the_most_careful_workload(policies, targets):
    together = combine(policies, targets).values
    for alone in (combine(policies, [target]).values for target in targets):
        for setting in ORDERED:
            assert no_less_careful(setting, together[setting.name], alone[setting.name]), setting.name


@given(policies(), st.sampled_from(("a", "b", "c")))
def test_of_equally_specific_matches_each_declared_field_is_as_careful_as_the_most_careful(policies, workload):
    here = Target(pool="train", workload=workload)
    found = combine(policies, [here]).values
    matching = [p for p in policies if p.matches(here)]
    nearest = max(p.rank for p in matching)
    for setting in ORDERED:
        for policy in (p for p in matching if p.rank == nearest and setting.name in p.settings):
            assert no_less_careful(setting, found[setting.name], policy.settings[setting.name]), setting.name


@given(policies(), st.lists(draw.targets, min_size=1, max_size=3), st.randoms(), draw.questions)
def test_no_order_of_matches_tasks_settings_or_codes_changes_anything(policies, targets, random, question):
    first = combine(policies, targets)
    turned = [Snapshot(p.name, _turned(p.match, random), _turned(p.settings, random), p.default) for p in policies]
    random.shuffle(turned)
    again = combine(turned, random.sample(targets, len(targets)))
    assert again == first and combine(policies, targets) == first
    assert resolve(*question, again.values, again.origin) == resolve(*question, first.values, first.origin)
    assert thresholds(again.values) == thresholds(first.values)


def _turned(mapping: dict[str, Any], random: Any) -> dict[str, Any]:
    """The same mapping, put together in another order, and so are the mappings in it."""
    items = list(mapping.items())
    random.shuffle(items)
    return {key: _turned(value, random) if isinstance(value, dict) else value for key, value in items}


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.careful is None], ids=lambda s: s.name)
def test_where_no_order_is_declared_two_workloads_that_differ_are_asked(setting):
    named = [
        Snapshot(w, {"workload": w}, {setting.name: v, "mode_hardware": "auto"}) for w, v in (("a", "sre"), ("b", "ml"))
    ]
    found = combine(named, [Target(workload="a"), Target(workload="b")]).values
    assert found["mode_hardware"] == "ask" and fields.BY_NAME[setting.name].default == found[setting.name]
