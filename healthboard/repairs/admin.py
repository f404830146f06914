"""Pauses are set and ended here; repairs, their steps and calls, breakers and occupancy are only seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from healthboard import clock
from healthboard.people import access
from healthboard.people.granted import Granted, ReadOnly, acting
from healthboard.repairs import brakes, queries
from healthboard.repairs.models import Breaker, Call, Occupancy, Pause, Repair, Step


def _seen(request: HttpRequest, rows: Callable[..., QuerySet]) -> QuerySet:
    """What the pages show this person of them."""
    return rows(access.seeing(request.user)).values("pk")


class PauseForm(forms.ModelForm):
    # one field with one label, where Django's own has two without
    until = forms.DateTimeField(
        help_text="UTC. A pause always has an end.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )

    class Meta:
        help_texts = {
            "account": "Nothing: all accounts.",
            "region": "Nothing: all regions.",
            "scope_kind": "What is left alone until then. Repairs under way stop before their next step.",
        }

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        kind, scope, until = data.get("scope_kind"), data.get("scope", ""), data.get("until")
        if kind == "fleet" and scope:
            self.add_error("scope", "The whole fleet has no name; leave this empty.")
        if kind and kind != "fleet" and not scope:
            self.add_error("scope", f"Name the {kind} to pause.")
        if until and until <= clock.now():
            self.add_error("until", "A pause must end in the future.")
        place = {"account": data.get("account"), "region": data.get("region", "")}
        if reason := access.why_not(self.request_user, "pause", **place):
            raise forms.ValidationError(reason)
        return data


@admin.register(Pause)
class PauseAdmin(Granted):
    verb = "pause"
    form = PauseForm
    list_display = ("scope_kind", "scope", "account", "region", "reason", "set_by", "until", "ended_at", "ended_by")
    list_select_related = ("account",)
    list_filter = ("scope_kind", "region")
    fields = ("scope_kind", "scope", "account", "region", "reason", "until")
    ordering = ("-set_at",)
    actions = ("end",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type("PauseForm", (form,), {"request_user": request.user})

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(pk__in=_seen(request, queries.pauses))

    def save_model(self, request: HttpRequest, obj: Pause, form: Any, change: bool) -> None:
        row = brakes.pause(
            actor=acting(request), scope_kind=obj.scope_kind, scope=obj.scope, reason=obj.reason, until=obj.until,
            account=obj.account, region=obj.region,
        )  # fmt: skip
        obj.pk = row.pk

    @admin.action(description="End the selected pauses now", permissions=["add"])
    def end(self, request: HttpRequest, queryset: Any) -> None:
        for pause in queryset:
            brakes.end_pause(pause.pk, acting(request))
        self.message_user(request, "Ended.")


@admin.register(Repair)
class RepairAdmin(ReadOnly):
    scope = "instance__"
    list_display = ("id", "instance", "action", "state", "step", "automatic", "requested_by", "opened_at", "outcome")
    list_select_related = ("instance",)
    list_filter = ("state", "action", "automatic", "owner")
    search_fields = ("instance__instance_id",)
    ordering = ("-opened_at",)


@admin.register(Step)
class StepAdmin(ReadOnly):
    scope = "repair__instance__"
    list_display = ("repair", "number", "name", "state", "note", "started_at", "ended_at")
    list_select_related = ("repair__instance",)
    ordering = ("-started_at",)


@admin.register(Call)
class CallAdmin(ReadOnly):
    scope = "repair__instance__"
    list_display = ("intended_at", "operation", "target", "outcome", "answered_at", "repair")
    list_select_related = ("repair__instance",)
    list_filter = ("operation",)
    search_fields = ("target",)
    ordering = ("-intended_at",)


@admin.register(Occupancy)
class OccupancyAdmin(ReadOnly):
    scope = "repair__instance__"
    list_display = ("pool", "repair", "units", "taken_at", "released_at", "size", "allowed", "out_before")
    list_select_related = ("pool", "repair__instance")
    ordering = ("-taken_at",)


@admin.register(Breaker)
class BreakerAdmin(ReadOnly):
    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(pk__in=_seen(request, queries.breakers))

    list_display = ("kind", "scope_kind", "scope", "account", "region", "opened_at", "released_at", "released_by")
    list_select_related = ("account",)
    list_filter = ("kind", "scope_kind")
    ordering = ("-opened_at",)
