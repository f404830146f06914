"""What an installation in parts is made of: one process each for web, beat, reader, actor and sender.

`python -m healthboard.processes NAME` becomes that process; `make run` uses the same commands with one worker for all.
A process that has no business in AWS is started without any way to credentials, and none with the database's owner. None
starts on a database that was not prepared for its release: `prepare`, in place of a name, does that first. And `manage
COMMAND …` is one command of manage.py with the same settings, without AWS and without the owner unless it is the owner's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from healthboard import broker, config, prepare
from healthboard.config import BadSetting

NAMES = ("web", "beat", "reader", "actor", "sender")
#: of the environment of botocore: keys, profiles, where a container or a web identity gets them
_AWS = "AWS_"
#: for `prepare` alone: whoever takes a process over must not find the role that could rewrite the audit record
_OWNER = ("DATABASE_OWNER_URL", "DATABASE_OWNER_URL_FILE")
#: what only the owner of the tables may carry out as a whole; where the owner is given, these and no others have it
OWNERS = ("audit_purge", "grants", "purge")
#: as whom `prepare` and commands run: a process that has no right in AWS, and no secret that another one lacks
PLAIN = "beat"
USAGE = f"usage: python -m healthboard.processes prepare|{'|'.join(NAMES)}, or manage COMMAND …"
_CELERY = ("-m", "celery", "-A", "healthboard.celery")


def command(name: str) -> list[str]:
    """The command of one process; `all` is a worker that takes every queue. Raises BadSetting."""
    python = sys.executable
    if name == "web":
        return [
            python, "-m", "gunicorn", "healthboard.wsgi", "--bind", config.bind(), "--worker-class", "gthread",
            "--workers", "1" if sqlite() or config.mode() == "sandbox" else "2", "--threads", "8", "--timeout", "60", "--graceful-timeout", "5",
            "--log-level", "warning", "--no-control-socket", "--preload",
        ]  # fmt: skip
    if name == "beat":
        return [
            python,
            *_CELERY,
            "beat",
            "--pidfile",
            "",
            "-s",
            str(config.run_dir() / "beat-schedule"),
            "-l",
            "WARNING",
        ]
    from healthboard.celery import TAKES

    if name not in TAKES:
        raise BadSetting(f"{name!r} is no process of healthboard: say one of {', '.join(NAMES)}")
    return worker(name, TAKES[name])


def worker(name: str, queues: tuple[str, ...], *, solo: bool = False) -> list[str]:
    """A worker of these queues; `solo`: one task at a time, in the process itself, as SQLite needs it anyway."""
    pool = ["--pool", "solo"]
    if not solo and not sqlite():
        pool = ["--pool", "prefork", "--concurrency", config.read("HEALTHBOARD_CONCURRENCY", "4")]
    named = "healthboard" if name == "all" else name
    return [
        sys.executable, *_CELERY, "worker", *pool, "-Q", ",".join(queues), "--without-mingle", "--without-gossip",
        "--without-heartbeat", "-n", f"{named}-{os.getpid()}@%h", "-l", "INFO",
    ]  # fmt: skip


def environment(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of one process: its name, nothing of the database's owner, and for one without AWS nothing that
    leads to credentials."""
    env = {key: value for key, value in given.items() if key not in _OWNER} | {"HEALTHBOARD_PROCESS": name}
    if name in ("reader", "actor", "all"):
        return env
    env = {key: value for key, value in env.items() if not key.startswith(_AWS)}
    return {**env, "AWS_EC2_METADATA_DISABLED": "true"}


def managing(args: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command of manage.py. Raises BadSetting."""
    env = environment(PLAIN, given)
    if args[0] in OWNERS and (owner := config.read("DATABASE_OWNER_URL")):
        env = {key: value for key, value in env.items() if key != "DATABASE_URL_FILE"} | {"DATABASE_URL": owner}
    return env


def sqlite() -> bool:
    return "sqlite" in (config.read("DATABASE_URL") or "sqlite")


def unprepared() -> str:
    """What the database lacks, in one line. One that does not answer is no trouble here: whoever starts waits for it, and
    `/readyz` says so."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "healthboard.settings")
    import django

    django.setup()
    from django.db import connection

    from healthboard import ready

    try:
        return ready.missing()
    except ready.Away:
        return ""
    finally:
        connection.close()


def main() -> int:
    name, args = (*sys.argv[1:2], "")[0], sys.argv[2:]
    try:
        if name not in (*NAMES, "prepare", "manage") or bool(args) != (name == "manage"):
            raise BadSetting(USAGE)
        if name == "prepare":
            return prepare.main()
        prepare.check()
        if name == "manage":  # where it was called: it may be given files
            started, env = [sys.executable, str(config.ROOT / "manage.py"), *args], managing(args, os.environ)
            os.execve(started[0], started, env)
        os.environ["HEALTHBOARD_PROCESS"] = name
        for folder in (config.home(), config.run_dir(), config.home() / "static"):
            folder.mkdir(parents=True, exist_ok=True)
        started = command(name)
        if name != "web" and (why := broker.trouble(silent=True)):
            raise BadSetting(why)
        if why := unprepared():
            raise BadSetting(why)
    except (BadSetting, OSError) as error:
        cannot = f"{args[0]} cannot be run" if name == "manage" and args else "healthboard cannot start"
        print(f"{cannot}: {error}", file=sys.stderr, flush=True)
        return 1
    os.chdir(config.ROOT)
    os.execve(started[0], started, environment(name, os.environ))


if __name__ == "__main__":
    sys.exit(main())
