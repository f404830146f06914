"""What docs/install/ ships, read for tests: the Containerfile as the image that it describes, compose.yaml with its defaults,
and the variables that the code reads and the documents explain."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from healthboard.cases import retention

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "install"
PROCESSES = ("prepare", "web", "beat", "reader", "actor", "sender")
#: without `reader` and `actor`, the only ones with rights in AWS
WITHOUT_AWS = ("prepare", "web", "beat", "sender")
#: no process: one command of manage.py, where containers run
MANAGE = "manage"
#: secrets that only some installations need -> the process that gets it, where it is given
OPTIONAL = {
    "HEALTHBOARD_METRICS_TOKEN": "web", "HEALTHBOARD_OIDC_CLIENT_SECRET": "web", "HEALTHBOARD_SECRET_KEY_FALLBACKS": "web",
    "HEALTHBOARD_SMTP_PASSWORD": "sender",
}  # fmt: skip
README = (FOLDER / "README.md").read_text()


def block(heading: str, kind: str = "sh") -> str:
    """The first block of this kind below a heading of README.md."""
    return re.search(rf"^##+ {heading}$.*?```{kind}\n(.*?)```", README, re.S | re.M)[1]


@dataclass
class Image:
    """The last stage. `copied`: path in the build's context -> path in the image, whatever stages are between."""

    copied: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"
    volumes: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    stop_signal: str = ""
    healthcheck: str = ""


def instructions(text: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, its argument) of each; comments are left out and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word.upper(), rest.strip()) for word, _, rest in (x.partition(" ") for x in joined.splitlines() if x.strip())
    ]


def image(text: str | None = None) -> Image:
    stages: dict[str, Image] = {}
    now, args = Image(), {}
    for word, rest in instructions((FOLDER / "Containerfile").read_text() if text is None else text):
        if word == "ARG":
            name, _, value = rest.partition("=")
            args[name] = value
        elif word == "FROM":
            now = Image()
            stages[rest.partition(" AS ")[2] or "last"] = now
        elif word == "COPY":
            _copy(now, rest.split(), stages)
        elif word in ("ENV", "LABEL"):
            pairs = (one.partition("=") for one in shlex.split(rest))
            target = now.env if word == "ENV" else now.labels
            target |= {k: re.sub(r"\$\{(\w+)\}", lambda m: args[m[1]], v) for k, _, v in pairs}
        elif word == "WORKDIR":
            now.workdir = rest
        elif word == "VOLUME":
            now.volumes += yaml.safe_load(rest)
        elif word == "ENTRYPOINT":
            now.entrypoint = yaml.safe_load(rest)
        elif word in ("USER", "STOPSIGNAL", "HEALTHCHECK"):
            setattr(now, {"USER": "user", "STOPSIGNAL": "stop_signal", "HEALTHCHECK": "healthcheck"}[word], rest)
    return now


def _copy(now: Image, words: list[str], stages: dict[str, Image]) -> None:
    stage = next((w.partition("=")[2] for w in words if w.startswith("--from=")), "")
    *sources, target = (w for w in words if not w.startswith("--"))
    target = str(Path(now.workdir) / target)
    for source in sources:
        if stage:  # what that stage copied below `source`
            for origin, at in stages[stage].copied.items():
                if Path(at).is_relative_to(source):
                    now.copied[origin] = str(Path(target) / Path(at).relative_to(source))
        else:  # a folder's content goes into the target, a file under its own name
            folder = (ROOT / source).is_dir()
            now.copied[source] = target if folder else str(Path(target) / Path(source).name)


@cache
def compose() -> dict[str, Any]:
    """compose.yaml as Compose reads it with nothing else set: `${NAME:-default}` is the default."""
    text = (FOLDER / "compose.yaml").read_text()
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def env_file() -> dict[str, str]:
    lines = (FOLDER / "healthboard.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


# --- variables

_NAME = re.compile(r"HEALTHBOARD_[A-Z_]*[A-Z]|DATABASE_URL|DATABASE_OWNER_URL|REDIS_URL")
#: names that the code puts together, and what it puts in
FILLED = {
    "HEALTHBOARD_{}_ROLE": ("READER", "ACTOR"),
    "HEALTHBOARD_KEEP_{}_DAYS": [kind.name.upper() for kind in retention.KINDS],
}
#: for tests, the sandbox and between our own processes
NOT_FOR_PEOPLE = re.compile(r"HEALTHBOARD_(SANDBOX_\w+|WEB_URL)")


@cache
def read_by_the_server() -> frozenset[str]:
    """Variables that the code of the server names, but for the sandbox's and the node reporter's."""
    found: set[str] = set()
    for path in [*(ROOT / "healthboard").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]:
        if {"sandbox", "node", "migrations"} & set(path.relative_to(ROOT).parts):
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _NAME.search(text) or "HEALTHBOARD_" in text else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
                found.add(node.value.removesuffix("_FILE"))
            elif isinstance(node, ast.JoinedStr):
                made = "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
                found |= {made.format(one) for one in FILLED.get(made, ())}
    return frozenset(name for name in found if not NOT_FOR_PEOPLE.fullmatch(name))


def documented() -> set[str]:
    """Variables in the first column of the tables of docs/real-account.md; `_B` after `HEALTHBOARD_A` is `HEALTHBOARD_B`."""
    found: set[str] = set()
    for row in (ROOT / "docs" / "real-account.md").read_text().splitlines():
        if not row.startswith("| `"):
            continue
        before = ""
        for name in re.findall(r"`([A-Z_]+)`", row.split("|")[1]):
            if name.startswith("_"):  # as much of the one before as makes a variable that there is
                parts = before.split("_")
                name = next(
                    (
                        whole
                        for n in range(len(parts), 0, -1)
                        if (whole := "_".join(parts[:n]) + name) in read_by_the_server()
                    ),
                    before + name,
                )
            before = before or name
            found.add(name)
    return found
