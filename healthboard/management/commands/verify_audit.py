"""`manage.py verify_audit [--head HASH]`: is every audit row as it was sealed? Exits 1 and names each that is not."""

from __future__ import annotations

import re
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard.audit import chain, heads
from healthboard.people.console import not_ready


class Command(BaseCommand):
    help = "Verify the audit chain; exit 1 and name each row that was changed, deleted, moved, put in or cut off."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--head", default="", help="a hash that the chain must hold (default: the newest known)")

    def handle(self, *args: Any, head: str, **options: Any) -> None:
        if head and not re.fullmatch(r"[0-9a-fA-F]{64}", head):
            raise CommandError("--head is no hash: expected 64 hexadecimal digits", returncode=2)
        try:
            chain.seal()
            known = None if head else heads.newest()
            against = head.lower() or (known[0].hash if known else "")
            seen = chain.verify(against)
            behind = "" if head else heads.behind()
        except DatabaseError as error:
            raise not_ready(error) from None
        broken = seen.broken
        if head and not seen.found:
            broken.append(f"the head {head.lower()} is not in the chain: its end was cut off, or it was rewritten")
        elif behind:
            broken.append(behind)
        for sentence in broken:
            self.stdout.write(sentence)
        if against:
            said = f"head of {known[1]:%Y-%m-%d %H:%M:%S} UTC in {known[2]}" if known else "head as given"
        else:
            said = "no head is known: a tail that was cut off would not be seen"
        self.stdout.write(f"verified against: {said}{f', {against}' if against else ''}")
        for told in heads.let_go():
            self.stdout.write(f"note: the log of heads began again at {told}")
        last = f"ends at position {seen.end.position}, row {seen.end.row}, {seen.end.hash}" if seen.end else "is empty"
        self.stdout.write(f"{seen.seals} rows; the chain {last}")
        if broken:
            sys.exit(1)
        self.stdout.write("every row is as it was sealed")
