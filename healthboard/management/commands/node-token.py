"""``manage.py node-token INSTANCE``: print a new credential for the reporter of one node, and nothing else.

``--forget`` revokes all of them instead."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard.fleet.models import Instance
from healthboard.people import enrolment, tokens
from healthboard.people.console import not_ready, operating


class Command(BaseCommand):
    help = "Print a new credential of one instance's reporter. It is shown once; only its hash is kept."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("instance", help="EC2 instance id")
        parser.add_argument("--account", help="where the same id is known in several accounts")
        parser.add_argument("--region", help="where the same id is known in several regions")

        parser.add_argument(
            "--forget", action="store_true", help="instead: revoke every token of it, so that it can enrol anew"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            instance = _find(**{k: options[k] for k in ("instance", "account", "region")})
            if options["forget"]:
                number = enrolment.forget(instance, actor=operating())
                self.stdout.write(f"{number} revoked: {instance} enrols anew with its next report")
                return
            token = tokens.issue_node(instance, actor=operating())
        except DatabaseError as error:
            raise not_ready(error) from None
        self.stdout.write(token)


def _find(instance: str, account: str | None, region: str | None) -> Instance:
    rows = Instance.objects.select_related("account").filter(instance_id=instance, gone_at=None)
    if account:
        rows = rows.filter(account__account_id=account)
    if region:
        rows = rows.filter(region=region)
    found = list(rows[:10])
    if not found:
        raise CommandError(f"there is no instance {instance}, or it was not collected yet", returncode=2)
    if len(found) > 1:
        places = ", ".join(f"{i.account.account_id} {i.region}" for i in found)
        raise CommandError(
            f"{instance} is known in several places ({places}): add --account and --region", returncode=2
        )
    return found[0]
