"""T13: people answer the same case at the same moment, or against time, evidence, the engine or their own rights."""

from __future__ import annotations

import threading
from typing import Any

from django.db import connection

from healthboard.audit.models import AuditRow
from healthboard.cases import invariants
from healthboard.cases.models import Case, Decision
from healthboard.refusals import Refusal
from healthboard.repairs.models import Repair
from healthboard.repairs.states import OPEN
from tests.repairs.driver import person
from tests.safety import checks
from tests.safety.conductor import Conductor, seeded
from tests.safety.flows import Flow
from tests.safety.rows.rivals import OF_TWO, RACES, Answer

LIMIT_S = 30


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    """One race for each waiting case of the fleet."""
    rng = seeded("T13", spec["seed"])
    needed = flow.extra.get("approvals", 1)
    races = RACES if needed == 1 else OF_TWO
    people = [person("operator" if needed == 1 else "approver", f"somebody-{n}") for n in range(3)]
    broken: list[str] = []
    cases = list(Case.objects.filter(state="WAITING").exclude(instance=None).order_by("pk"))
    for case in cases:
        name = rng.choice(list(races))
        found = [*_race(case, races[name](case, people)), *_agreed(case, needed)]
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
        if not Decision.objects.filter(pk=decision.pk).exists():
            broken.append(f"decision {decision.pk} was accepted and is gone")
    for row in Decision.objects.filter(case=case, kind__in=["approve", "override"], outcome="DONE", repair=None):
        if not Decision.objects.filter(case=case, action=row.action, repair__isnull=False, pk__gt=row.pk).exists():
            broken.append(f"decision {row.pk} was accepted and is not carried out")
    refused = sum(isinstance(e, Refusal) for e in said)
    kept = AuditRow.objects.filter(verb="case.refused").count() - refused_before
    if kept != refused:
        broken.append(f"{refused} refusals, {kept} on record")
    state = Case.objects.get(pk=case.pk).state
    if carried.exists() and state != "DECIDED":
        broken.append(f"a repair is open and the case is {state}")
    return broken


def _agreed(case: Case, needed: int) -> list[str]:
    """Behind each repair that is open stand as many different people as the policy wants."""
    broken = []
    for decision in Decision.objects.filter(case=case, repair__state__in=OPEN):
        same = Decision.objects.filter(
            case=case, action=decision.action, kind__in=["approve", "override"], outcome="DONE",
            plan_version=decision.plan_version, evidence_hash=decision.evidence_hash,
        )  # fmt: skip
        people = set(same.values_list("user_id", flat=True))
        if len(people) < needed:
            broken.append(f"{len(people)} of {needed} people agreed, and it is carried out")
    return broken


def _untouched(conductor: Conductor) -> list[str]:
    made = checks.log(conductor)
    return [f"changed AWS, though no worker was there: {made}"] if made else []
