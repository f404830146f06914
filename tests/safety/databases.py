"""Databases of a site: an empty one, one per begun flow, and a trial's, copied from that."""

from __future__ import annotations

import psycopg
from django.core.management import call_command
from django.db import connection, connections

BASE, TRIAL = "base", "trial"


def use(name: str) -> None:
    """Every connection that this process opens from now on is to the database `name`."""
    connections.close_all()
    connections.settings["default"]["NAME"] = name
    connection.settings_dict["NAME"] = name


def admin() -> psycopg.Connection:
    """A session of the server's owner, outside of every trial's database."""
    settings = connections.settings["default"]
    where = {"host": settings["HOST"], "port": settings["PORT"], "user": settings["USER"], "dbname": "postgres"}
    return psycopg.connect(**where, autocommit=True)


def copy(source: str, target: str) -> None:
    """`target` anew, as a copy of `source`, which nobody may be connected to."""
    with admin() as server:
        server.execute(f'DROP DATABASE IF EXISTS "{target}" WITH (FORCE)')
        server.execute(f'CREATE DATABASE "{target}" TEMPLATE "{source}" STRATEGY FILE_COPY')


def migrate() -> None:
    """Make the empty database. Run it in a process that ends afterwards."""
    copy("template1", BASE)
    use(BASE)
    call_command("migrate", verbosity=0)
    connections.close_all()


def slugged(name: str) -> str:
    """A flow's name as that of a database or folder."""
    return name.lower().replace("/", "_").replace("-", "_")
