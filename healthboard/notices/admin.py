"""Whom healthboard tells, and where. Every change is on record; what is secret is never shown again."""

from __future__ import annotations

import secrets
import urllib.parse
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join

from healthboard.audit.record import record
from healthboard.notices import outbox, routing
from healthboard.notices.forms import TargetForm
from healthboard.notices.models import Delivery, Notice, QuietHours, Target
from healthboard.notices.quiet import zones
from healthboard.people import access
from healthboard.people.admin import Audited
from healthboard.people.granted import ReadOnly, acting


@admin.register(Target)
class TargetAdmin(Audited):
    noun = "target"
    verb = "policy"  # what it is told leaves the house: an admin of everything, with a fresh log-in
    form = TargetForm
    change_form_template = "admin/notices/target/change_form.html"
    list_display = ("name", "kind", "enabled", "place", "minimum", "last")
    list_filter = ("kind", "enabled")
    search_fields = ("name",)
    readonly_fields = ("place", "secrets_kept", "last_deliveries")
    ordering = ("name",)
    actions = ("test", "again")

    def get_fieldsets(self, request: HttpRequest, obj: Target | None = None) -> Any:
        sets: list[Any] = [
            (None, {"fields": ("name", "kind", "enabled")}),
            ("Where", {"fields": (*(("place",) if obj else ()), "url", "addresses", "people")}),
            ("Secret", {"fields": (*(("secrets_kept",) if obj else ()), "new_secret", "keep_old")}),
            ("What it is told", {"fields": ("kinds", "minimum", "receivers", "pools", "workloads"), "description": (
                "All of it must match. Whoever was told that something began is also told how it went on.")}),
        ]  # fmt: skip
        return [*sets, ("Last deliveries", {"fields": ("last_deliveries",)})] if obj else sets

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_change_permission(request)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what there are filters for: by any other field a list that is asked again and again tells what is secret."""
        return lookup.partition("__")[0] in {*self.list_filter} and super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("people")

    @admin.display(description="goes to")
    def place(self, target: Target) -> str:
        """Never more than scheme and host of an address: the rest of it may be what lets a stranger send there."""
        if target.kind == Target.Kind.EMAIL:
            people = [str(person) for person in target.people.all()]
            return ", ".join([*target.address.split(), *people])
        parts = urllib.parse.urlsplit(target.address or "https://events.pagerduty.com")
        return f"{parts.scheme}://{parts.netloc}/…"

    @admin.display(description="kept")
    def secrets_kept(self, target: Target) -> str:
        kept = [bool(target.secret), bool(target.secret_before)]
        return {0: "none", 1: "one secret", 2: "two secrets: the new one and the old one"}[sum(kept)]

    @admin.display(description="last delivery")
    def last(self, target: Target) -> str:
        row = target.deliveries.order_by("-pk").first()
        return f"{row.get_state_display()}{f': {row.error}' if row.error else ''}" if row else "none yet"

    @admin.display(description="newest first")
    def last_deliveries(self, target: Target) -> str:
        rows = target.deliveries.select_related("notice", "person").order_by("-pk")[:10]
        shown = format_html_join(
            "", "<li>{} UTC: {} – {}{}{}</li>",
            (
                (
                    f"{r.notice.created_at:%Y-%m-%d %H:%M:%S}", r.notice.subject, r.get_state_display(),
                    f" to {r.person or r.to}" if r.person or r.to else "", f". {r.error}" if r.error else "",
                )
                for r in rows
            ),
        )  # fmt: skip
        return format_html("<ul>{}</ul>", shown) if shown else "None yet. Send a test with the button above."

    def save_model(self, request: HttpRequest, obj: Target, form: Any, change: bool) -> None:
        access.require(acting(request), self.verb)
        super().save_model(request, obj, form, change)

    def delete_model(self, request: HttpRequest, obj: Target) -> None:
        access.require(acting(request), self.verb)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for target in queryset:
            self.delete_model(request, target)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """What was on its way to it goes with it."""
        return [str(obj) for obj in objs], {"targets": len(objs)}, set(), []

    def get_urls(self) -> list[Any]:
        own = path("<int:pk>/test/", self.admin_site.admin_view(self.send_test), name="notices_target_test")
        return [own, *super().get_urls()]

    def send_test(self, request: HttpRequest, pk: int) -> HttpResponse:
        if request.method != "POST":
            return HttpResponse(status=405)
        target = Target.objects.filter(pk=pk).first()
        if target is None:
            return HttpResponse(status=404)
        if not self.has_change_permission(request):
            return HttpResponse(status=403)
        return self._refusable(request, self._tested, target)

    def _tested(self, request: HttpRequest, target: Target) -> HttpResponse:
        _test(request, target)
        messages.success(
            request, "A test is on its way, by the same worker as every notice. Reload to see how it went."
        )
        return HttpResponseRedirect(reverse("admin:notices_target_change", args=[target.pk]))

    @admin.action(description="Send a test to the selected targets", permissions=["change"])
    def test(self, request: HttpRequest, queryset: Any) -> None:
        for target in queryset:
            _test(request, target)
        self.message_user(request, "Tests are on their way.")

    @admin.action(description="Send again what was given up in the last day", permissions=["change"])
    def again(self, request: HttpRequest, queryset: Any) -> None:
        actor = acting(request)
        access.require(actor, self.verb)
        for target in queryset:
            count = routing.send_again(target)
            record("target.again", f"target:{target.pk}", f"{count} notices to {target} sent again", actor=actor)
            self.message_user(request, f"{target}: {count} sent again.")


def _test(request: HttpRequest, target: Target) -> None:
    actor = acting(request)
    access.require(actor, TargetAdmin.verb)
    outbox.announce(
        key=f"test-{secrets.token_hex(8)}", kind="test", only=target, to=[target.name], link="/system/#told",
        subject=f"{actor.name} sends a test to {target.name}", body="If you read this, notices arrive here.",
    )  # fmt: skip
    record("target.tested", f"target:{target.pk}", f"test sent to {target.name}", actor=actor)


class QuietForm(forms.ModelForm):
    zone = forms.ChoiceField(choices=[], initial="UTC", help_text="Where this person sleeps.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["zone"].choices = [(zone, zone.replace("_", " ")) for zone in zones()]


@admin.register(QuietHours)
class QuietHoursAdmin(Audited):
    noun = "quiet hours"
    form = QuietForm
    list_display = ("user", "starts", "ends", "zone", "critical_through")
    list_select_related = ("user",)
    search_fields = ("user__username",)


@admin.register(Notice)
class NoticeAdmin(ReadOnly):
    scope = None
    list_display = ("created_at", "kind", "severity", "subject", "pool", "count")
    list_filter = ("kind", "severity")
    search_fields = ("subject",)
    ordering = ("-pk",)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return TargetAdmin.has_change_permission(_TARGETS, request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return TargetAdmin.has_change_permission(_TARGETS, request)


@admin.register(Delivery)
class DeliveryAdmin(NoticeAdmin):
    list_display = ("notice", "target", "to", "person", "state", "attempts", "next_at", "ended_at", "error")
    list_select_related = ("notice", "target", "person")
    list_filter = ("state", "target")
    search_fields = ("notice__subject",)


_TARGETS = TargetAdmin(Target, admin.site)
