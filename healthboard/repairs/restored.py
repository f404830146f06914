"""A database that is older than what is known outside it: it was put back while AWS moved on. Nothing is changed in AWS
until a person has looked and releases the stop switch."""

from __future__ import annotations

from django.db import transaction

from healthboard.audit import heads
from healthboard.audit.models import AuditRow
from healthboard.audit.record import record
from healthboard.notices.outbox import announce
from healthboard.people.actors import system
from healthboard.repairs import brakes

VERB = "audit.restored"
RESTORED = system("restored")


def look() -> str:
    """Why nothing may be done, in words; empty where the database is as new as the heads. The first look that sees it
    throws the stop switch; the first after a person's release takes the database as it is."""
    why = heads.behind()
    if not why:
        return ""
    head = heads.newest()[0]
    subject = f"head:{head.position}:{head.hash[:64]}"
    with transaction.atomic():
        stopped = brakes.switch(lock=True).stopped
        if not AuditRow.objects.filter(verb=VERB, subject=subject).exists():
            brakes.stop_by_itself(RESTORED, f"RESTORED: {why}. Compare with AWS, then release.")
            record(VERB, subject, why, actor=RESTORED)
            announce(key=f"restored-{head.hash}", kind="restored", thread=f"restored:{head.hash}", link="/system/",
                     subject="The database was put back: everything is stopped", body=why)  # fmt: skip
            return why
        if stopped:
            return why
    heads.begin_again("a person released the stop switch")
    return ""
