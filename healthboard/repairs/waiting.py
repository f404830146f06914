"""What an instance, a case or a repair waits for, and why nothing is done now: the one answer of pages and API.

Reads only. A case is passed in as it is, since cases stand above repairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from healthboard import clock, words
from healthboard.fleet.models import Instance
from healthboard.fleet.seeing import why_blind
from healthboard.policies import windows
from healthboard.repairs import brakes, budget
from healthboard.repairs.models import Pause, Repair
from healthboard.repairs.recipes import STEPS, TOUCHABLE
from healthboard.repairs.states import OPEN, State

#: kind -> (what has to happen, where that is done)
NEXT = {
    "switch": ("An admin releases it.", "/system/#switch"),
    "acting": ("An admin switches acting on, once what is observed looks right.", "/system/#switch"),
    "pause": ("It ends by itself, or an admin ends it.", "/system/#pauses"),
    "tag": ("Whoever set the tag removes it.", ""),
    "breaker": (
        "An admin asks for its release once the cause is clear, and an approver confirms.",
        "/system/#breakers",
    ),
    "budget": (
        "It goes on when one of them is back; two people may let one repair start over the budget.",
        "/system/#budgets",
    ),
    "turn": ("It begins by itself once the other repair is over.", ""),
    "blind": ("It goes on by itself once the source tells again.", "/system/#sources"),
    "owner": ("Nothing is to be done here.", ""),
    "policy": ("An admin may change the policy.", ""),
    "window": ("It begins by itself then; an admin may change the policy.", ""),
    "idle": ("It goes on by itself once that has ended; a person may stop it.", ""),
    "undo": ("Until then it can be undone.", ""),
    "breadth": ("It goes on by itself.", ""),
    "room": ("Make room, then approve again.", ""),
    "person": ("Somebody who may decide answers.", ""),
    "snooze": ("It comes back by itself.", ""),
    "aws": ("It is tried again by itself.", ""),
    "step": ("It goes on by itself.", ""),
    "evidence": ("Evidence decides.", ""),
    "gone": ("", ""),
}
#: how a sentence about sight begins (`fleet.seeing`)
SOURCE = "The source"
#: how a sentence of the brakes, the budget or the engine begins -> its kind
_BEGINS = (
    ("The stop switch", "switch"), ("Acting is", "acting"), ("Paused by a healthboard:pause", "tag"),
    ("Paused by", "pause"), ("Breaker", "breaker"), (budget.FULL, "budget"), ("One zone", "budget"),
    (budget.OUT_ALREADY, "turn"), ("Keep serving", "budget"), (SOURCE, "blind"), ("AWS does not answer", "aws"),
    ("Not idle", "idle"), ("In a blackout", "window"), ("Outside the maintenance", "window"),
    ("waiting for a look at all instances", "breadth"),
)  # fmt: skip
#: the step under way -> what a repair waits for in it
_STEPS = {"room": "room"}


@dataclass(frozen=True, slots=True)
class Waiting:
    kind: str  # of `NEXT`
    text: str  # a sentence
    until: datetime | None = None  # when it ends by itself, where that is known

    @property
    def then(self) -> str:
        if self.kind == "budget" and not self.text.startswith(budget.FULL):
            # two people pass the number that may be out, and no other limit of the budget (`second.waits_for_budget`)
            return "It begins by itself once that allows it; an admin may change the policy."
        return NEXT[self.kind][0]

    @property
    def link(self) -> str:
        return NEXT[self.kind][1]


def waiting_for(instance: Instance | None, case: Any = None, repair: Repair | None = None) -> list[Waiting]:
    """Every reason that stands against the next step, a person first, then the most general; empty where nothing does.

    `case`: the open case, or the one that the repair belongs to; `repair`: the open one. What is over waits for nothing.
    """
    case = case if case is not None and case.closed_at is None else None
    repair = repair if repair is not None and repair.state in OPEN else None
    if instance is None:
        return _of_case(case) if case else []
    if instance.gone_at is not None and repair is None:
        return [Waiting("gone", "The instance is gone.")]
    found = _of_instance(instance)
    found += [_told(text) for text in brakes.against(instance, _workloads(instance, case), automatic=_alone(repair))]
    found += [Waiting("blind", _sentence(text)) for text in why_blind(instance, clock.now())]
    if repair is not None:
        found += _of_repair(repair)
    elif case is not None:
        found += _of_case(case)
    else:
        found += _of_reading(instance)
    # whom it waits for comes first: nothing else goes on before the answer
    return sorted({row.text: row for row in found}.values(), key=lambda row: row.kind != "person")


def waits_for_sight(case: Any) -> bool:
    """Its policy would decide it by itself, and does not while a source is blind; nobody is asked meanwhile."""
    asked = case.expires_at is not None or case.expired_at is not None
    return case.state == "WAITING" and case.mode == "auto" and not asked and case.why_waiting.startswith(SOURCE)


def version() -> list[Any]:
    """What changes when a pause does; the rest of what stands against is in each page's frame and rows."""
    return list(Pause.objects.filter(ended_at=None, until__gt=clock.now()).values_list("pk", "until"))


def _alone(repair: Repair | None) -> bool:
    """A person's own repair passes a correlated breaker."""
    return repair is None or repair.automatic


def _workloads(instance: Instance, case: Any) -> list[str]:
    names = set(instance.tasks.exclude(workload=None).values_list("workload__name", flat=True))
    return sorted(names | ({w.name for w in case.workloads.all()} if case is not None else set()))


def _of_instance(instance: Instance) -> list[Waiting]:
    found = []
    if instance.is_self:
        found.append(Waiting("owner", "healthboard itself runs on it: it is never acted on."))
    if instance.owner not in TOUCHABLE:
        owner = words.OWNERS.get(instance.owner, instance.owner)
        left_alone = instance.owner == "ECS" and instance.pool is not None and instance.pool.auto_repair is False
        what = (
            "nothing is done by itself; a person may drain or return it"
            if left_alone
            else "it is observed, never acted on"
        )
        found.append(Waiting("owner", f"Its owner is {owner}: {what}."))
    return found


def _of_reading(instance: Instance) -> list[Waiting]:
    if instance.verdict == "UNKNOWN":
        return [Waiting("blind", "We cannot see enough of it to conclude anything.")]
    if instance.verdict in ("HARDWARE", "AMBIGUOUS"):
        return [Waiting("evidence", "No case is open: it was answered before, or the next reading opens one.")]
    word = words.VERDICTS[instance.verdict].word.lower() if instance.verdict in words.VERDICTS else instance.verdict
    return [Waiting("evidence", f"Its verdict is {word}: no case is open.")]


def _of_case(case: Any) -> list[Waiting]:
    name, found = f"Case {case.pk}", []
    match case.state:
        case "WAITING" if case.instance_id is None and case.breaker_id:
            text = f"The breaker for {case.breaker.where} is open until a person releases it."
            found.append(Waiting("breaker", text, case.expires_at))
        case "WAITING" if waits_for_sight(case):
            text = f"{name} is not decided while a source cannot see; its policy decides it by itself once that sees again."
            found.append(Waiting("blind", text))
        case "WAITING":
            blockers = case.plan.get("blockers") or []
            for text in blockers:
                found.append(_told(text, "room"))
            said = case.why_waiting.rstrip(".")
            why = f": {said}" if said and said not in [text.rstrip(".") for text in blockers] else ""
            once = "; its time ran out and nothing was done" if case.expired_at and not case.expires_at else ""
            found.append(Waiting("person", f"{name} waits for a person{once}{why}.", case.expires_at))
        case "OBSERVED":
            found.append(Waiting("policy", _sentence(case.mode_why or "Its policy observes only")))
        case "HELD":
            where = f" for {case.breaker.where}" if case.breaker_id else ""
            found.append(Waiting("breaker", f"{name} is held by a breaker{where} until a person releases it."))
        case "SNOOZED":
            until = f"{case.snoozed_until:%Y-%m-%d %H:%M} UTC" if case.snoozed_until else "later"
            found.append(Waiting("snooze", f"{name} is snoozed until {until}.", case.snoozed_until))
        case "DECIDED":
            found.append(Waiting("step", f"{name} is decided; the end of its repair is being carried back."))
    if case.state == "WAITING" and (shut := windows.closed(case.plan.get("when") or {}, clock.now())):
        found.append(Waiting("window", f"What is approved now waits. {_sentence(shut.why)}", shut.opens))
    if case.clear_since is not None:
        found.append(
            Waiting(
                "evidence", f"The evidence has been good since {case.clear_since:%H:%M:%S} UTC; it closes by itself."
            )
        )
    return found


def _of_repair(repair: Repair) -> list[Waiting]:
    if repair.state == State.ASKING:
        return [Waiting("person", _sentence(repair.why_waiting or "It asks a person"))]
    found = []
    if repair.state == State.SCHEDULED and repair.not_before > clock.now():
        text = f"The repair starts no sooner than {repair.not_before:%H:%M:%S} UTC."
        found.append(Waiting("undo", text, repair.not_before))
    if repair.why_waiting:
        found.append(_told(repair.why_waiting, _STEPS.get(repair.step, "step"), step=repair.step, until=_opens(repair)))
    return found


def _opens(repair: Repair) -> datetime | None:
    told = repair.facts.get("opens_at")
    return datetime.fromisoformat(told) if told else None


def _told(text: str, otherwise: str = "step", *, step: str = "", until: datetime | None = None) -> Waiting:
    kind = next((kind for begin, kind in _BEGINS if text.startswith(begin)), otherwise)
    if "were started in" in text and "are allowed" in text:
        kind = "budget"
    lead = f"{STEPS[step].title}: " if kind == otherwise and step in STEPS else ""
    return Waiting(kind, _sentence(lead + text), until if kind == "window" else None)


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    name = not text.partition(" ")[0].isalpha()  # a name, as of a group, stays as it is written
    return f"{text if name else text[:1].upper() + text[1:]}."
