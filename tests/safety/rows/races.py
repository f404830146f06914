"""T13: people answer the same case at the same moment, or against time, evidence, the engine or their own rights."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import connection

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases import answers, invariants, lifecycle
from healthboard.cases.models import Case, Decision
from healthboard.people.actors import Actor
from healthboard.people.models import Grant
from healthboard.refusals import Refusal
from healthboard.repairs.models import Repair
from healthboard.repairs.states import OPEN
from tests.repairs.driver import person
from tests.safety import checks
from tests.safety.conductor import Conductor, seeded
from tests.safety.flows import Flow
from workers.decide import instance, time

Answer = Callable[[], Any]
LIMIT_S = 20


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    """One race for each waiting case of the fleet."""
    rng = seeded("T13", spec["seed"])
    people = [person("operator", f"operator-{n}") for n in range(3)]
    broken: list[str] = []
    cases = list(Case.objects.filter(state="WAITING").exclude(instance=None).order_by("pk"))
    for case in cases:
        name = rng.choice(list(RACES))
        found = _race(case, RACES[name](case, people))
        broken += [f"{name}: {sentence}" for sentence in found]
    broken += invariants.check() + _untouched(conductor)
    return {"broken": broken, "reached": len(cases), "recovery": 0, "size": len(cases)}


def _race(case: Case, runners: list[Answer]) -> list[str]:
    """All at once, each over a connection of its own; every answer is carried out once, or refused and kept."""
    before = AuditRow.objects.filter(verb="case.refused").count()
    start = threading.Barrier(len(runners))
    said: list[Any] = []

    def one(answer: Answer) -> None:
        try:
            connection.ensure_connection()
            start.wait(LIMIT_S)
            said.append(answer())
        except Exception as error:
            said.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(answer,)) for answer in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    broken = [f"{type(e).__name__}: {e}" for e in said if isinstance(e, Exception) and not isinstance(e, Refusal)]
    if len(said) != len(runners):
        broken.append("somebody was never answered")
    return broken + _once(case, said, before)


def _once(case: Case, said: list[Any], refused_before: int) -> list[str]:
    broken = []
    taken = [d for d in said if isinstance(d, Decision)]
    carried = Decision.objects.filter(case=case, repair__isnull=False, repair__state__in=OPEN)
    if carried.count() > 1 or Repair.objects.filter(instance=case.instance, state__in=OPEN).count() > 1:
        broken.append(f"{carried.count()} decisions are being carried out")
    for decision in taken:
        row = Decision.objects.filter(pk=decision.pk).first()
        if row is None or (row.kind in ("approve", "override") and row.outcome == "DONE" and row.repair_id is None):
            broken.append(f"decision {decision.pk} was accepted and is not carried out")
    refused = sum(isinstance(e, Refusal) for e in said)
    kept = AuditRow.objects.filter(verb="case.refused").count() - refused_before
    if kept != refused:
        broken.append(f"{refused} refusals, {kept} on record")
    state = Case.objects.get(pk=case.pk).state
    if carried.exists() and state != "DECIDED":
        broken.append(f"a repair is open and the case is {state}")
    return broken


def _untouched(conductor: Conductor) -> list[str]:
    made = checks.log(conductor)
    return [f"changed AWS, though no worker was there: {made}"] if made else []


# --- who runs against whom


def _answer(case: Case, who: Actor, kind: str, **more: Any) -> Answer:
    values = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash, **more}
    return lambda: answers.decide(case.pk, actor=who, kind=kind, **values)


def double_click(case: Case, people: list[Actor]) -> list[Answer]:
    return [_answer(case, people[0], "approve") for _ in range(3)]


def two_people(case: Case, people: list[Actor]) -> list[Answer]:
    return [
        _answer(case, people[0], "approve"),
        _answer(case, people[1], "override", action="REBOOT", reason="a reboot will do"),
        _answer(case, people[2], "approve"),
    ]


def against_dismissal(case: Case, people: list[Actor]) -> list[Answer]:
    return [_answer(case, people[0], "approve"), _answer(case, people[1], "dismiss", reason="known")]


def against_snooze(case: Case, people: list[Actor]) -> list[Answer]:
    return [_answer(case, people[0], "approve"), _answer(case, people[1], "snooze", snooze_s=600)]


def against_expiry(case: Case, people: list[Actor]) -> list[Answer]:
    lifecycle.write(case, expires_at=clock.now() - timedelta(seconds=1))
    return [_answer(case, people[0], "approve"), time.pass_over, _answer(case, people[1], "approve")]


def against_reading(case: Case, people: list[Actor]) -> list[Answer]:
    return [
        _answer(case, people[0], "approve"),
        lambda: instance.read(case.instance_id),
        lambda: instance.read(case.instance_id),
    ]


def against_undo(case: Case, people: list[Actor]) -> list[Answer]:
    answers.decide(
        case.pk, actor=people[0], kind="approve", plan_version=case.plan_version, evidence_hash=case.evidence_hash
    )
    return [lambda: _undone(case, people[1]), lambda: _undone(case, people[2]), _answer(case, people[0], "approve")]


def _undone(case: Case, who: Actor) -> None:
    """A second undo finds nothing to take back; it is refused, and no refusal of an answer."""
    from healthboard.refusals import Closed

    try:
        answers.undo(case.pk, actor=who)
    except Closed:
        return


def against_new_plan(case: Case, people: list[Actor]) -> list[Answer]:
    return [
        _answer(case, people[0], "approve"),
        lambda: lifecycle.write(case, plan_version=case.plan_version + 1),
        _answer(case, people[1], "approve", plan_version=case.plan_version - 1),
    ]


def against_revoking(case: Case, people: list[Actor]) -> list[Answer]:
    """Rights end while their owner decides; they are given back afterwards by the next use of the name."""
    who = person("operator", f"leaver-{case.pk}")
    return [
        _answer(case, who, "approve"),
        lambda: Grant.objects.filter(user=who.user).delete() and None,
        _answer(case, who, "approve"),
    ]


RACES: dict[str, Callable[[Case, list[Actor]], list[Answer]]] = {
    "double click": double_click,
    "two people": two_people,
    "against a dismissal": against_dismissal,
    "against a snooze": against_snooze,
    "against expiry": against_expiry,
    "against a reading": against_reading,
    "against undo": against_undo,
    "against a new plan": against_new_plan,
    "against revoked rights": against_revoking,
}
