"""``manage.py api-token USER``: print a new bearer token for the API, and nothing else."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard.people import tokens
from healthboard.people.console import operating


class Command(BaseCommand):
    help = "Print a new bearer token of a user. It is shown once; only its hash is kept."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user")
        parser.add_argument("--days", type=float, help="days until it expires; without, it never does")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["days"] is not None and not 0 < options["days"] <= 3650:
            raise CommandError("--days must be more than 0 and at most 3650", returncode=2)
        try:
            user = get_user_model().objects.filter(username=options["user"]).first()
            if user is None or not user.is_active:
                raise CommandError(f"there is no active user {options['user']}", returncode=2)
            token = tokens.issue_api(user, actor=operating(), days=options["days"])
        except DatabaseError as error:
            reason = (str(error).strip().splitlines() or ["unknown"])[0]
            raise CommandError(f"the database is not ready: {reason}", returncode=2) from None
        self.stdout.write(token)
