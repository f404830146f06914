"""Bases of the admin pages: what a person may do there follows from grants, never from Django's own permissions."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from healthboard.people import access, detour
from healthboard.people.denied import keep
from healthboard.people.web import actor_of, recent
from healthboard.refusals import Refusal


def acting(request: HttpRequest) -> Any:
    return actor_of(request, via="admin")


def may(request: HttpRequest, verb: str) -> bool:
    """Whether the person may do it somewhere. Each admin page asks that of every kind of row for its menu: where nothing
    is changed, the grants are read once."""
    if request.method in detour.READS and getattr(request.user, "grants_kept", None) is None:
        access.read_once(request.user)
    return access.somewhere(request.user, verb)


class Granted(admin.ModelAdmin):
    """Everything by one verb of `people.access`. A refusal becomes a message, and nothing is saved."""

    verb = "people"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may(request, self.verb)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, self.verb)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request, self.verb)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, self.verb)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, self.verb)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if stale := self._stale(request):
            return stale
        return self._refusable(request, super().changeform_view, *args, **kwargs)

    def _stale(self, request: HttpRequest) -> HttpResponse | None:
        """To a fresh log-in where the verb wants one: before a form is filled in, not after."""
        if self.verb not in access.RECENT or request.method != "GET" or recent(request):
            return None
        return detour.log_in_again(request, request.get_full_path())

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._refusable(request, super().delete_view, *args, **kwargs)

    def response_action(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._refusable(request, super().response_action, queryset)

    def _refusable(self, request: HttpRequest, view: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with transaction.atomic():
                return view(request, *args, **kwargs)
        except Refusal as refusal:
            messages.error(request, refusal.message)
            if not refusal.details.get("again"):
                keep(request, refusal.message)
                return HttpResponseRedirect(request.get_full_path())
            return detour.log_in_again(request, request.get_full_path())


class ReadOnly(admin.ModelAdmin):
    """Rows that are written by the system alone: seen, never edited, by everybody who is let into the admin."""

    show_full_result_count = False
    list_per_page = 100
    actions = None
    #: leads to the row that has account, region and pool; None: not scoped
    scope: str | None = None
    #: from there to the pool's name; empty for rows of a whole place
    pool = "pool__name"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may(request, "view")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, "view")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows if self.scope is None else access.within(request.user, rows, prefix=self.scope, pool=self.pool)
