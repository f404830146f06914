"""Whose word an answer takes that goes further than what was decided: as many people, and of the group, as the policy
wants for a decision. What each of them chose is kept with the question until there are enough; see `lifecycle.answer`."""

from __future__ import annotations

from typing import Any

from healthboard import words
from healthboard.people import access
from healthboard.repairs import opening
from healthboard.repairs.models import Repair
from healthboard.repairs.states import State

#: answers that choose a heavier action than the one that was decided
HEAVIER = ("replace",)


def needed(row: Repair, choice: str) -> tuple[int, str]:
    """How many people must choose it, and of which group (empty: any). The policy as it is now, and never fewer people
    than when the repair was decided."""
    if choice not in HEAVIER:
        return 1, ""
    now = opening.current(row)
    people = max(int(values.get("approvals") or 1) for values in (row.settings, now))
    return people, now.get("approver_group") or row.settings.get("approver_group") or ""


def agreed(row: Repair, choice: str) -> list[dict[str, Any]]:
    """The words of those who chose it already and could still give them."""
    mine = [word for word in row.facts.get("agreed") or () if word.get("choice") == choice]
    return [word for word in mine if access.withdrawn([word], **place(row)) is None]


def why_not(row: Repair, user: Any, choice: str) -> str | None:
    """Why this person, who may decide there, is not one of those whom it takes; None where they are."""
    people, group = needed(row, choice)
    if not access.in_group(user, group):
        return f"The policy wants an approver of the group {group}."
    if people < 2:
        return None
    if hasattr(user, "service"):
        return "A service account is not one of several people."
    before = agreed(row, choice)
    if user.pk in {word["user"] for word in before}:
        return "You have chosen this already: another person must, too."
    if before and (why := access.why_not(user, "second", **place(row))):
        return why
    if before and user.pk in editors(row):
        return "You were the last to edit the policy in force: another person must choose this."
    return None


def choices(row: Repair, user: Any) -> list[dict[str, Any]]:
    """What a repair that asks offers, each with why this person may not choose it, or None."""
    if row.state != State.ASKING:
        return []
    offered = row.facts.get("choices") or []
    why = access.why_not(user, "decide", **place(row))  # what takes a second person is asked for by whoever may decide
    return [
        {
            "needs": "decide",
            **choice,
            "why_not": why or why_not(row, user, choice["key"]),
            "people": said(row, choice["key"]),
        }
        for choice in offered
    ]


def said(row: Repair, choice: str) -> str:
    """What it takes and who has chosen it, for a page; empty where one person of any group is enough."""
    people, group = needed(row, choice)
    if people < 2 and not group:
        return ""
    chosen = words.listing([word["name"] for word in agreed(row, choice)])
    takes = f"takes {words.count(people, 'person', 'people')}{f' of the group {group}' if group else ''}"
    return f"{takes}; chosen by {chosen} so far" if chosen else takes


def editors(repair: Repair) -> set[int]:
    """Who last edited the policies in force: those that it was decided under, and those that match now."""
    found = opening.in_force(repair).versions
    return {v.saved_by_id for v in (*found, repair.policy_version) if v is not None and v.saved_by_id}


def place(row: Repair) -> dict[str, Any]:
    at = row.instance
    return {"account": at.account, "region": at.region, "pool": row.pool.name if row.pool else ""}
