"""`make audit`: known vulnerabilities of what is locked, by pip-audit and the OSV database. Needs the internet.

Exit 0: each locked package was asked about, and nothing is known. 1: something is known, one line for each. 2: it is not
known, since the database was not reached or did not answer for all of them; that is never told as good.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.supply.lock import RUNTIME, TESTS, locked


def command(path: Path, url: str) -> list[str]:
    told = [sys.executable, "-m", "pip_audit", "--requirement", str(path), "--disable-pip", "--require-hashes", "--strict",
            "--vulnerability-service", "osv", "--progress-spinner", "off", "--format", "json"]  # fmt: skip
    return [*told, "--osv-url", url] if url else told


def audit(path: Path, url: str = "") -> tuple[int, list[str]]:
    """(exit status, lines to print) for one lock. `url`: of another service that speaks OSV's protocol."""
    done = subprocess.run(command(path, url), capture_output=True, text=True)
    try:
        rows = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]
        return 2, [f"NOT CHECKED, the vulnerability database did not answer: {said}"]
    asked = {row["name"] for row in rows if "vulns" in row}
    missing = sorted(name for name, entry in locked(path).items() if entry.wanted() and name not in asked)
    known = [
        f"{row['name']} {row['version']}: {vuln['id']} {', '.join(vuln['aliases'])}".strip()
        + f", mended in {', '.join(vuln['fix_versions']) or 'no release yet'}"
        for row in rows
        for vuln in row.get("vulns", [])
    ]
    if known:
        return 1, known
    if missing or done.returncode:
        return 2, [f"NOT CHECKED: {', '.join(missing) or 'pip-audit ended with an error'}"]
    return 0, [f"{len(asked)} packages of {path.name}: nothing is known against them"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="also what only the tests and tools need")
    parser.add_argument("--osv-url", default="", help="another service that speaks OSV's protocol, such as a mirror")
    given = parser.parse_args()
    status, lines = audit(TESTS if given.all else RUNTIME, given.osv_url)
    print("\n".join(lines), file=sys.stderr if status else sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
