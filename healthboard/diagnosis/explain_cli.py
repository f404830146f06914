"""The command line of `explain`, apart from Django: it starts in no time and needs no settings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from healthboard.diagnosis.explain import Unreadable, explain, explain_lines
from healthboard.diagnosis.formats import FORMATS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE|-", help="the file to read, or - for standard input")
    parser.add_argument("--format", choices=FORMATS, default="auto")
    parser.add_argument("--instance", metavar="ID", help="the instance that the text belongs to")
    parser.add_argument("--jsonl", action="store_true", help='read {"id", "kind", "text"} per line')


def run(file: str, *, format_: str = "auto", instance: str | None = None, jsonl: bool = False) -> int:
    """Prints the reading; 0, or 2 with one line on standard error where the input can't be read."""
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = raw.decode("utf-8", "replace")
        if jsonl:
            bad = 0
            for found, good in explain_lines(text.split("\n")):
                print(json.dumps(found))
                bad += not good
            return 2 if bad else 0
        print(json.dumps(explain(text, format_, instance=instance), indent=2))
    except BrokenPipeError:
        sys.stderr.close()
    except (Unreadable, OSError) as error:
        print(f"explain: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="manage.py explain",
        description="Reads a kernel log, exporter text, tool output or AWS answer; prints findings and verdict as JSON.",
    )
    arguments(parser)
    options = parser.parse_args(argv)
    return run(options.file, format_=options.format, instance=options.instance, jsonl=options.jsonl)
