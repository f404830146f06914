"""Cases and what they rest on, only seen: they change through `cases.lifecycle` alone."""

from django.contrib import admin

from healthboard.cases.models import Case, Decision, Evidence, WouldHave
from healthboard.people.granted import ReadOnly


@admin.register(Case)
class CaseAdmin(ReadOnly):
    scope = ""
    list_display = ("id", "title", "instance", "state", "resolution", "verdict", "action", "mode", "opened_at")
    list_select_related = ("instance",)
    list_filter = ("state", "resolution", "verdict", "mode")
    search_fields = ("instance__instance_id", "code")
    ordering = ("-opened_at",)


@admin.register(Decision)
class DecisionAdmin(ReadOnly):
    scope = "case__"
    list_display = ("case", "kind", "action", "actor", "via", "at", "outcome")
    list_select_related = ("case",)
    list_filter = ("kind", "via", "outcome")
    fields = (
        "case", "kind", "action", "reason", "actor", "via", "plan_version", "evidence_hash", "policy_version", "at",
        "undone_at", "undone_by", "outcome", "outcome_why", "repair",
    )  # fmt: skip
    ordering = ("-at",)


@admin.register(Evidence)
class EvidenceAdmin(ReadOnly):
    scope = "case__"
    list_display = ("case", "at", "verdict", "hash")
    list_select_related = ("case",)
    ordering = ("-at",)


@admin.register(WouldHave)
class WouldHaveAdmin(ReadOnly):
    scope = "case__"
    list_display = ("case", "at", "code", "action", "mode", "held_by")
    list_select_related = ("case",)
    list_filter = ("held_by", "mode", "action")
    ordering = ("-at",)
