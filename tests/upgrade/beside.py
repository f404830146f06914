"""What the release before writes while its database is migrated: rows with exactly the columns that it knew."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field

import psycopg
from django.db.migrations.state import ProjectState

#: table -> columns that must differ from row to row, as SQL
DIFFERS = {
    "fleet_instance": {"instance_id": "'i-' || %s"}, "people_nodetoken": {"hash": "%s"},
    "people_apitoken": {"hash": "%s"}, "fleet_healthevent": {"text": "'beside ' || %s"},
    "cases_decision": {"reason": "%s", "repair_id": "NULL"}, "fleet_source": {"scope": "%s"},
}  # fmt: skip


def columns(state: ProjectState) -> dict[str, list[str]]:
    """Table -> its columns but the id, as the models of that state know them."""
    found = {}
    for model in state.apps.get_models():
        fields = model._meta.local_concrete_fields
        found[model._meta.db_table] = [f.column for f in fields if not f.primary_key]
    return found


def another(table: str, names: list[str]) -> str:
    """INSERT of a copy of one of the table's rows; it takes one parameter for each column that must differ."""
    differs = DIFFERS.get(table, {})
    chosen = ", ".join(differs.get(name, f'"{name}"') for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({listed}) SELECT {chosen} FROM {table} ORDER BY id LIMIT 1"


@dataclass
class Writer(threading.Thread):
    """Writes one transaction after the other until `enough` is set; notes how long each took and what failed."""

    url: str
    known: dict[str, list[str]]
    enough: threading.Event
    number: int = 0
    took: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        # as Django's connections, which prepare no statements
        with psycopg.connect(self.url, autocommit=True, prepare_threshold=None) as link:
            while not self.enough.is_set():
                begun = time.monotonic()
                try:
                    with link.transaction():
                        self.write(link)
                except psycopg.Error as error:
                    self.errors.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
                self.took.append(time.monotonic() - begun)
                time.sleep(0.1)

    def write(self, link: psycopg.Connection) -> None:
        raise NotImplementedError


class Reports(Writer):
    """As a node's report that brings something new: instance, reading, event, in one transaction."""

    def write(self, link: psycopg.Connection) -> None:
        instance = "(SELECT id FROM fleet_instance ORDER BY id OFFSET %s LIMIT 1)"
        listed = ", ".join(self.known["fleet_instance"])
        link.execute(f"SELECT {listed} FROM fleet_instance WHERE id = {instance} FOR UPDATE", [self.number])
        link.execute(f"UPDATE fleet_head SET last_at = now() WHERE instance_id = {instance}", [self.number])
        link.execute(another("fleet_healthevent", self.known["fleet_healthevent"]), [secrets.token_hex(8)])
        link.execute(f"UPDATE fleet_instance SET node_seen_at = now() WHERE id = {instance}", [self.number])


class Everything(Writer):
    """New rows of every kind whose table is changed."""

    tables: tuple[str, ...] = ()

    def write(self, link: psycopg.Connection) -> None:
        for table in self.tables:
            differing = [n for n in self.known[table] if "%s" in DIFFERS.get(table, {}).get(n, "")]
            link.execute(another(table, self.known[table]), [secrets.token_hex(8) for _ in differing])


def rows(url: str, table: str) -> int:
    with psycopg.connect(url) as link:
        return link.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
