"""Which product, catalogue and schema this is."""

from __future__ import annotations

import platform
import tomllib
from functools import cache

import django
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from healthboard.diagnosis import catalogue


@cache
def product() -> str:
    """The number in pyproject.toml; ``unknown`` where only the code was copied."""
    try:
        return str(tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]["version"])
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return "unknown"


@cache
def _on_disk() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None).disk_migrations)


def schema() -> str:
    """The database's last migration, and whether the code and the database belong together."""
    applied = set(MigrationRecorder(connection).migration_qs.values_list("app", "name"))
    known = {app for app, _ in _on_disk()}
    missing, unknown = _on_disk() - applied, {row for row in applied if row[0] in known} - _on_disk()
    said = f"{len(applied)} migrations"
    if missing:
        return f"{said}; {len(missing)} not applied: run python -m healthboard.processes prepare"
    return f"{said}; newer than this code, which does not know {len(unknown)} of them" if unknown else said


def rows() -> list[tuple[str, str]]:
    return [
        ("healthboard", product()),
        ("Mode", settings.MODE),
        ("Xid catalogue", catalogue.version()),
        ("Schema", schema()),
        ("Database", settings.DATABASES["default"]["ENGINE"].rsplit(".", 1)[-1]),
        ("Django", django.get_version()),
        ("Python", platform.python_version()),
    ]
