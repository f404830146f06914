"""What the project adds to Django as it starts: times out of PostgreSQL are read by the quick way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created


class Healthboard(AppConfig):
    name = "healthboard"

    def ready(self) -> None:
        connection_created.connect(_read_times_quickly, dispatch_uid="times")


def _read_times_quickly(connection: Any, **_: Any) -> None:
    """Django's own reading of a time takes ten times as long, and a page or a pass reads thousands."""
    if connection.vendor == "postgresql" and connection.timezone == UTC:
        connection.connection.adapters.register_loader("timestamptz", _utc_times())


def _utc_times() -> type:
    from django.db.backends.postgresql.psycopg_any import BaseTzLoader  # needs psycopg, which SQLite does without

    class Utc(BaseTzLoader):
        timezone = UTC  # Django compares it with its own

        def load(self, data: Any) -> datetime:
            """In UTC as it nearly always comes; whatever else PostgreSQL may say is left to Django."""
            text = str(data, "ascii")
            if text.endswith("+00"):
                try:
                    return datetime.fromisoformat(text)
                except ValueError:
                    pass
            return super().load(data)

    return Utc
