"""Triggers that keep audit rows and seals as they were written, whoever asks: the ORM, a shell, or SQL by hand.

The one change that they let pass is the purge of a payload to null, by the owner of the table; the payload's hash
stays, so the chain still verifies. `missing()` tells `verify_audit` when a trigger was dropped or switched off.
"""

from __future__ import annotations

from typing import Any

ROWS, SEALS = "audit_auditrow", "audit_seal"

_POSTGRESQL = f"""
CREATE OR REPLACE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = '{ROWS}' THEN
        IF NEW.payload IS NULL AND to_jsonb(NEW) - 'payload' = to_jsonb(OLD) - 'payload'
            AND pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'audit rows are never changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE OR REPLACE TRIGGER audit_rows_stay BEFORE UPDATE OR DELETE ON {ROWS}
    FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE OR REPLACE TRIGGER audit_rows_whole BEFORE TRUNCATE ON {ROWS}
    FOR EACH STATEMENT EXECUTE FUNCTION audit_stays();
CREATE OR REPLACE TRIGGER audit_seals_stay BEFORE UPDATE OR DELETE ON {SEALS}
    FOR EACH ROW EXECUTE FUNCTION audit_stays();
CREATE OR REPLACE TRIGGER audit_seals_whole BEFORE TRUNCATE ON {SEALS}
    FOR EACH STATEMENT EXECUTE FUNCTION audit_stays();
"""
#: columns of a row that are never changed; the payload may become null
_COLUMNS = (
    "id", "at", "user_id", "actor", "via", "verb", "subject", "account", "region", "instance", "case_id", "repair_id",
    "summary", "payload_hash", "request_id",
)  # fmt: skip
_NO = "SELECT RAISE(ABORT, 'audit rows are never changed or deleted');"
_SQLITE = {
    "audit_rows_stay": f"BEFORE UPDATE ON {ROWS} WHEN NEW.payload IS NOT NULL OR "
    + " OR ".join(f"NEW.{name} IS NOT OLD.{name}" for name in _COLUMNS),
    "audit_rows_whole": f"BEFORE DELETE ON {ROWS}",
    # INSERT OR REPLACE deletes without asking a DELETE trigger
    "audit_rows_new": f"BEFORE INSERT ON {ROWS} WHEN EXISTS (SELECT 1 FROM {ROWS} WHERE id = NEW.id)",
    "audit_seals_stay": f"BEFORE UPDATE ON {SEALS}",
    "audit_seals_whole": f"BEFORE DELETE ON {SEALS}",
    "audit_seals_new": f"BEFORE INSERT ON {SEALS} WHEN EXISTS "
    f"(SELECT 1 FROM {SEALS} WHERE position = NEW.position OR row_id = NEW.row_id OR hash = NEW.hash)",
}
_NAMES = {
    "postgresql": {"audit_rows_stay", "audit_rows_whole", "audit_seals_stay", "audit_seals_whole"},
    "sqlite": set(_SQLITE),
}


def install(connection: Any) -> None:
    """Make the triggers, anew where they exist. A migration that rebuilds one of the tables on SQLite calls it again."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_POSTGRESQL)
            return
        for name, when in _SQLITE.items():
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}")
            cursor.execute(f"CREATE TRIGGER {name} {when} BEGIN {_NO} END")


def remove(connection: Any) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DROP FUNCTION IF EXISTS audit_stays() CASCADE")
            return
        for name in _SQLITE:
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}")


def missing(connection: Any) -> list[str]:
    """Names of triggers that are not there, or are switched off."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT tgname FROM pg_trigger WHERE tgrelid IN (%s::regclass, %s::regclass) AND tgenabled <> 'D'",
                [ROWS, SEALS],
            )
        else:
            cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        return sorted(_NAMES[connection.vendor] - {name for (name,) in cursor.fetchall()})
