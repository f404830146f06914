"""`manage.py check_invariants`: one line for each broken invariant; exits 1 if there is any."""

import sys

from django.core.management.base import BaseCommand
from django.db import DatabaseError

from healthboard.cases.invariants import check
from healthboard.people.console import not_ready


class Command(BaseCommand):
    help = "Check INV1 to INV9 over the database (and the sandbox's call log); exit 1 and name what is broken."
    requires_system_checks = ()

    def handle(self, *args, **options):
        try:
            broken = check()
        except DatabaseError as error:
            raise not_ready(error) from None
        for sentence in broken:
            self.stdout.write(sentence)
        if broken:
            sys.exit(1)
        self.stdout.write("all invariants hold")
