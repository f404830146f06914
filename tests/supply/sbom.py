"""`make sbom`: a CycloneDX document of what healthboard runs with, to standard output or a file.

The packages come from the environment as it is installed here, cut down to those of the lock, with the lock's hashes:
what only the tests need is no part of what is shipped. The same environment gives the same bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from tests.supply.lock import PINS, ROOT, RUNTIME, locked, pins

MAIN = "root-component"


def environment() -> dict[str, Any]:
    """What cyclonedx-py finds installed beside this interpreter. Raises CalledProcessError."""
    command = [
        sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "environment", sys.executable, "--output-reproducible",
        "--spec-version", "1.6", "--no-validate", "--pyproject", str(ROOT / "pyproject.toml"), "-o", "-",
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def build() -> dict[str, Any]:
    """The document. Raises LookupError where something of the lock is missing here, or is another version."""
    bom, lock = environment(), locked(RUNTIME)
    rows = {canonicalize_name(row["name"]): row for row in bom["components"]}
    for name, entry in lock.items():
        if entry.wanted() and rows.get(name, {}).get("version") != entry.version:
            raise LookupError(f"{name} {entry.version} is not what is installed here: make install first")
    bom["components"] = [row for name, row in sorted(rows.items()) if name in lock and lock[name].wanted()]
    for row in bom["components"]:
        row.pop("properties", None)  # which extra of ours brought it in
        row["hashes"] = [{"alg": "SHA-256", "content": one} for one in lock[canonicalize_name(row["name"])].hashes]
    refs = {row["bom-ref"]: canonicalize_name(row["name"]) for row in bom["components"]}
    chosen = pins(PINS)
    graph = {one["ref"]: [ref for ref in one.get("dependsOn", []) if ref in refs] for one in bom["dependencies"]}
    graph = {ref: graph.get(ref, []) for ref in refs} | {MAIN: [ref for ref, name in refs.items() if name in chosen]}
    bom["dependencies"] = [
        {"ref": ref, **({"dependsOn": sorted(on)} if on else {})} for ref, on in sorted(graph.items())
    ]
    return bom


def main() -> int:
    try:
        text = json.dumps(build(), indent=2, sort_keys=True) + "\n"
    except (LookupError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error.args[0])
        print(f"no SBOM was made: {said.strip().splitlines()[-1]}", file=sys.stderr)
        return 1
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
