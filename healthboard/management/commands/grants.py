"""`manage.py grants ROLE`, run as the owner of the tables: what the role of the running processes may do, and no more.

Everything but the audit record is read and written; audit rows and their seals are only read and added to.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection, transaction

from healthboard.audit.guard import ROWS, SEALS

READ_ONLY = ("django_migrations",)


class Command(BaseCommand):
    help = "Give the app's PostgreSQL role what it needs: INSERT and SELECT on the audit record, the usual elsewhere."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="an existing role, not the owner of the tables")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        if connection.vendor != "postgresql":
            raise CommandError("roles are PostgreSQL's; SQLite has the triggers alone", returncode=2)
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                self._check(cursor, role)
                self._grant(cursor, connection.ops.quote_name(role))
        except DatabaseError as error:
            reason = (str(error).strip().splitlines() or ["unknown"])[0]
            raise CommandError(f"nothing was granted: {reason}", returncode=2) from None
        self.stdout.write(f"{role} may add to the audit record and read it, and write everything else")

    def _check(self, cursor: Any, role: str) -> None:
        cursor.execute(
            "SELECT rolsuper, pg_has_role(r.oid, c.relowner, 'MEMBER') FROM pg_roles r, pg_class c "
            "WHERE r.rolname = %s AND c.oid = %s::regclass",
            [role, ROWS],
        )
        found = cursor.fetchone()
        if found is None:
            raise CommandError(f"there is no role {role}: CREATE ROLE it first", returncode=2)
        if any(found):
            raise CommandError(f"{role} is a superuser or owns the tables: it could undo every limit", returncode=2)

    def _grant(self, cursor: Any, role: str) -> None:
        cursor.execute("SELECT quote_ident(current_schema())")
        (schema,) = cursor.fetchone()
        kept = ", ".join((ROWS, SEALS, *READ_ONLY))
        cursor.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        cursor.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
        cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {kept} FROM {role}, PUBLIC")
        cursor.execute(f"REVOKE INSERT ON {', '.join(READ_ONLY)} FROM {role}")
        cursor.execute(f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
