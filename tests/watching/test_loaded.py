"""What a process has loaded is kept out of the search for garbage, by whichever way it starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FROZEN = (
    "import gc; assert gc.get_freeze_count() > {least}, gc.get_freeze_count(); assert gc.get_threshold()[0] == 10_000"
)
WORKER = (
    "from celery import signals; from healthboard.celery import app; app.loader.import_default_modules();"
    "signals.{signal}.send(sender=None)"
)


@pytest.mark.parametrize(
    "start",
    ["import healthboard.wsgi", WORKER.format(signal="worker_process_init"), WORKER.format(signal="worker_ready")],
)
def test_it_is_kept(start):
    subprocess.run(
        [sys.executable, "-c", f"{start}\n{FROZEN.format(least=100_000)}"],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "healthboard.settings"}, check=True, timeout=60,
    )  # fmt: skip
