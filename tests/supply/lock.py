"""The pins (`requirements.txt`: what we chose, readable) and the locks (everything that comes with it, by hash)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINS, TEST_PINS = ROOT / "requirements.txt", ROOT / "tests" / "requirements.txt"
RUNTIME, TESTS = ROOT / "healthboard" / "requirements.lock", ROOT / "tests" / "requirements.lock"


@dataclass(frozen=True)
class Locked:
    name: str  # as packaging writes it
    version: str
    hashes: tuple[str, ...]  # SHA-256, hexadecimal, of each file of that release
    requirement: Requirement

    def wanted(self, **environment: str) -> bool:
        """Whether it is installed there; without arguments: here."""
        return self.requirement.marker is None or self.requirement.marker.evaluate(environment)


def pins(path: Path) -> dict[str, str]:
    """Name -> version. Raises ValueError for what is not pinned to one version."""
    found = {}
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if not text or text.startswith("-r "):
            continue
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.!+]+)", text)
        if match is None:
            raise ValueError(f"{path.name}: {text!r} names no single version")
        found[canonicalize_name(match[1])] = match[2]
    return found


def locked(path: Path) -> dict[str, Locked]:
    found = {}
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#")]
    for entry in "\n".join(lines).replace("\\\n", " ").splitlines():
        said, *hashes = entry.split("--hash=sha256:")
        requirement = Requirement(said.strip())
        (version,) = requirement.specifier
        name = canonicalize_name(requirement.name)
        found[name] = Locked(name, version.version, tuple(one.strip() for one in hashes), requirement)
    return found
