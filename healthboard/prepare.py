"""Before the processes of a release start: the database is migrated, its roles have their rights, its mode is stamped.

`python -m healthboard.processes prepare`, with `DATABASE_OWNER_URL` beside `DATABASE_URL`; `make run` does the same by
itself. It may run again at any time, several at once, and while processes of the release before go on. Static files need
nothing: the web server takes them from the code. No Django here; it runs in the children.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from healthboard import config
from healthboard.config import ROOT, BadSetting

Say = Callable[[str], None]
ONE_ROLE = (
    "note: DATABASE_OWNER_URL is not set: the role of the processes owns the tables, and could rewrite the audit record"
)


class Failed(Exception):
    """One line that says why, and what to do."""


def check() -> None:
    """Raises BadSetting, in one line, for what no process of an installation can do without."""
    if config.mode() != "aws":
        return
    given = config.read("DATABASE_URL")
    if not given or "sqlite" in given:
        raise BadSetting("HEALTHBOARD_MODE=aws needs DATABASE_URL: postgres://USER:PASSWORD@HOST/NAME")
    for name in ("HEALTHBOARD_ACCOUNTS", "HEALTHBOARD_REGIONS"):
        if not config.listed(name):
            raise BadSetting(f"HEALTHBOARD_MODE=aws needs {name}: what it looks after")


def database(env: Mapping[str, str], say: Say) -> None:
    """Migrations and rights as the owner, then the stamp, the default policy and the switch as the processes' role.

    `env`: of the children. Raises Failed.
    """
    owner = config.read("DATABASE_OWNER_URL")
    role = [unquote(urlsplit(config.read("DATABASE_URL")).username or "")] if owner else []
    manage(["prepare_database", *role], {**env, "DATABASE_URL": owner} if owner else env, say)
    manage(["setup"], env, say)


def manage(args: list[str], env: Mapping[str, str], say: Say) -> None:
    """One command of manage.py; what it says is passed on line by line. Raises Failed with the line that says most."""
    child = subprocess.Popen(
        [sys.executable, "manage.py", *args], cwd=ROOT, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines = []
    for line in child.stdout or ():
        if line.strip() and not line[0].isspace():  # what follows an exception's first line is indented
            lines.append(line.strip())
            say(lines[-1])
    if child.wait():
        raise Failed(lines[-1].removeprefix("CommandError: ") if lines else f"manage.py {args[0]} failed")


def main() -> int:
    """`prepare` as a process: what it did, a line each; or one line on standard error."""
    from healthboard import processes

    try:
        check()
        for folder in (config.home(), config.run_dir()):
            folder.mkdir(parents=True, exist_ok=True)
        said: list[str] = []
        database(processes.environment(processes.PLAIN, os.environ), said.append)
        if config.mode() == "aws" and not config.read("DATABASE_OWNER_URL"):
            said.append(ONE_ROLE)
    except (BadSetting, Failed, OSError) as error:
        print(f"healthboard cannot be prepared: {error}", file=sys.stderr, flush=True)
        return 1
    print("\n".join([*said, "prepared: start the processes"]), flush=True)
    return 0
