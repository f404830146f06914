"""Who answers a case against whom: each race is a list of what is done at the same moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import connection, transaction

from healthboard import clock
from healthboard.cases import answers, lifecycle
from healthboard.cases.models import Case
from healthboard.people.actors import WORKER, Actor
from healthboard.people.models import Grant
from healthboard.refusals import Closed, Refusal
from tests.repairs.driver import person
from workers.decide import instance, time

Answer = Callable[[], Any]
#: status of a child that was refused instead of killed
REFUSED = 3
CHILD_S = 15
_sessions: list[Any] = []


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


def against_self_heal(case: Case, people: list[Actor]) -> list[Answer]:
    return [_answer(case, people[0], "approve"), lambda: _clears(case), _answer(case, people[1], "approve")]


def _clears(case: Case) -> None:
    """As a reading that is good again does."""
    with transaction.atomic():
        row = Case.objects.select_for_update().get(pk=case.pk)
        if row.state == "WAITING":
            lifecycle.close(row, "CLEARED", "it cleared", WORKER)


def against_a_stale_hash(case: Case, people: list[Actor]) -> list[Answer]:
    stale = _answer(case, people[1], "approve", evidence_hash="0" * 64)
    return [_answer(case, people[0], "approve"), lambda: _never(stale), lambda: _never(stale)]


def _never(answer: Answer) -> None:
    """Raises what it is refused with; that it is taken is a breach."""
    taken = answer()
    raise AssertionError(f"decision {taken.pk} was taken, which must never be")


def killed_after_its_commit(case: Case, people: list[Actor]) -> list[Answer]:
    return [
        lambda: _killed(_answer(case, people[0], "approve"), committed=True),
        _answer(case, people[1], "approve"),
        _answer(case, people[2], "override", action="REBOOT", reason="a reboot will do"),
    ]


def killed_before_its_commit(case: Case, people: list[Actor]) -> list[Answer]:
    return [
        lambda: _killed(_answer(case, people[0], "approve"), committed=False),
        _answer(case, people[1], "approve"),
    ]


def _killed(answer: Answer, *, committed: bool) -> None:
    """A process of its own, that is gone right behind the answer: before its commit nothing of it stays."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(CHILD_S)
            _sessions.append(connection.connection)  # the parent's: not closed here
            connection.connection = None
            if committed:
                answer()
            else:
                with transaction.atomic():
                    answer()
                    os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        except Refusal:
            os._exit(REFUSED)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if committed and os.WIFEXITED(status) and os.WEXITSTATUS(status) == REFUSED:
        raise Closed("refused in the process that was to be killed")
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != REFUSED:
        raise RuntimeError("the process that was to be killed failed by itself")


RACES: dict[str, Callable[[Case, list[Actor]], list[Answer]]] = {
    "double click": double_click,
    "two people": two_people,
    "against a dismissal": against_dismissal,
    "against a snooze": against_snooze,
    "against expiry": against_expiry,
    "against a reading": against_reading,
    "against undo": against_undo,
    "against a new plan": against_new_plan,
    "against a stale hash": against_a_stale_hash,
    "against its end by itself": against_self_heal,
    "against revoked rights": against_revoking,
    "killed after its commit": killed_after_its_commit,
    "killed before its commit": killed_before_its_commit,
}


# --- where the policy wants two people


def two_approvers(case: Case, people: list[Actor]) -> list[Answer]:
    return [_answer(case, who, "approve") for who in people]


def oneself(case: Case, people: list[Actor]) -> list[Answer]:
    """One person alone, however often, is never two; nor by the other way of saying the same."""
    once = _answer(case, people[0], "approve")
    again = _answer(case, people[0], "override", action=case.action, reason="I said so")
    return [once, once, again]


def the_second_against_dismissal(case: Case, people: list[Actor]) -> list[Answer]:
    _answer(case, people[0], "approve")()
    return [_answer(case, people[1], "approve"), _answer(case, people[2], "dismiss", reason="known")]


def the_second_against_expiry(case: Case, people: list[Actor]) -> list[Answer]:
    _answer(case, people[0], "approve")()
    lifecycle.write(case, expires_at=clock.now() - timedelta(seconds=1))
    return [_answer(case, people[1], "approve"), time.pass_over]


def another_action(case: Case, people: list[Actor]) -> list[Answer]:
    """Two who want different things do not agree."""
    return [
        _answer(case, people[0], "approve"),
        _answer(case, people[1], "override", action="REBOOT" if case.action != "REBOOT" else "REPLACE", reason="no"),
    ]


def the_second_is_killed(case: Case, people: list[Actor]) -> list[Answer]:
    _answer(case, people[0], "approve")()
    return [lambda: _killed(_answer(case, people[1], "approve"), committed=True), _answer(case, people[2], "approve")]


OF_TWO: dict[str, Callable[[Case, list[Actor]], list[Answer]]] = {
    "two approvers": two_approvers,
    "oneself": oneself,
    "the second against a dismissal": the_second_against_dismissal,
    "the second against expiry": the_second_against_expiry,
    "another action": another_action,
    "the second is killed": the_second_is_killed,
    "against its end by itself": against_self_heal,
    "against a stale hash": against_a_stale_hash,
}
