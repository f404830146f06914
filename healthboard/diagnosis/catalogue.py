"""The Xid catalogue and our rulings as data: `get(code)` for the verdict of a code by itself, `who_says` for display.

`xid_catalogue.csv` holds NVIDIA's buckets and the vendors' lists per number; `rulings.csv` holds our word where it
differs from the catalogue's default, and every code without a number. `VERSION` names both files as they are read.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from healthboard.diagnosis.signals import Action, Verdict

_HERE = Path(__file__).parent
_FILES = (_HERE / "xid_catalogue.csv", _HERE / "rulings.csv")
_NUMBERED = re.compile(r"^(S?XID)_(\d+)$")
#: The boards of the catalogue's `architectures` column by the names that `Context.architecture` uses. Ada is not in
#: NVIDIA's table; it is read as the common subset of its neighbours, Ampere's.
_BOARDS = {"ampere": {"A100"}, "ada": {"A100"}, "hopper": {"H100"}, "blackwell": {"B100", "GB200"}}


@dataclass(frozen=True, slots=True)
class Entry:
    """One code: what it means and what it leads to by itself. `vendors` are the catalogue's columns, verbatim."""

    code: str
    title: str
    verdict: Verdict
    action: Action
    why: str
    number: int | None = None
    known: bool = True
    boards: tuple[str, ...] = ()
    vendors: dict[str, str] = field(default_factory=dict)
    disagreement: str = ""
    note: str = ""

    def raised_by(self, architecture: str | None) -> bool | None:
        """Whether this architecture raises the code by NVIDIA's table; None where the table does not tell."""
        boards = _BOARDS.get(architecture or "")
        return None if boards is None or not self.boards else bool(boards & set(self.boards))


class Catalogue:
    """Read once; immutable afterwards. `get` never fails: an unknown number goes to a person."""

    def __init__(self, entries: dict[str, Entry], version: str) -> None:
        self._entries = entries
        self.version = version

    def get(self, code: str) -> Entry:
        return self._entries.get(code) or _unknown(code)

    def __contains__(self, code: str) -> bool:
        return code in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def who_says(self, code: str) -> list[tuple[str, str]]:
        """(who, what they say) for the code, NVIDIA first and healthboard last; empty values are left out."""
        entry = self.get(code)
        said = [(who, text) for who, text in entry.vendors.items() if text]
        return [*said, ("healthboard", f"{entry.verdict}, {entry.action}: {entry.why}")]


def _unknown(code: str) -> Entry:
    match = _NUMBERED.match(code)
    kind = {"XID": "Xid", "SXID": "SXid"}.get(match[1], code) if match else code
    title = f"{kind} {match[2]}" if match else code.replace("_", " ").capitalize()
    if match and match[1] == "SXID":
        return Entry(code, title, Verdict.WATCH, Action.WATCH, "an NVSwitch message", int(match[2]))
    why = "not in NVIDIA's catalogue: a person decides"
    return Entry(code, title, Verdict.AMBIGUOUS, Action.DIAGNOSE, why, int(match[2]) if match else None, known=False)


def _numbered(row: dict[str, str], ruling: dict[str, str] | None) -> Entry:
    number = int(row["xid"])
    verdict, action = Verdict(row["default_verdict"]), Action(row["default_action"])
    why = row["meaning"]
    boards = tuple(b for b in row["architectures"].split(";") if b not in ("none", "unknown", ""))
    unused = row["meaning"].startswith("no use documented")
    if unused and row["nvidia_immediate"] == "CONTACT_SUPPORT":
        # NVIDIA documents no use and sends it to support, while several lists act on it: somebody should look.
        verdict, action = Verdict.AMBIGUOUS, Action.DIAGNOSE
    if ruling:
        verdict, action, why = Verdict(ruling["verdict"]), Action(ruling["action"]), ruling["why"]
    ecs = "repairs (replaces the instance)" if row["ecs_repairs"] == "yes" else "does not act"
    eks = "repairs (reboots or replaces the node)" if row["eks_repairs"] == "yes" else "does not act"
    vendors = {
        "nvidia": f"{row['nvidia_immediate']}; then {row['nvidia_investigatory']}",
        "ecs": ecs,
        "eks": eks,
        "gpud": row["gpud"],
        "nvsentinel": row["nvsentinel"],
    }
    title = f"Xid {number}: {row['name'] if unused else row['meaning']}"
    return Entry(
        f"XID_{number}", title, verdict, action, why, number, True, boards, vendors, row["disagreement"], row["note"]
    )


@cache
def load() -> Catalogue:
    """The shipped catalogue; its version is a hash of the files, so a decision can name what it was read with."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in _FILES)).hexdigest()[:12]
    with _FILES[1].open(newline="") as file:
        rulings = {row["code"]: row for row in csv.DictReader(file)}
    entries: dict[str, Entry] = {}
    with _FILES[0].open(newline="") as file:
        for row in csv.DictReader(file):
            entry = _numbered(row, rulings.pop(f"XID_{row['xid']}", None))
            entries[entry.code] = entry
    for code, row in rulings.items():
        entries[code] = Entry(code, row["title"], Verdict(row["verdict"]), Action(row["action"]), row["why"])
    return Catalogue(entries, digest)


def get(code: str) -> Entry:
    return load().get(code)


def who_says(code: str) -> list[tuple[str, str]]:
    return load().who_says(code)


def version() -> str:
    return load().version
