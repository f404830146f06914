"""Thirty recorded days of a fleet, decided again: alike under the policies of then; under another policy as a second run
of the same days goes, in each pool up to the first decision that differs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from healthboard import aws
from healthboard.cases import preview, replay
from healthboard.cases.models import Decision, Evidence
from healthboard.people import access
from healthboard.policies.models import Policy
from tests import factories
from tests.repairs import driver, month

POOLS = "train=group:2,solo=template:2"
#: in both pools something is decided alike before the first of these comes, on day 4
OTHER = {"codes": {"XID_136": {"mode": "auto", "action": "REBOOT"}, "XID_119": {"mode": "observe"}}}
UNTIL = 5


class _Undo(Exception):
    """Ends the second run: its rows are taken back."""


@pytest.fixture
def rerun(db, drives) -> tuple[float, dict[str, list[tuple]]]:
    """Where its clock began, and its course: the same days under the other policy, as far as they are needed."""
    course: dict[str, list[tuple]] = {}
    with pytest.raises(_Undo), transaction.atomic():
        drive = drives(POOLS)
        base = drive.fleet.clock.base
        second = month.Month(drive, **OTHER)
        second.pass_days(0, UNTIL)
        course = second.course()
        drive.stop()
        raise _Undo
    return base, course


@pytest.fixture
def recorded(rerun, drives, tmp_path, monkeypatch) -> month.Month:
    """All of the days, under the policy that there is."""
    home = tmp_path / "recorded"
    monkeypatch.setenv("HEALTHBOARD_HOME", str(home))
    monkeypatch.setattr(aws, "_clients", {})
    monkeypatch.setattr(driver.Still, "__init__", lambda clock, at: vars(clock).update(base=rerun[0], offset=0.0))
    found = month.Month(drives(POOLS, home=home))
    found.pass_days(0, month.DAYS)
    return found


def other_policy() -> dict[str, Any]:
    data = Policy.objects.select_related("current").get(is_default=True).current.data
    return {**data, "settings": {**data["settings"], **OTHER}}


def decided_again(recorded: month.Month) -> dict[str, list[tuple]]:
    """Pool -> the recorded evidence as the other policy decides it."""
    instead, found = replay.Instead([other_policy()]), {}
    for row in Evidence.objects.select_related("case__pool", "case__instance").order_by("pk"):
        again = replay.again(row, instead)
        found.setdefault(row.case.pool.name, []).append(recorded.entry(row, again.assessment, again.answer))
    return found


def test_a_month_is_decided_alike_and_its_preview_is_how_it_would_have_gone(rerun, recorded):
    # every decision of the month is reproduced
    assert [found.lines() for found in replay.since(recorded.at) if found is not None] == []
    assert Evidence.objects.count() >= 14
    assert Decision.objects.filter(kind="auto").count() >= 2 and Decision.objects.exclude(kind="auto").count() >= 8
    # another policy: the second run is what the preview says, up to each pool's first difference
    was, now, again = recorded.course(), decided_again(recorded), rerun[1]
    lines = preview.of(access.seeing(factories.person("admin")), other_policy(), days=30, seconds=60).lines
    for pool, modes in (("solo", ("ask", "auto")), ("train", ("ask", "observe"))):
        first = next(n for n, pair in enumerate(zip(was[pool], now[pool], strict=True)) if pair[0] != pair[1])
        assert first > 0 and now[pool][: first + 1] == again[pool][: first + 1]
        told = [line for line in lines if line.case.pool.name == pool]
        assert (told[0].then.mode, told[0].now.mode) == modes and told[0].at - recorded.at == now[pool][first][0]
        assert [line.counterfactual for line in told] == [False, *[True] * (len(told) - 1)]
    assert len(lines) > 2
