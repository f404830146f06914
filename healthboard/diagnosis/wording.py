"""Whether a line says a thing, denies it, or only names it: a comment, a line of source code, somebody's process."""

from __future__ import annotations

import re

_BEFORE = re.compile(
    r"(?:\b(?:no|never|without|none of the|neither)\b(?! ?\d)(?:(?!\b(?:and|but|because|since)\b)[\w\s/-]){0,30}|"
    r"(?<!gpu )(?<!device )(?<!index )(?<!card )(?<!node )(?<![\d.,])\b(?:0|zero) (?:\w+ )?)$", re.IGNORECASE
)  # fmt: skip
_AFTER = re.compile(
    r"\w{0,40}\s{0,8}(?:flag|bit|status)?\s{0,8}(?:(?:[:=|]|is|was|are|were)\s{0,8})?"
    r"(?:(?<=[:=|\s])(?:no|none|0|false|n/a|ok|pass|healthy)\s*(?:$|[|,;.])|not (?:set|detected|found|present|exceeded|supported)\b)",
    re.IGNORECASE,
)
#: Comments, source code, and the rows of nvidia-smi's table of processes: index, instances, pid, type, name.
_NAMED = re.compile(
    r"\s*(?:#|//|except\b|elif\b|case\b|raise\b|import\b|from\s+[\w.]+\s+import\b|def\b|"
    r"[a-z_][\w.]{0,40}\(f?['\"].{0,300}['\"][^()]{0,60}\)\s{0,8};?\s{0,8}$|if\b.*(?:[:{]\s*$|[=!]=))|"
    r"\|\s+\d+\s+(?:N/A|\d+)\s+(?:N/A|\d+)\s+\d+\s+[CGM+]{1,3}\s"
)


def only_named(line: str) -> bool:
    """Whether the line tells of a program and not of a machine."""
    return _NAMED.match(line) is not None


def says(pattern: re.Pattern[str], line: str) -> bool:
    """Whether the pattern is in the line at a place where nothing denies it."""
    return any(
        not _BEFORE.search(line[max(0, m.start() - 60) : m.start()]) and not _AFTER.match(line, m.end())
        for m in pattern.finditer(line)
    )
