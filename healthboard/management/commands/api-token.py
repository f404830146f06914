"""``manage.py api-token USER``: print a new bearer token for the API, and nothing else.

Without options it may what its user may. ``--service PURPOSE`` makes the user, a program without a password or a role."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, transaction

from healthboard.fleet.models import Account
from healthboard.people import tokens
from healthboard.people.access import SCOPES
from healthboard.people.console import not_ready, operating
from healthboard.refusals import Refusal


class Command(BaseCommand):
    help = "Print a new bearer token of a user. It is shown once; only its hash is kept."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user")
        parser.add_argument("--days", type=float, help="days until it expires; without, it never does")
        parser.add_argument("--name", default="", help="to tell it from others")
        parser.add_argument("--scope", choices=list(SCOPES), default="all", help="what it may at most (default: all)")
        parser.add_argument("--account", default="", help="number of the account that it counts in; without, all")
        parser.add_argument("--region", default="", help="without, all")
        parser.add_argument("--pool", default="", help="name of the pool; without, all")
        parser.add_argument(
            "--service", default="", metavar="PURPOSE", help="make the user: a service account for this"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["days"] is not None and not 0 < options["days"] <= tokens.MOST_DAYS:
            raise CommandError(f"--days must be more than 0 and at most {tokens.MOST_DAYS}", returncode=2)
        try:
            with transaction.atomic():
                token = self._issued(**{k: options[k] for k in ("user", "service", "account")}, **{
                    k: options[k] for k in ("days", "name", "scope", "region", "pool")
                })  # fmt: skip
        except Refusal as refusal:
            raise CommandError(refusal.message, returncode=2) from None
        except DatabaseError as error:
            raise not_ready(error) from None
        self.stdout.write(token)

    def _issued(self, user: str, service: str, account: str, **values: Any) -> str:
        home = Account.objects.filter(account_id=account).first() if account else None
        if account and home is None:
            raise CommandError(f"account {account} is not collected", returncode=2)
        found = get_user_model().objects.filter(username=user).first()
        if found is None and service:
            found = tokens.make_service(user, service, actor=operating())
        if found is None or not found.is_active:
            raise CommandError(f"there is no active user {user}", returncode=2)
        return tokens.issue_api(found, actor=operating(), account=home, **values)
