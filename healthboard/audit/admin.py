"""The record, only seen. The actor's name is text, so it stays when the person is gone."""

from django.contrib import admin

from healthboard.audit.models import AuditRow, Seal
from healthboard.people.granted import ReadOnly


@admin.register(AuditRow)
class AuditRowAdmin(ReadOnly):
    list_display = ("at", "actor", "via", "verb", "subject", "instance", "summary")
    list_filter = ("via",)
    search_fields = ("actor", "verb", "subject", "instance")
    fields = (
        "at", "actor", "via", "verb", "subject", "account", "region", "instance", "case_id", "repair_id", "summary",
        "payload", "payload_hash", "request_id", "place",
    )  # fmt: skip
    ordering = ("-pk",)

    @admin.display(description="place in the chain")
    def place(self, row: AuditRow) -> str:
        found = Seal.objects.filter(row=row).first()
        return f"{found.position}: {found.hash}" if found else "not sealed yet"
