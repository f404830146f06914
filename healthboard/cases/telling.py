"""What is told outside of a case: a card with what a person needs to know before they open its page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from healthboard import words
from healthboard.cases.models import Case
from healthboard.notices import outbox


def thread(case_id: int) -> str:
    return f"case:{case_id}"


def tell(
    case: Case, kind: str, *, key: str, subject: str, body: str = "", to: Iterable[str] | None = None,
    after: timedelta = timedelta(0), severity: str = "", facts: dict[str, str] | None = None,
) -> bool:  # fmt: skip
    """One message about a case. `to`: receivers as its policy names them; None: who was told of it last. `after`: sent
    no sooner, and not at all if somebody has taken it up by then. `facts` are put over the card's."""
    return outbox.announce(
        key=key, kind=kind, subject=subject, body=body, link=f"/cases/{case.pk}/", thread=thread(case.pk),
        to=outbox.receivers_of(thread(case.pk)) if to is None else to, facts={**card(case), **(facts or {})}, after=after, severity=severity,
        account=case.account.account_id, region=case.region, pool=case.pool.name if case.pool else "",
        workloads=case.workloads.values_list("name", flat=True),
    )  # fmt: skip


def follow(case: Case, kind: str, *, key: str, subject: str, body: str = "") -> bool:
    """How it went on, if anybody was told that it began."""
    return outbox.follow(
        thread(case.pk),
        key=key,
        kind=kind,
        subject=subject,
        body=body,
        facts={"State": words.CASE_STATES[case.state].word},
    )


def card(case: Case) -> dict[str, Any]:
    tasks = case.plan.get("tasks_total")
    return {
        "Machine": case.instance.instance_id if case.instance else f"{len(case.victims) or 'several'} instances",
        "What": case.title,
        "Proposed": words.action(case.action),
        "Plan": case.plan.get("sentence", ""),
        "Tasks on it": str(tasks) if tasks else "",
        "State": words.CASE_STATES[case.state].word,
        "Expires": f"{case.expires_at:%Y-%m-%d %H:%M} UTC" if case.expires_at else "",
    }
