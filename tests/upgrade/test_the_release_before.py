"""An installation of each release before, as it was stopped in the middle of repairs, is taken over by this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.loop.conftest import new_database
from tests.upgrade.released import Release, releases

ROOT = Path(__file__).resolve().parents[2]
RELEASES = releases()
pytestmark = pytest.mark.skipif("DATABASE_URL" not in os.environ, reason="the dumps are PostgreSQL's")
#: what ends a machine or makes one, by pool: owner and action differ, so does what must have happened once
ONCE = {"train": ("EnterStandby", "DetachInstances", "TerminateInstances"), "solo": ("TerminateInstances",),
        "infer": ("RebootInstances",)}  # fmt: skip
MIGRATED_WITHIN_S = 60


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.tag)
def taken_over(request, tmp_path_factory) -> tuple[Release, dict]:
    release: Release = request.param
    home = release.unpack(tmp_path_factory.mktemp("home"))
    database = new_database()
    release.restore(database)
    env = os.environ | {
        "DATABASE_URL": database, "HEALTHBOARD_HOME": str(home), "HEALTHBOARD_SANDBOX_PASSWORD": "for-tests-only-1",
        "HEALTHBOARD_SANDBOX_SPEED": str(release.told["speed"]), "HEALTHBOARD_SANDBOX_POOLS": release.told["pools"],
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.upgrade.carry_on", release.tag, str(home / "told.json")], cwd=ROOT, env=env,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return release, json.loads((home / "told.json").read_text())


def test_there_is_a_release_before():
    assert RELEASES and (ROOT / "tests/upgrade/releases" / RELEASES[-1].tag / "database.sql.gz").exists()


def test_it_was_stopped_in_the_middle(taken_over):
    """Else this file would show nothing."""
    release, told = taken_over
    before = {row["instance_id"]: row for row in told["before"]}
    assert set(before) >= set(release.told["broken"].values())
    did = Counter(operation for operation, _ in told["calls_before"])
    assert ["EnterStandby", release.told["broken"]["train"]] in told["calls_before"]
    assert (did["RunInstances"], did["TerminateInstances"]) == (1, 0)
    assert ["UpdateContainerInstancesState", release.told["broken"]["infer"]] in told["calls_before"]


def test_the_migrated_database_is_whole(taken_over):
    _, told = taken_over
    assert told["migrate_s"] < MIGRATED_WITHIN_S
    assert "not applied" not in told["schema"] and "newer" not in told["schema"]
    assert told["audit"][0] == 0 and "every row is as it was sealed" in told["audit"][1]
    assert told["invariants"] == [0, "all invariants hold\n"]


def test_every_page_opens(taken_over):
    _, told = taken_over
    assert len(told["pages"]) > 20
    assert {address: status for address, status in told["pages"].items() if status not in (200, 302, 405)} == {}
    assert sum(1 for status in told["pages"].values() if status == 200) > 15


def test_a_node_with_a_token_of_then_is_heard(taken_over):
    _, told = taken_over
    assert told["report"][0] == 200, told["report"]


def test_repairs_under_way_are_finished_and_nothing_is_done_twice(taken_over):
    release, told = taken_over
    assert {pool: end[0] for pool, end in told["finished"]["ends"].items()} == dict.fromkeys(ONCE, "SUCCEEDED")
    done = Counter((operation, target) for operation, target in told["calls"])
    for pool, operations in ONCE.items():
        for operation in operations:
            assert done[operation, release.told["broken"][pool]] == 1, (pool, operation, told["calls"])
    total = Counter(operation for operation, _ in told["calls"])
    assert (total["RunInstances"], total["EnterStandby"]) == (1, 2), "one launch of ours, one of the group's, one aside"
    assert told["finished"]["running"] == {"train": 6, "solo": 6, "infer": 6}, "no machine more, none less"
    assert total["TerminateInstances"] == 2 and total["TerminateInstanceInAutoScalingGroup"] == 0
    assert told["sound"] == [0, "all invariants hold\n"] and told["differing"] == []


def test_a_question_of_then_is_answered_now(taken_over):
    _, told = taken_over
    assert told["finished"]["asked"] == "DONE"


def test_a_restored_backup_is_whole_and_known_to_be_old(taken_over):
    _, told = taken_over
    drill = told["drill"]
    assert drill["intact"][0] == 0, drill["intact"]
    assert drill["behind"][0] == 1 and "it was put back to an earlier time" in drill["behind"][1]
    assert drill["stopped"].startswith("RESTORED: ")


def test_after_a_restore_it_only_watches_until_a_person_releases_it(taken_over):
    _, told = taken_over
    drill = told["drill"]
    assert len(drill["open"]) >= 3, "the restored database thinks that they are under way"
    assert drill["watched"] == []


def test_what_aws_has_seen_already_is_not_done_again(taken_over):
    _, told = taken_over
    drill = told["drill"]
    after = Counter(operation for operation, _ in drill["after"])
    for operation in ("RunInstances", "EnterStandby", "TerminateInstances", "TerminateInstanceInAutoScalingGroup"):
        assert after[operation] == 0, drill["after"]
    assert all(state in ("ASKING", "SUCCEEDED", "FAILED", "CANCELLED") for _, state, _ in drill["ends"]), drill["ends"]
    assert drill["audit"][0] == 0 and "began again" in drill["audit"][1]


def test_what_was_done_in_the_lost_time_is_named(taken_over):
    """AWS's log holds calls that the restored database knows nothing of; nothing else is wrong with it."""
    release, told = taken_over
    said = told["drill"]["invariants"][1].splitlines()
    assert all(line.startswith("INV6: AWS saw ") for line in said)
    for pool in ("train", "solo"):
        assert f"INV6: AWS saw 1 TerminateInstances on {release.told['broken'][pool]}, 0 were intended" in said
