"""Servers of one slot: a PostgreSQL cluster and a Valkey of its own, in a folder of its own, and the environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from healthboard import valkey
from tests.safety.board import die_with_parent
from tests.services import Postgres, spare_port

SPEED = 30


class Site:
    """Start it before Django is set up: `enter` makes the environment of this process that of the site."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        self.postgres = Postgres.start(folder / "postgres", preexec_fn=_postgres_dies)
        command, self.redis = valkey.prepare(folder / "valkey")
        self._valkey_command = command
        self.valkey: subprocess.Popen = self.start_valkey()
        self._held = _held_port()
        self.aws_port = self._held.getsockname()[1]

    def start_valkey(self) -> subprocess.Popen:
        self.valkey = subprocess.Popen(
            self._valkey_command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
        )
        for _ in range(200):
            if valkey.answers(self.redis):
                return self.valkey
            time.sleep(0.02)
        raise RuntimeError("Valkey does not answer")

    def mend(self) -> None:
        """A server that a trial has started anew ends with that trial."""
        if not valkey.answers(self.redis):
            self.start_valkey()

    def enter(self) -> None:
        for name in [n for n in os.environ if n.startswith(("AWS_", "HEALTHBOARD_", "DJANGO_"))]:
            del os.environ[name]
        os.environ.update(
            HEALTHBOARD_MODE="sandbox", HEALTHBOARD_HOME=str(self.home), HEALTHBOARD_SANDBOX_SPEED=str(SPEED),
            HEALTHBOARD_LOG_LEVEL="WARNING", DATABASE_URL=self.postgres.url, REDIS_URL=self.redis,
            DJANGO_SETTINGS_MODULE="healthboard.settings", CELERY_SKIP_CHECKS="1", NO_PROXY="127.0.0.1",
        )  # fmt: skip
        run = self.home / "run"
        run.mkdir(exist_ok=True)
        (run / "sandbox.url").write_text(f"http://127.0.0.1:{self.aws_port}\n")
        import django

        django.setup()
        _warm()

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.valkey.kill()
            self.valkey.wait(5)
        self.postgres.process.send_signal(signal.SIGQUIT)  # nothing in it is worth an orderly end
        self.postgres.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


def _held_port() -> socket.socket:
    """A port that no other slot is given, and that each trial's sandbox may listen on."""
    while True:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", spare_port()))
        except OSError:
            held.close()
            continue
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return held


def _postgres_dies() -> None:
    die_with_parent(signal.SIGINT)


def _warm() -> None:
    """Import and make what each trial would otherwise make anew; nothing is connected."""
    import boto3  # noqa: F401
    from celery import signals  # noqa: F401
    from celery.worker import consumer, loops, strategy  # noqa: F401
    from kombu.transport import redis  # noqa: F401

    from healthboard import aws
    from healthboard.celery import app
    from tests.repairs import driver
    from tests.safety import conductor, worker  # noqa: F401

    aws.READ_ATTEMPTS = 1
    app.finalize()
    app.loader.import_default_modules()
    for service in ("ec2", "ecs", "autoscaling", "sts"):
        for part, changing in (("reader", False), ("actor", False), ("actor", True)):
            aws.client(service, account=driver.ACCOUNT, region=driver.REGION, part=part, changing=changing)
