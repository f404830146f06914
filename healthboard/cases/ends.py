"""What time alone, and the end of a repair, do to a case."""

from __future__ import annotations

from django.db import transaction

from healthboard import clock
from healthboard.cases import lifecycle, telling
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import Resolution, State
from healthboard.fleet import record
from healthboard.people.actors import CLOCK, WORKER
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.models import Repair
from healthboard.repairs.states import State as RepairState


@transaction.atomic
def expire(case_id: int) -> bool:
    """Nobody answered in time: nothing is done, operators are told, and the question is put anew."""
    case = Case.objects.select_for_update().get(pk=case_id)
    now = clock.now()
    if case.state != State.WAITING or case.expires_at is None or case.expires_at > now:
        return False
    if case.by_hand:
        lifecycle.close(case, Resolution.WITHDRAWN, "nobody answered in time: nothing was done", CLOCK)
        return True
    history = [*case.plan.get("changed", []), {"version": case.plan_version + 1, "what": ["the answer time ran out"]}]
    lifecycle.write(
        case, expired_at=now, expires_at=None, plan_version=case.plan_version + 1,
        plan={**case.plan, "changed": history[-10:]},
    )  # fmt: skip
    lifecycle.audit(case, "case.expired", "nobody answered in time: nothing was done", CLOCK)
    telling.tell(
        case, "case_expired", key=f"case-expired-{case.pk}-{case.plan_version}",
        subject=f"Nobody answered: {case.title}", body="Nothing was done. The question is put anew.",
    )  # fmt: skip
    return True


@transaction.atomic
def wake_snoozed(case_id: int) -> bool:
    case = Case.objects.select_for_update().get(pk=case_id)
    if case.state != State.SNOOZED or case.snoozed_until is None or case.snoozed_until > clock.now():
        return False
    lifecycle.move(case, State.WAITING, CLOCK, "the snooze ended")
    lifecycle.write(case, snoozed_until=None, expires_at=None)
    if case.instance_id:
        record.look_again(case.instance_id)
    return True


@transaction.atomic
def carry_back(repair: Repair) -> None:
    """The end of a repair, told to its case once."""
    decision = Decision.objects.filter(repair=repair).first()
    # the case before its repair, as an undo locks them
    case = Case.objects.select_for_update().get(pk=decision.case_id) if decision else None
    if not repairs.told(repair.pk) or decision is None or case is None:
        return
    ended_well = repair.state == RepairState.SUCCEEDED
    decision.refresh_from_db()
    if decision.outcome != "UNDONE":
        lifecycle.outcome_of(decision, "DONE" if ended_well else "REFUSED", repair.outcome_why)
    if case.state != State.DECIDED:
        return
    resolution = None if case.by_hand else {
        "REPLACED": Resolution.REPAIRED, "REBOOTED": Resolution.REPAIRED, "RELOCATED": Resolution.REPAIRED,
        "REPLACED_BY_GROUP": Resolution.REPLACED_BY_GROUP, "INSTANCE_GONE": Resolution.INSTANCE_GONE,
    }.get(repair.outcome)  # fmt: skip
    if resolution and ended_well:
        return lifecycle.close(case, resolution, repair.outcome_why, WORKER)
    if case.by_hand and repair.state != RepairState.FAILED:
        return lifecycle.close(
            case, Resolution.DONE if ended_well else Resolution.WITHDRAWN, repair.outcome_why, WORKER
        )
    helped_not = repair.state == RepairState.FAILED
    lifecycle.write(case, tries=case.tries + helped_not, expires_at=None, plan_version=case.plan_version + 1)
    lifecycle.move(case, State.WAITING, WORKER, f"the repair ended: {repair.outcome.lower()}: {repair.outcome_why}")
    lifecycle.write(case, why_waiting=repair.outcome_why)
    if repair.outcome == repairs.NOT_APPROVED:
        telling.tell(
            case, "case_waiting", key=f"case-anew-{repair.pk}", to=repair.settings.get("notify"),
            subject=f"{case.title}: is asked again", body=f"Nothing was done. {repair.outcome_why}",
        )  # fmt: skip
    if helped_not:
        telling.tell(
            case, "repair_failed", key=f"repair-failed-{repair.pk}", to=repair.settings.get("notify"),
            subject=f"Repair of {repair.instance} failed: {repair.outcome}", body=repair.outcome_why,
        )  # fmt: skip
    record.look_again(repair.instance_id)
