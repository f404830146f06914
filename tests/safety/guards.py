"""The registry of guards: what takes each out, and the test that must fail then. Needs neither Django nor healthboard.

A guard is taken out by changing the text of the module that holds it, in memory, while a test process imports it, or
by SQL on that process's test database. Nothing in the product can do it; see `tests.safety.without`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Cut(NamedTuple):
    """`old`, which stands exactly once in the file, becomes `new`."""

    path: str
    old: str
    new: str

    def made(self, source: str) -> str:
        """Raises LookupError where the guard is no longer where it was."""
        if source.count(self.old) != 1:
            raise LookupError(f"{self.old!r} stands {source.count(self.old)} times in {self.path}")
        return source.replace(self.old, self.new)


class Guard(NamedTuple):
    #: path below tests, and the name of the test, with the parameters where one of them is enough
    test: str
    cuts: tuple[Cut, ...] = ()
    sql: str = ""
    #: a few seconds of processor time, and nothing on the database: tried by every run of the tests as well
    cheap: bool = False


LIFECYCLE, BRAKES, BUDGET = (f"healthboard/repairs/{n}.py" for n in ("lifecycle", "brakes", "budget"))
ENGINE, RUN, LAUNCH = "workers/repair/engine.py", "workers/repair/run.py", "workers/repair/steps/launch.py"
BEGIN, CHECKPOINT = "workers/repair/begin.py", "workers/repair/steps/checkpoint.py"
LEAVE, PREPARE, REPLACE = (f"workers/repair/steps/{n}.py" for n in ("leave", "prepare", "replace"))
ANSWERS, JUDGE, TRIPS = "healthboard/cases/answers.py", "healthboard/cases/judge.py", "workers/repair/trips.py"

GUARDS = {
    "unique index": Guard(
        "cases/test_races.py::test_one_open_repair_per_instance", sql="DROP INDEX one_open_repair"
    ),
    "fence": Guard(
        "cases/test_races.py::test_a_stale_fence_writes_nothing",
        (Cut(LIFECYCLE, "if row.fence != repair.fence or row.state in CLOSED:", "if row.state in CLOSED:"),), cheap=True,
    ),
    "lease": Guard(
        "cases/test_races.py::test_a_leased_repair_is_not_claimed_by_another",
        (Cut(LIFECYCLE, "Q(lease_until=None) | Q(lease_until__lte=now), pk=repair_id", "pk=repair_id"),), cheap=True,
    ),
    "lease at the intent": Guard(
        "cases/test_races.py::test_after_its_lease_a_worker_intends_nothing",
        (Cut(LIFECYCLE, "if row.lease_until is None or row.lease_until <= clock.now():", "if False:"),),
    ),
    "lease at the sending": Guard(
        "repairs/test_stood_still.py::test_a_call_whose_worker_stood_still_is_not_sent",
        (Cut(RUN, "with aws.sent_until(begun + SEND_WITHIN_S):", "with aws.sent_until(begun + 1e9):"),),
    ),
    "budget": Guard(
        "cases/test_races.py::test_five_starts_at_once_never_pass_the_budget",
        (Cut(BUDGET, "elif not already_out and seen.out + 1 <= seen.allowed:", "elif True:"),),
    ),
    "budget lock": Guard(
        "cases/test_races.py::test_two_takes_at_once_never_pass_the_budget",
        (Cut(BUDGET, "Pool.objects.select_for_update(no_key=True).get(", "Pool.objects.get("),),
    ),
    "drain check": Guard(
        "repairs/test_dead_hosts.py::test_a_standalone_task_is_waited_for_and_then_asked_about",
        (
            Cut(LEAVE, "    if look.tasks == 0:\n", "    if True:\n"),
            Cut(REPLACE, "    if has_left(run):\n", "    if True:\n"),
        ),
    ),
    "drain check before the end": Guard(
        "repairs/test_dead_hosts.py::test_a_task_that_comes_back_before_the_end_holds_it_up",
        (Cut(REPLACE, "    if has_left(run):\n", "    if True:\n"),),
    ),
    "room check": Guard(
        "repairs/test_no_room.py::test_without_room_in_the_group_nothing_is_drained[at_maximum]",
        (Cut(PREPARE, 'return End(False, "NO_ROOM", blocker) if blocker else', "return"),),
    ),
    "replacement check": Guard(
        "repairs/test_no_room.py::test_a_replacement_with_the_same_fault_asks_and_ends_nothing",
        (
            Cut(REPLACE, "    problem = why_not_serving(run, new)\n", "    problem = None\n"),
            Cut(REPLACE, "if problem := why_not_serving(run, new):", "if problem := None:"),
        ),
    ),
    "owner check": Guard(
        "repairs/test_others.py::test_an_owner_that_changes_under_way_ends_the_acting",
        (Cut(ENGINE, "if run.instance.is_self or (owner in TOUCHABLE and told not in TOUCHABLE and not ours_detached):",
             "if False:"),),
    ),
    "owner check of decisions": Guard(
        "cases/test_owners.py::test_what_is_not_ours_is_observed",
        (Cut(JUDGE, "    if instance.owner not in TOUCHABLE:\n", "    if False:\n"),),
    ),
    "pause tag": Guard(
        "repairs/test_others.py::test_a_pause_tag_is_read_before_every_step_even_of_an_undo",
        (Cut(ENGINE, "by = run.look.paused_by", 'by = ""'),),
    ),
    "breaker": Guard(
        "cases/test_races.py::test_after_a_breaker_has_opened_no_automatic_intent_is_committed",
        (Cut(BRAKES, "for breaker in breakers_for(instance, workloads):", "for breaker in ():"),),
    ),
    "breadth is seen first": Guard(
        "cases/test_breadth.py::test_nothing_starts_by_itself_before_all_cases_were_compared",
        (Cut(ENGINE, "if run.repair.automatic and not _breadth_was_seen(run):", "if False:"),),
    ),
    "maintenance window": Guard(
        "repairs/test_windows.py::test_what_a_person_approves_in_a_blackout_waits_as_well_and_an_admin_may_lift_it",
        (Cut(BEGIN, "    shut = opening.closed(repair)\n", "    shut = None\n"),),
    ),
    "maintenance window between steps": Guard(
        "repairs/test_windows.py::test_one_that_is_closed_before_anything_was_changed_is_put_off_and_gives_its_unit_back",
        (Cut(ENGINE, "    if not_now := may_begin(run):\n        return _take(run, not_now)\n", ""),),
    ),
    "what has begun is carried to its end": Guard(
        "repairs/test_windows.py::test_one_that_has_begun_to_drain_is_carried_to_its_end",
        (Cut(BEGIN, "    if not begins or opening.touched(repair):\n", "    if not begins:\n"),),
    ),
    "the workload's word": Guard(
        "repairs/test_checkpoint.py::test_a_refusal_asks_a_person_and_nothing_is_drained",
        (Cut(CHECKPOINT, "    if refused:\n", "    if False:\n"),),
    ),
    "one id of all tries of a call": Guard(
        "repairs/test_checkpoint.py::test_killed_at_every_point_of_the_call_it_is_asked_again_with_the_same_id",
        (Cut(CHECKPOINT, "{run.repair.pk}-{run.step.number}", "{run.repair.pk}-{run.repair.fence}"),),
    ),
    "idle directly before the drain": Guard(
        "repairs/test_idle.py::test_a_job_is_waited_for_where_the_policy_says_job_and_one_that_begins_at_the_last_moment_is_seen",
        (Cut(BEGIN, 'repair.step in ("", "idle", "drain")', 'repair.step in ("", "idle")'),),
    ),
    "stop switch": Guard(
        "cases/test_races.py::test_after_the_stop_switch_no_intent_is_committed",
        (Cut(BRAKES, "    if row.stopped:\n", "    if False:\n"),), cheap=True,
    ),
    "evidence hash": Guard(
        "cases/test_decide.py::test_a_changed_plan_or_other_evidence_is_refused_with_what_changed",
        (Cut(ANSWERS, "if plan_version != case.plan_version or evidence_hash != case.evidence_hash:",
             "if plan_version != case.plan_version:"),),
    ),
    "plan version": Guard(
        "cases/test_decide.py::test_a_new_plan_on_the_same_evidence_is_refused",
        (Cut(ANSWERS, "if plan_version != case.plan_version or evidence_hash != case.evidence_hash:",
             "if evidence_hash != case.evidence_hash:"),),
    ),
    "evidence at the end": Guard(
        "repairs/test_undo.py::test_evidence_that_clears_undoes_a_repair_before_its_irreversible_step",
        (Cut(PREPARE, 'if seen.verdict in GOOD and not run.facts.get("insisted"):', "if False:"),),
    ),
    "tries of the slot": Guard(
        "cases/test_tries.py::test_the_repairs_of_a_slot_are_counted_together",
        (Cut(JUDGE, "ended_24h=tries.ended(links)", "ended_24h=tries.ended(links[:1])"),),
    ),
    "same fault again": Guard(
        "cases/test_tries.py::test_the_same_kind_of_fault_on_the_replacement_stops_and_asks",
        (Cut(JUDGE, "if given.replaced and given.replaced_for in shown:", "if False:"),),
    ),
    "repairs per hour": Guard(
        "cases/test_velocity.py::test_repairs_per_hour_count_also_when_the_earlier_ones_are_over",
        (Cut(BUDGET, "if per_hour is not None:", "if False:"),),
    ),
    "one zone": Guard(
        "cases/test_velocity.py::test_one_zone_at_a_time",
        (Cut(BUDGET, 'if values.get("one_zone_at_a_time"):', "if False:"),),
    ),
    "floor": Guard(
        "cases/test_velocity.py::test_members_that_are_missing_altogether_do_not_lower_the_floor",
        (Cut(BUDGET, "if units and seen.serving - 1 < floor:", "if False:"),),
    ),
    "breaker for AWS": Guard(
        "cases/test_breakers.py::test_lasting_trouble_with_aws_opens_a_breaker_once",
        (Cut(TRIPS, "            _aws_errors(account, region, now)\n", ""),),
    ),
    "breaker for blindness": Guard(
        "cases/test_breakers.py::test_sources_that_stay_blind_under_an_open_repair_open_a_breaker",
        (Cut(TRIPS, "            _blind(account, region, now)\n", ""),),
    ),
    "breaker for what comes and goes": Guard(
        "cases/test_breakers.py::test_a_source_that_fails_and_sees_in_turn_opens_the_breaker_which_stays",
        (Cut(TRIPS, "return times if times >= max(FLAPS, rounds * FLAP_SHARE) else 0", "return 0"),),
    ),
    "limit of beginnings": Guard(
        "repairs/test_time_outs.py::test_a_repair_that_cannot_be_begun_for_a_fault_of_ours_ends_and_its_case_asks",
        (Cut("workers/repair/stuck.py", "    return tries >= TRIES\n", "    return False\n"),),
    ),
    "protected mode": Guard(
        "cases/test_breakers.py::test_launches_that_fail_in_a_row_put_the_pool_into_protected_mode",
        (Cut("healthboard/repairs/launches.py", "if failed >= IN_A_ROW:", "if False:"),),
    ),
    "watching anew": Guard(
        "cases/test_watching_anew.py::test_after_a_gap_or_a_jump_ahead_full_rounds_come_first",
        (Cut("healthboard/fleet/gaps.py", "    if not _gaps():\n", "    if True:\n"),),
    ),
    "spans after a jump": Guard(
        "cases/test_watching_anew.py::test_a_span_counts_from_the_last_jump",
        (Cut("healthboard/fleet/gaps.py", "return max(moment, begun) if moment <= now else min(begun, now)",
             "return moment"),),
    ),
    "backlog": Guard(
        "cases/test_watching_anew.py::test_what_is_old_when_it_arrives_is_backlog_where_nobody_stood_still_either",
        (Cut("healthboard/fleet/bursts.py", "backlog=channel not in DESCRIBED and received - last > BACKLOG_AFTER",
             "backlog=False"),),
    ),
    "backlog of a gap": Guard(
        "cases/test_watching_anew.py::test_what_arrived_while_nobody_read_is_backlog_once_it_is_old",
        (Cut("healthboard/fleet/gaps.py", "    aside = bursts.set_aside(since, now) if", "    aside = 0 if"),),
    ),
    "blind sources": Guard(
        "repairs/test_others.py::test_blind_sources_hold_what_is_scheduled",
        (Cut(ENGINE, "return Wait(15, reasons[0]) if reasons else None", "return None"),
         Cut(PREPARE, "def recheck(run: Run) -> Result:\n    if reasons := why_blind(run.instance, clock.now()):",
             "def recheck(run: Run) -> Result:\n    if reasons := []:")),
    ),
    "decision while blind": Guard(
        "cases/test_blind.py::test_it_waits_visibly_and_is_decided_once_the_source_sees",
        (Cut("healthboard/cases/readings.py", "    if reasons := why_blind(instance, now):", "    if reasons := []:"),),
    ),
    "database put back": Guard(
        "audit/test_restored.py::test_no_intent_and_no_start_even_before_anybody_looked",
        (Cut(LIFECYCLE, "        raise Held(behind)", "        pass"), Cut(LIFECYCLE, "        return behind\n", "        pass\n")),
    ),
    "audit triggers": Guard(
        "audit/test_chain.py::test_rows_and_seals_cannot_be_changed_or_deleted_by_sql",
        sql="DROP FUNCTION audit_stays() CASCADE",
    ),
    "intent row": Guard(
        "repairs/test_guards.py::test_every_changing_call_was_intended_and_committed_before",
        (Cut(RUN, "    def change(\n", "    @transaction.atomic\n    def change(\n"),),
    ),
    "token": Guard(
        "repairs/test_guards.py::test_a_launch_that_is_repeated_is_the_same_launch[drop_after]",
        (Cut(LAUNCH, '    request = run.facts["launch_request"]\n',
             '    request = {**run.facts["launch_request"], "ClientToken": f"{random.random()}"}\n'),),
    ),
}  # fmt: skip
