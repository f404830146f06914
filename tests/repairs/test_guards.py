"""Each guard, and the test that fails without it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from django.db import connection

from healthboard import aws
from healthboard.repairs.models import Call
from tests.repairs.driver import ACCOUNT, REGION
from workers.repair.steps.launch import token_for

ROOT = Path(__file__).resolve().parents[1]
GUARDS = {
    "unique index": ("cases/test_races.py", "test_one_open_repair_per_instance"),
    "fence": ("cases/test_races.py", "test_a_stale_fence_writes_nothing"),
    "lease": ("cases/test_races.py", "test_a_leased_repair_is_not_claimed_by_another"),
    "lease at the intent": ("cases/test_races.py", "test_after_its_lease_a_worker_intends_nothing"),
    "lease at the sending": ("repairs/test_stood_still.py", "test_a_call_whose_worker_stood_still_is_not_sent"),
    "budget lock": ("cases/test_races.py", "test_five_starts_at_once_never_pass_the_budget"),
    "drain check": ("repairs/test_dead_hosts.py", "test_a_standalone_task_is_waited_for_and_then_asked_about"),
    "room check": ("repairs/test_no_room.py", "test_without_room_in_the_group_nothing_is_drained"),
    "replacement check": ("repairs/test_no_room.py", "test_a_replacement_with_the_same_fault_asks_and_ends_nothing"),
    "owner check": ("repairs/test_others.py", "test_an_owner_that_changes_under_way_ends_the_acting"),
    "owner check of decisions": ("cases/test_owners.py", "test_what_is_not_ours_is_observed"),
    "pause tag": ("repairs/test_others.py", "test_a_pause_tag_is_read_before_every_step_even_of_an_undo"),
    "breaker": ("cases/test_races.py", "test_after_a_breaker_has_opened_no_automatic_intent_is_committed"),
    "stop switch": ("cases/test_races.py", "test_after_the_stop_switch_no_intent_is_committed"),
    "evidence hash": ("cases/test_decide.py", "test_a_changed_plan_or_other_evidence_is_refused_with_what_changed"),
    "evidence at the end": (
        "repairs/test_undo.py",
        "test_evidence_that_clears_undoes_a_repair_before_its_irreversible_step",
    ),
    "tries of the slot": ("cases/test_tries.py", "test_the_repairs_of_a_slot_are_counted_together"),
    "same fault again": ("cases/test_tries.py", "test_the_same_kind_of_fault_on_the_replacement_stops_and_asks"),
    "repairs per hour": ("cases/test_velocity.py", "test_repairs_per_hour_count_also_when_the_earlier_ones_are_over"),
    "one zone": ("cases/test_velocity.py", "test_one_zone_at_a_time"),
    "floor": ("cases/test_velocity.py", "test_members_that_are_missing_altogether_do_not_lower_the_floor"),
    "breaker for AWS": ("cases/test_breakers.py", "test_lasting_trouble_with_aws_opens_a_breaker_once"),
    "breaker for blindness": (
        "cases/test_breakers.py",
        "test_sources_that_stay_blind_under_an_open_repair_open_a_breaker",
    ),
    "protected mode": (
        "cases/test_breakers.py",
        "test_launches_that_fail_in_a_row_put_the_pool_into_protected_mode",
    ),
    "watching anew": (
        "cases/test_watching_anew.py",
        "test_after_a_gap_or_a_jump_ahead_full_rounds_come_first",
    ),
    "backlog": ("cases/test_watching_anew.py", "test_ten_thousand_old_events_open_no_case_and_a_fresh_one_does"),
    "blind sources": ("repairs/test_others.py", "test_blind_sources_hold_what_is_scheduled"),
    "database put back": ("audit/test_restored.py", "test_no_intent_and_no_start_even_before_anybody_looked"),
    "audit triggers": ("audit/test_chain.py", "test_rows_and_seals_cannot_be_changed_or_deleted_by_sql"),
    "intent row": ("repairs/test_guards.py", "test_every_changing_call_was_intended_and_committed_before"),
    "token": ("repairs/test_guards.py", "test_a_launch_that_is_repeated_is_the_same_launch"),
}


@pytest.mark.parametrize("guard", list(GUARDS))
def test_each_guard_has_its_test(guard):
    path, name = GUARDS[guard]
    assert f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.django_db(transaction=True)
def test_every_changing_call_was_intended_and_committed_before(drives):
    drive = drives("train=group:3")
    machine = drive.machine("train")
    made: list[str] = []
    missing: list[str] = []

    def look(operation: str) -> None:
        """By a connection of its own, which sees only what is committed."""
        if not Call.objects.filter(operation=operation, answered_at=None).exists():
            missing.append(operation)
        connection.close()

    def called(model, **_) -> None:
        made.append(model.name)
        thread = threading.Thread(target=look, args=(model.name,))
        thread.start()
        thread.join(10)

    for service in ("ec2", "ecs", "autoscaling"):
        aws.client(service, account=ACCOUNT, region=REGION, changing=True).meta.events.register("before-call", called)
    drive.inject(machine, "XID_79", 0)
    drive.repaired(machine)
    assert {"UpdateContainerInstancesState", "EnterStandby", "DetachInstances", "TerminateInstances"} <= set(made)
    assert missing == []
    assert not Call.objects.filter(answered_at=None).exists()


@pytest.mark.parametrize("how", ["drop_before", "drop_after", "error_after"])
def test_a_launch_that_is_repeated_is_the_same_launch(db, drives, how):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.rules({"service": "ec2", "operation": "RunInstances", "do": how, "times": 2})
    drive.inject(machine, "XID_79", 0)
    repair = drive.repaired(machine)
    assert repair.outcome == "REPLACED"
    tokens = set(repair.calls.filter(operation="RunInstances").values_list("token", flat=True))
    assert tokens == {token_for(repair.pk, 1)} and repair.calls.filter(operation="RunInstances").count() == 3
    world = drive.fleet.world
    assert len([i for i in world.instances.values() if i.state in ("pending", "running")]) == 3
    assert len(world.instances) == 4
    drive.sound()
