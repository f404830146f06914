"""What a process has loaded is kept out of the search for garbage, by whichever way it starts; none loads what it does not do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FROZEN = (
    "import gc; assert gc.get_freeze_count() > {least}, gc.get_freeze_count(); assert gc.get_threshold()[0] == 10_000"
)
LOADED = (
    "import sys; from celery import signals; from healthboard.celery import app; app.loader.import_default_modules();"
)
WORKER = LOADED + "signals.{signal}.send(sender=None); assert not {{'healthboard.urls', 'ninja'}} & {{*sys.modules}}"
BEAT = "assert not [name for name in sys.modules if name.startswith(('workers.', 'boto3', 'healthboard.urls'))]"


@pytest.mark.parametrize(
    "start",
    ["import healthboard.wsgi", WORKER.format(signal="worker_process_init"), WORKER.format(signal="worker_ready")],
)
def test_it_is_kept(start):
    subprocess.run(
        [sys.executable, "-c", f"{start}\n{FROZEN.format(least=100_000)}"],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "healthboard.settings"}, check=True, timeout=60,
    )  # fmt: skip


def test_beat_loads_no_task():
    """It names them by its table alone."""
    subprocess.run(
        [sys.executable, "-c", LOADED + BEAT], check=True, timeout=60,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "healthboard.settings", "HEALTHBOARD_PROCESS": "beat"},
    )  # fmt: skip
