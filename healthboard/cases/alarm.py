"""A broken invariant is an alarm on every page until it holds again, or a person says that they have seen it."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from healthboard import clock
from healthboard.audit.record import digest, record
from healthboard.fleet.models import Pulse
from healthboard.notices.outbox import announce, follow
from healthboard.people.access import require
from healthboard.people.actors import Actor
from healthboard.refusals import Closed, Invalid

NAME = "invariants"
MOST = 50
#: how a breach begins -> what a person does next
NEXT = {
    "ORPHAN": "Look at it in EC2: end it there, or give it to a group. The alarm ends by itself once that is seen.",
    "AUDIT": "Find out who had the database or the file; manage.py verify_audit walks all of the record.",
}
OTHERWISE = "Throw the stop switch if in doubt, then read the record of what it names."


@transaction.atomic
def keep(broken: list[str]) -> None:
    """The result of a check. A breach that was not there at the last one is told to operators, once."""
    row, before = _row(), _known()
    now = clock.now()
    known = {}
    for sentence in broken[:MOST]:
        known[sentence] = before.get(sentence) or {"since": now.isoformat(), "seen_by": ""}
        if sentence not in before:
            announce(
                key=f"invariant-{digest([sentence, now.isoformat()])[:32]}", kind="invariant", thread=_thread(sentence),
                subject=sentence, body=sentence, link="/system/#invariants",
            )  # fmt: skip
    for sentence in set(before) - set(known) if len(broken) <= MOST else ():
        follow(
            _thread(sentence), kind="invariant_holds", key=f"{_thread(sentence)}-{now.isoformat()}", subject=sentence
        )
    row.at, row.ok, row.detail = now, not broken, {"broken": broken[:MOST], "count": len(broken), "known": known}
    row.save()


def unseen() -> list[str]:
    """Breaches that stand and that nobody has acknowledged."""
    return [sentence for sentence, about in _known().items() if not about["seen_by"]]


def standing() -> list[dict[str, str]]:
    """Each breach that stands: ``sentence``, ``since`` (ISO), ``seen_by`` (empty: nobody), ``reason``, ``then``: what a
    person does next."""
    return [
        {"sentence": sentence, "then": NEXT.get(sentence.partition(":")[0], OTHERWISE), **about}
        for sentence, about in _known().items()
    ]


@transaction.atomic
def acknowledge(actor: Actor, reason: str) -> None:
    """A person has seen what stands now; it is no alarm any more, but stays on the system page until it holds."""
    require(actor, "decide")
    if not reason.strip():
        raise Invalid("Say what is being done about it.")
    row, known = _row(), _known()
    seen = [sentence for sentence, about in known.items() if not about["seen_by"]]
    if not seen:
        raise Closed("Nothing stands that was not acknowledged.")
    for sentence in seen:
        known[sentence] |= {"seen_by": actor.name[:150], "reason": reason[:255]}
    row.detail = {**row.detail, "known": known}
    row.save(update_fields=["detail"])
    for sentence in seen:
        follow(
            _thread(sentence), kind="invariant_seen", key=f"{_thread(sentence)}-seen-{clock.now().isoformat()}",
            subject=f"{actor.name} has seen: {sentence}", body=reason,
        )  # fmt: skip
    record("invariants.acknowledged", NAME, f"acknowledged: {reason}", actor=actor, payload={"broken": seen})


def _thread(sentence: str) -> str:
    return f"invariant:{digest(sentence)[:32]}"


def _row() -> Pulse:
    """Locked: a check and an acknowledgement take turns."""
    Pulse.objects.get_or_create(name=NAME, defaults={"at": clock.now()})
    return Pulse.objects.select_for_update().get(name=NAME)


def _known() -> dict[str, dict[str, str]]:
    detail: Any = Pulse.objects.filter(name=NAME).values_list("detail", flat=True).first()
    known = detail.get("known") if isinstance(detail, dict) else None
    if not isinstance(known, dict):
        return {}
    return {
        str(sentence): {"since": "", "seen_by": "", "reason": "", **about}
        for sentence, about in known.items()
        if isinstance(about, dict)
    }
