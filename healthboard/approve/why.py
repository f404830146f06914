"""Why nothing happens with an instance right now, as sentences: what would have to change first."""

from __future__ import annotations

from healthboard import clock, words
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.fleet.models import Instance
from healthboard.fleet.seeing import why_blind
from healthboard.repairs import brakes
from healthboard.repairs.models import Repair
from healthboard.repairs.recipes import TOUCHABLE


def why_nothing(instance: Instance, case: Case | None, repair: Repair | None) -> list[str]:
    """Empty where a repair is under way; else every reason that stands against one, the most general first."""
    if repair is not None and repair.state in ("RUNNING", "UNDOING"):
        return []
    reasons = []
    if instance.gone_at is not None:
        return ["The instance is gone."]
    if instance.is_self:
        reasons.append("healthboard itself runs on it: it is never acted on.")
    if instance.owner not in TOUCHABLE:
        reasons.append(
            f"Its owner is {words.OWNERS.get(instance.owner, instance.owner)}: it is observed, never acted on."
        )
    workloads = [w.name for w in case.workloads.all()] if case else []
    reasons += [f"{reason.rstrip('.')}." for reason in brakes.against(instance, workloads, automatic=True)]
    reasons += [f"{reason}." for reason in why_blind(instance, clock.now())]
    if repair is not None:
        reasons.append(repair.why_waiting or f"The repair starts no sooner than {repair.not_before:%H:%M:%S} UTC.")
    elif case is None:
        if instance.verdict in ("HEALTHY", "WATCH", "WORKLOAD"):
            word = words.VERDICTS[instance.verdict].word.lower()
            reasons.append(f"Its verdict is {word}: no case is open.")
        elif instance.verdict == "UNKNOWN":
            reasons.append("We cannot see enough of it to conclude anything.")
    else:
        reasons += _of_case(case)
    return reasons


def _of_case(case: Case) -> list[str]:
    match case.state:
        case State.WAITING:
            return [case.why_waiting or f"Case {case.pk} waits for a person."]
        case State.OBSERVED:
            return [case.mode_why or "Its policy observes only."]
        case State.HELD:
            return [f"Case {case.pk} is held by a breaker until a person releases it."]
        case State.SNOOZED:
            return [f"Case {case.pk} is snoozed until {case.snoozed_until:%Y-%m-%d %H:%M} UTC."]
    return []
