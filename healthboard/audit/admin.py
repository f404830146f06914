"""The record, only seen. The actor's name is text, so it stays when the person is gone."""

from django.apps import apps
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from healthboard.audit import queries
from healthboard.audit.models import AuditRow, Seal
from healthboard.people import access
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

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditRow]:
        """As the page of the record shows it to this person, but for the rows of policies, whose pages are beside this one."""
        cases = access.within(request.user, apps.get_model("cases", "Case")._default_manager.all())
        return queries.within(request.user, super().get_queryset(request), cases)

    @admin.display(description="place in the chain")
    def place(self, row: AuditRow) -> str:
        found = Seal.objects.filter(row=row).first()
        return f"{found.position}: {found.hash}" if found else "not sealed yet"
