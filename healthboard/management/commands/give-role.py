"""``manage.py give-role USER ROLE [--account N] [--region R] [--pool P] [--as ADMIN]``: the first admin, or another role.

Without --as it gives the role admin for everything, and only while nobody active has it: so that an installation gets its
first admin, and one that lost its last gets another, from whoever has a shell on the machine."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard.fleet.models import Account
from healthboard.people import access, grants
from healthboard.people.console import named, not_ready, operating
from healthboard.people.models import Grant, Role
from healthboard.refusals import Refusal


class Command(BaseCommand):
    help = "Give a user a role; the first admin without --as, everything else under an admin's name."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user")
        parser.add_argument("role", choices=Role.values)
        parser.add_argument("--account", default="", help="number of the account; without, all")
        parser.add_argument("--region", default="", help="without, all")
        parser.add_argument("--pool", default="", help="name of the pool; without, all")
        parser.add_argument("--as", dest="admin", default="", help="the admin under whose name it is done")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._give(**{k: options[k] for k in ("user", "role", "account", "region", "pool", "admin")})
        except Refusal as refusal:
            raise CommandError(refusal.message, returncode=2) from None
        except DatabaseError as error:
            raise not_ready(error) from None

    def _give(self, user: str, role: str, account: str, region: str, pool: str, admin: str) -> None:
        found = get_user_model().objects.filter(username=user, is_active=True).first()
        if found is None:
            raise CommandError(f"there is no active user {user}", returncode=2)
        home = Account.objects.filter(account_id=account).first() if account else None
        if account and home is None:
            raise CommandError(f"account {account} is not collected", returncode=2)
        if not admin and (role != Role.ADMIN or account or region or pool or grants.has_admin()):
            raise CommandError(
                "say under whose name: --as ADMIN (without it: only the first admin of everything)", returncode=2
            )
        place = {"user": found, "role": role, "account": home, "region": region, "pool": pool}
        same = Grant.objects.filter(**place)
        if same.filter(access.counting()).exists():
            self.stdout.write("nothing differs")
            return
        grant = same.first() or Grant(**place)  # one that a group gave, and that has lapsed, is given by us from now on
        grant.source = ""
        grants.give(grant, actor=named(admin) if admin else operating())
        self.stdout.write(f"{found}: {grants.words(grant)}")
