"""Which code is on trial, and its hash. See docs/decisions/0032-*."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: where something is decided about a machine or done to it: the stages of the loop, and what people answer
ENTRIES = (
    "workers/collect/tasks.py", "workers/decide/tasks.py", "workers/repair/tasks.py", "workers/verify/tasks.py",
    "healthboard/cases/answers.py", "healthboard/cases/invariants.py", "healthboard/repairs/restored.py",
    "healthboard/api/node.py", "healthboard/api/node_enrol.py", "healthboard/celery.py",
)  # fmt: skip
#: told or shown, never decided
APART = ("healthboard/notices/", "healthboard/approve/", "healthboard/sandbox/", "workers/notify/", "workers/node/")
DATA = "healthboard/diagnosis/*.csv"
NAMES = ("admin.py", "apps.py", "prose.py", "queries.py", "urls.py", "views.py", "words.py")


def engine(root: Path = ROOT) -> str:
    """Hash of the code that is on trial, 12 hex digits."""
    total = hashlib.sha256()
    for path in files(root):
        total.update(f"{path}\0".encode() + (root / path).read_bytes() + b"\0")
    return total.hexdigest()[:12]


@cache
def files(root: Path = ROOT) -> tuple[str, ...]:
    """Paths of the entries and of all that they import of ours, at whatever place, in order."""
    found: set[str] = set()
    todo = [path for path in ENTRIES if (root / path).exists()]
    while todo:
        path = todo.pop()
        if path in found or path.startswith(APART) or path.rpartition("/")[2] in NAMES:
            continue
        found.add(path)
        todo += _imported(root, path)
    return tuple(sorted(found | {str(path.relative_to(root)) for path in root.glob(DATA)}))


def _imported(root: Path, path: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((root / path).read_bytes())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.partition(".")[0] in ("healthboard", "workers"):
                base = name.replace(".", "/")
                yield from (p for p in (f"{base}.py", f"{base}/__init__.py") if (root / p).exists())
