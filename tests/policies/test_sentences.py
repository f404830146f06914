"""What a policy will do is said in sentences, and no setting is left out of them."""

from __future__ import annotations

import pytest

from healthboard.policies import fields
from healthboard.policies.fields import SETTINGS
from healthboard.policies.sentences import sentences
from healthboard.policies.words import changes, matches

#: with these, every setting takes part
WHOLE = {**fields.defaults(), "wait_for_idle": "job", "checkpoint": ["train-hook"]}


def values_of(setting):
    """Several that differ."""
    match setting.kind:
        case "choice":
            return setting.choices
        case "yes_no":
            return (True, False)
        case "seconds":
            return (int(setting.least), int(setting.most), setting.default)
        case "share":
            return (0.1, 0.2)
        case "count":
            return (*((None,) if setting.optional else ()), 1, 2)
        case "text":
            return ("", "sre")
        case "names":
            return (["operators"], ["llm", "operators"])
        case "ladder":
            return (["REBOOT"], ["REPLACE"], ["REBOOT", "REPLACE"])
        case "codes":
            return ({}, {"XID_79": {"mode": "ask"}}, {"XID_79": {"mode": "ask", "action": "REBOOT"}})
        case "windows":
            return ([], ["Sat 00:00-24:00 UTC"], [["Sat 00:00-24:00 UTC"], ["Sun 00:00-24:00 UTC"]])
        case "blackouts":
            return ([], ["2026-12-20 00:00 to 2027-01-02 24:00 UTC: freeze"])
    raise AssertionError(setting.kind)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_each_setting_is_in_the_sentences(setting):
    said = [" ".join(sentences({**WHOLE, setting.name: value})) for value in values_of(setting)]
    assert len(set(said)) == len(said), said


@pytest.mark.parametrize(
    "number, said", [(1, "and 1 instance are out at once, at most 1 repair an hour"),
                     (2, "and 2 instances are out at once, at most 2 repairs an hour")],
)  # fmt: skip
def test_one_is_said_in_the_singular(number, said):
    assert said in " ".join(sentences({**WHOLE, "budget_absolute": number, "repairs_per_hour": number}))


def test_they_read_as_people_write():
    said = sentences({**WHOLE, "windows": ["Sat 22:00-06:00 Europe/Berlin"]}, "the workload llm")
    assert said[0].startswith(
        "For the workload llm: clear hardware failures confirmed by a second witness are repaired"
    )
    assert "Repairs begin only within Sat 22:00-06:00 Europe/Berlin; one that has begun to drain is" in " ".join(said)
    assert "Before draining train-hook must answer that it is ready" in " ".join(said)
    assert all(line.endswith(".") and "  " not in line for line in said)


@pytest.mark.parametrize(
    "data, said",
    [
        ({}, "every workload"),
        ({"workload": "llm", "pool": "train", "account": "111122223333"}, "the workload llm in the pool train in the account 111122223333"),
        ({"pool": "train", "tags": {"team": "a", "gpu": ""}}, "the pool train with the tags gpu and team=a"),
        ({"tags": {"team": "a"}}, "every workload with the tag team=a"),
    ],
)  # fmt: skip
def test_whom_it_is_for_reads_from_the_narrow_to_the_wide(data, said):
    assert matches(data) == said


def test_what_a_first_version_sets_is_said_without_a_before():
    said = changes({}, {"name": "llm", "enabled": True, "pool": "train", "settings": {"undo_s": 60}})
    assert said == ["name: llm", "enabled: yes", "pool: any → train", "Undo time: inherited → 1 min"]


def test_who_only_observes_reads_no_more_than_that():
    said = sentences({**WHOLE, "mode_hardware": "observe", "mode_ambiguous": "observe"})
    assert "Nothing is ever repaired." in said and not any("out at once" in line for line in said)
