"""How long a container may take to stop is told by its task definition, and by nothing else."""

from __future__ import annotations

import pytest
from django.db import transaction

from healthboard import clock
from healthboard.people.actors import POLICY
from healthboard.repairs import lifecycle
from healthboard.sandbox.entities import Definition
from tests.repairs.driver import SPEED
from workers.repair.left import unkillable
from workers.repair.look import AwsTrouble, tasks_on
from workers.repair.run import Run

MARGIN, AGENTS = 300, 120


@pytest.fixture
def solo(db, drives):
    return drives("solo=template:4")


class Stuck:
    """A machine with one task of a service that was told to stop, and a repair that waits for it."""

    def __init__(self, drive):
        self.drive, world = drive, drive.fleet.world
        self.task = next(t for t in world.tasks.values() if t.service == "simulate" and t.last == "RUNNING")
        self.machine = world.instances[world.containers[self.task.container].instance]
        world.services["gpu/simulate"].desired -= 1  # it has what it wants without this one
        self.task.desired = "STOPPED"
        with transaction.atomic():
            self.repair = lifecycle.open_repair(
                instance=drive.row(self.machine), action="REPLACE", actor=POLICY, not_before=clock.now(),
                values={"unkillable": "auto", "unkillable_margin_s": MARGIN, "stop_timeout_s": AGENTS},
            )  # fmt: skip

    def defined(self, *containers):
        named = f"{self.task.family}:{self.task.revision}"
        boxes = [{"name": f"c{n}", **box} for n, box in enumerate(containers)]
        self.drive.fleet.world.definitions[named] = Definition(id=named, family=self.task.family, containers=boxes)

    def after(self, seconds, **values):
        """What is made of it so long after the order, at speed 1."""
        self.task.stopping_at = self.drive.fleet.clock() - seconds / SPEED
        run = Run(self.repair)
        run.values = {**run.values, **values}
        return unkillable(run, tasks_on(self.drive.row(self.machine)))


def test_it_is_the_longest_of_its_containers_and_the_agents_where_one_sets_none(solo):
    stuck = Stuck(solo)
    stuck.defined({"stopTimeout": 1800}, {})
    assert stuck.after(1800 + MARGIN - 30) is None
    left = stuck.after(1800 + MARGIN + 30)
    assert left.proven and "outlived the stop time-out" in left.why
    for none in ({}, {"stopTimeout": 0}):
        stuck.defined({"stopTimeout": 10}, none)
        assert stuck.after(AGENTS + MARGIN - 30) is None and stuck.after(AGENTS + MARGIN + 30).proven
        assert stuck.after(AGENTS + MARGIN + 30, stop_timeout_s=3600) is None, "the policy says what the agents have"
    stuck.defined({"stopTimeout": 600}, {"stopTimeout": 900, "dependsOn": [{"containerName": "c0"}]})
    assert stuck.after(900 + MARGIN + 30) is None, "they are stopped one after the other"
    assert stuck.after(1500 + MARGIN + 30).proven


@pytest.mark.parametrize("rule", [
    {"do": "error", "code": "AccessDeniedException"}, {"do": "error", "code": "ClientException"},
    {"do": "fields", "fields": ["containerDefinitions"]},
])  # fmt: skip
def test_without_a_known_stop_time_out_nothing_is_proven(solo, rule):
    stuck = Stuck(solo)
    stuck.defined({"stopTimeout": 1800})
    solo.rules({"operation": "DescribeTaskDefinition", "times": 9, **rule})
    assert stuck.after(AGENTS + MARGIN - 30) is None
    left = stuck.after(AGENTS + MARGIN + 30)
    assert left.missing == ("the stop time-out of simulate:7 is not known",) and left.allowed
    assert "outlived" not in left.why, "that would be untrue"


def test_while_aws_does_not_answer_nothing_is_concluded(solo):
    stuck = Stuck(solo)
    solo.rules({"operation": "DescribeTaskDefinition", "do": "error", "code": "ThrottlingException", "times": 9})
    with pytest.raises(AwsTrouble, match="DescribeTaskDefinition"):
        stuck.after(AGENTS + MARGIN + 30)
