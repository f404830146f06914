"""Leaves process names out of what is passed on to others: kernel lines, tool output, and the JSON made of them.

Tenants choose the names of their processes. What is left out is replaced by `OUT`; nothing else of a line changes.
"""

from __future__ import annotations

import re
from typing import Any

from healthboard.diagnosis.xid_line import XID, split_process

OUT = "[left out]"
#: keys of JSON under which a process is named
KEYS = frozenset({"process", "process_name", "comm", "cmdline", "exe"})
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<keep>\b(?:process_?name|comm|cmdline|exe)[=:] ?)(?P<name>'[^']{0,200}'|\"[^\"]{0,200}\"|[^\s,;]{1,200})",
        r"(?P<keep>\bprocess \d{1,10} \()(?P<name>[^)\n]{1,64})(?=\))",  # Killed process 4711 (python3)
        r"(?P<keep>(?:^|\s|\]\s?))(?P<name>[\w./:+-]{1,64})(?=\[\d{1,10}\]: )",  # python3[4711]: segfault at
        # a row of nvidia-smi's table of processes
        r"(?P<keep>^\|\s{1,8}\d{1,3}\s{1,8}\S{1,8}\s{1,8}\S{1,8}\s{1,12}\d{1,10}\s{1,8}[CGM+]{1,3}\s{1,8})"
        r"(?P<name>\S.{0,200}?)(?=\s{1,80}\d{1,9}MiB \|)",
    )
)
_NAMED = re.compile(r"(\bpid='?(?:<unknown>|\d{1,10})'?,\s*name=)")


def text_without(text: str) -> str:
    """The text with every process name that is known by its place left out."""
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    if found := XID.search(line):
        line = line[: found.end()] + _xid(line[found.end() :])
    for pattern in _PATTERNS:
        line = pattern.sub(lambda m: m["keep"] + OUT, line)
    return line


def _xid(rest: str) -> str:
    _, name, body = split_process(rest)
    begun = _NAMED.search(rest)
    if not name or begun is None:
        return rest
    return f"{rest[: begun.end()]}{OUT}{', ' if body else ''}{body}"


def plain_without(value: Any, key: str = "") -> Any:
    """The same for JSON: texts, values of `KEYS`, and the ``name`` beside a ``pid`` or in an event's ``attrs``."""
    match value:
        case str():
            return text_without(value)
        case list() | tuple():
            return [plain_without(part, key) for part in value]
        case dict():
            person = "pid" in value or key == "attrs"
            return {
                k: OUT if v and (k in KEYS or (person and k == "name")) else plain_without(v, str(k))
                for k, v in value.items()
            }
        case _:
            return value
