"""Tasks of a worker share one database connection, as requests do; one that broke is left behind before the next task."""

from __future__ import annotations

import os

import psycopg
import pytest
from celery import signals
from celery.fixups.django import DjangoWorkerFixup
from django.conf import settings
from django.db import connection

from healthboard.celery import app

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(os.environ.get("HEALTHBOARD_TEST_DB") == "sqlite", reason="backends are PostgreSQL's"),
]


def backend() -> int:
    with connection.cursor() as cursor:
        return cursor.execute("select pg_backend_pid()").fetchone()[0]


def between_tasks() -> None:
    """What Celery does after a task, and what is done before the next."""
    DjangoWorkerFixup(app).close_database()
    signals.task_prerun.send(sender=app.tasks["workers.repair.sweep"], task_id="1")


def test_the_next_task_has_the_same_connection_unless_it_broke():
    app.loader.import_default_modules()
    connection.close()  # one that grew old meanwhile is left behind as well
    first = backend()
    between_tasks()
    assert backend() == first
    server = settings.DATABASES["default"]
    where = {"host": server["HOST"], "port": server["PORT"], "user": server["USER"], "dbname": "postgres"}
    with psycopg.connect(**where, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [first])
    between_tasks()
    assert backend() != first
