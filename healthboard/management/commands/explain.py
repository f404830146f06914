"""``manage.py explain``: read a log or an API answer as the collectors would, and print the reading."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from healthboard.diagnosis.explain import Unreadable, explain, explain_lines
from healthboard.diagnosis.formats import FORMATS


class Command(BaseCommand):
    help = "Reads a kernel log, exporter text, tool output or AWS answer and prints findings and verdict as JSON."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("file", metavar="FILE|-", help="the file to read, or - for standard input")
        parser.add_argument("--format", choices=FORMATS, default="auto")
        parser.add_argument("--instance", help="the instance that the text belongs to")
        parser.add_argument("--jsonl", action="store_true", help='read {"id", "kind", "text"} per line')

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            text = _read(options["file"])
            if options["jsonl"]:
                sys.exit(self._lines(text))
            found = explain(text, options["format"], instance=options["instance"])
        except (Unreadable, OSError) as error:
            print(f"explain: {error}".splitlines()[0], file=sys.stderr)
            sys.exit(2)
        self.stdout.write(json.dumps(found, indent=2))

    def _lines(self, text: str) -> int:
        bad = 0
        for found, good in explain_lines(text.splitlines()):
            self.stdout.write(json.dumps(found))
            bad += not good
        return 2 if bad else 0


def _read(name: str) -> str:
    raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    return raw.decode("utf-8", "replace")
