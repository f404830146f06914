"""``manage.py retire [--yes --as ADMIN]``: what healthboard has left in AWS, before it is removed.

Without --yes it only lists. With it, open repairs are stopped and undone and drained machines returned, by the engine and
under that admin's name; run it again until nothing is left. It never terminates. Exit status 0: nothing of ours is left.
"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard.cases import retire
from healthboard.people.console import named, not_ready
from healthboard.refusals import Refusal

HOW = {
    retire.TELL: "the engine takes it back, with --yes",
    retire.WAIT: "wait, and look again",
    retire.PERSON: "for a person",
}


class Command(BaseCommand):
    help = "List what healthboard has left in AWS; with --yes, take back what the engine can. Nothing is terminated."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--dry-run", action="store_true", help="only list (the default)")
        how.add_argument("--yes", action="store_true", help="take back what the engine can")
        parser.add_argument("--as", dest="admin", default="", help="the admin under whose name it is done")

    def handle(self, *args: Any, yes: bool, admin: str, **options: Any) -> None:
        if yes and not admin:
            raise CommandError("say under whose name: --yes --as ADMIN", returncode=2)
        try:
            if yes:
                for sentence in retire.take_back(named(admin)):
                    self.stdout.write(sentence)
            rows = retire.left()
        except Refusal as refusal:
            raise CommandError(refusal.message, returncode=2) from None
        except DatabaseError as error:
            raise not_ready(error) from None
        for row in rows:
            self.stdout.write(f"{row.what} ({HOW[row.by]})" + (f":\n  {row.command}" if row.command else ""))
        if rows:
            sys.exit(1)
        self.stdout.write("nothing of healthboard's is left in AWS, as far as its database knows")
