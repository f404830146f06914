"""Policies as a form that says what it will do; versions as a history that nobody can edit."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join

from healthboard.digits import number
from healthboard.people import access
from healthboard.people.granted import Granted, ReadOnly, acting
from healthboard.policies import fields, reach, sentences, versions, words
from healthboard.policies.form_fields import PREFIX
from healthboard.policies.forms import MATCHING, PolicyForm
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.policies.visible import visible
from healthboard.refusals import Refusal

SHOWN_VERSIONS = 20
#: groups that are folded up while a policy sets nothing of them
RARE = ("Confirmation", "Dead hosts and stuck tasks", "Timings")
ABOUT = {"Modes": "What is left empty, here and below, is inherited from the less specific policies."}
if settings.SANDBOX:
    ABOUT["Modes"] += f" In this sandbox, times pass {settings.SPEED:g} times faster, but for undo time and expiry."


@admin.register(Policy)
class PolicyAdmin(Granted):
    verb = "policy"
    form = PolicyForm
    list_display = ("name", "enabled", "whom", "hardware", "ambiguous", "version")
    list_select_related = ("current",)
    list_filter = ("enabled",)
    search_fields = ("name", "workload", "pool", "cluster")
    readonly_fields = ("whom", "what_it_does", "history_of_it")
    ordering = ("-is_default", "name")
    actions = ("copy",)
    save_on_top = False
    change_form_template = "admin/policies/policy/change_form.html"

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(pk__in=visible(access.seeing(request.user)).values("pk"))

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type("PolicyForm", (form,), {"actor": acting(request)})

    def get_fieldsets(self, request: HttpRequest, obj: Policy | None = None) -> Any:
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": ("name", "whom", "what_it_does", "history_of_it")})]
        default = obj is not None and obj.is_default
        head = ("name", "what_it_does") if default else ("name", "enabled", "what_it_does")
        sets: list[Any] = [(None, {"fields": head})]
        if not default:
            sets.append(("Whom it matches", {"fields": MATCHING, "description": (
                "Everything that is filled in must match. The most specific policy wins, setting by setting: a workload "
                "is more specific than tags, then pool, cluster, region and account. An instance that runs several "
                "workloads gets the most careful answer of all of them.")}))  # fmt: skip
        for group in fields.GROUPS:
            members = [s.name for s in fields.SETTINGS if s.group == group]
            closed = group in RARE and not any(name in ((obj.settings if obj else None) or {}) for name in members)
            sets.append((group, {
                "fields": tuple(PREFIX + name for name in members), "description": ABOUT.get(group, ""),
                "classes": ("collapse",) if closed else (),
            }))  # fmt: skip
        sets.append(("Save", {"fields": ("reason",)}))
        if obj is not None:
            sets.append(("History", {"fields": ("history_of_it",)}))
        return sets

    def has_change_permission(self, request: HttpRequest, obj: Policy | None = None) -> bool:
        if obj is None:
            return super().has_change_permission(request)
        place = {"account": obj.account or None, "region": obj.region, "pool": obj.pool}
        return access.why_not(request.user, self.verb, **place) is None

    def has_delete_permission(self, request: HttpRequest, obj: Policy | None = None) -> bool:
        return not (obj is not None and obj.is_default) and self.has_change_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Policy, form: Any, change: bool) -> None:
        before = obj.current_id
        version = versions.save(obj, actor=acting(request), reason=form.cleaned_data["reason"])
        if before == version.pk:
            messages.info(request, "Nothing changed, so there is no new version.")
        else:
            messages.info(request, f"Version {version.number}. " + " ".join(_sentences(obj)))
            if not obj.is_default and not reach.instances(obj):
                messages.warning(request, reach.sentence(obj))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Versions go with an unused policy; a used one is disabled, so nothing is protected from a deletion."""
        return [str(obj) for obj in objs], {"policies": len(objs)}, set(), []

    def delete_model(self, request: HttpRequest, obj: Policy) -> None:
        if not versions.delete(obj, actor=acting(request)):
            messages.warning(request, f"{obj} was disabled, not deleted: decisions rest on it.")

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for policy in queryset:
            self.delete_model(request, policy)

    @admin.action(description="Copy the selected policies", permissions=["add"])
    def copy(self, request: HttpRequest, queryset: Any) -> None:
        for policy in queryset.exclude(is_default=True):
            copied = versions.copy(policy, actor=acting(request))
            messages.success(request, f"{copied} made, switched off until you say whom it matches.")

    # what the pages show

    @admin.display(description="matches")
    def whom(self, policy: Policy) -> str:
        return words.matches(versions.data_of(policy))

    @admin.display(description="clear failures")
    def hardware(self, policy: Policy) -> str:
        return _mode(policy, "mode_hardware")

    @admin.display(description="ambiguous")
    def ambiguous(self, policy: Policy) -> str:
        return _mode(policy, "mode_ambiguous")

    @admin.display(description="version")
    def version(self, policy: Policy) -> str:
        return str(policy.current.number) if policy.current else "none"

    @admin.display(description="What it does")
    def what_it_does(self, policy: Policy) -> str:
        if policy.pk is None:
            return "Press “Say it in words” below to read what it will do, before you save."
        said = [*_sentences(policy), reach.sentence(policy)]
        return format_html_join("", "<p>{}</p>", ((s,) for s in said if s))

    @admin.display(description="Versions")
    def history_of_it(self, policy: Policy) -> str:
        rows = list(policy.versions.order_by("-number")[: SHOWN_VERSIONS + 1])
        out = []
        for newer, older in zip(rows, [*rows[1:], None], strict=True):
            if len(out) == SHOWN_VERSIONS:
                break
            diff = words.changes(older.data if older else {}, newer.data) if older or newer.number == 1 else []
            who = f"Version {newer.number}, {newer.saved_at:%Y-%m-%d %H:%M} UTC, {newer.saved_by_name}: {newer.reason}"
            out.append(format_html("<p><strong>{}</strong></p>{}", who, _list(diff)))
        if len(rows) > SHOWN_VERSIONS:
            every = f"{reverse('admin:policies_policyversion_changelist')}?policy__id__exact={policy.pk}"
            out.append(format_html('<p><a href="{}">All {} versions</a></p>', every, rows[0].number))
        return format_html_join("", "{}", ((o,) for o in out))

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        own = [
            path("words/", view(self.say_in_words), name="policies_policy_words"),
            path("<int:pk>/copy/", view(self.copy_one), name="policies_policy_copy"),
        ]
        return [*own, *super().get_urls()]

    def copy_one(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The saved policy under a new name, switched off; its form is shown next."""
        policy = get_object_or_404(Policy, pk=pk, is_default=False)
        if request.method != "POST" or not self.has_change_permission(request, policy):
            return HttpResponse(status=405 if request.method != "POST" else 403)
        try:
            copied = versions.copy(policy, actor=acting(request))
        except Refusal as refusal:
            messages.error(request, refusal.message)
            return redirect("admin:policies_policy_change", pk)
        messages.success(request, f"{copied} made as a copy, switched off until you say whom it matches.")
        return redirect("admin:policies_policy_change", copied.pk)

    def say_in_words(self, request: HttpRequest) -> HttpResponse:
        """What the form, as filled in and unsaved, would do; or what stands against saving it."""
        if request.method != "POST" or not self.has_module_permission(request):
            return HttpResponse(status=405 if request.method != "POST" else 403)
        pk = number(request.POST.get("_policy", ""))
        policy = Policy.objects.filter(pk=pk).first() if pk is not None else None
        form = self.get_form(request, policy, change=policy is not None)(request.POST, instance=policy)
        form.fields["reason"].required = False
        said = [*_sentences(form.instance), reach.sentence(form.instance)] if form.is_valid() else []
        context = {
            **self.admin_site.each_context(request),
            "title": "What it would do",
            "sentences": said,
            "form": form,
        }
        return TemplateResponse(request, "admin/policies/policy/words.html", context)


def _sentences(policy: Policy) -> list[str]:
    return sentences.sentences(versions.resolved(policy), words.matches(versions.data_of(policy)))


def _mode(policy: Policy, name: str) -> str:
    """What the policy sets, or where it gets it from: the fleet default has nobody to inherit from."""
    return (policy.settings or {}).get(name) or (
        f"{fields.BY_NAME[name].default} (built-in)" if policy.is_default else "inherited"
    )


def _list(diff: list[str]) -> str:
    lines = format_html_join("", "<li>{}</li>", ((line,) for line in diff)) or format_html("<li>{}</li>", "as before")
    return format_html("<ul>{}</ul>", lines)


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnly):
    list_display = ("policy", "number", "saved_at", "saved_by_name", "reason")
    list_select_related = ("policy",)
    ordering = ("-saved_at",)
    fields = ("policy", "number", "saved_at", "saved_by_name", "reason", "changes", "data")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(policy__in=visible(access.seeing(request.user)))

    @admin.display(description="Changed")
    def changes(self, version: PolicyVersion) -> str:
        before = PolicyVersion.objects.filter(policy=version.policy_id, number=version.number - 1).first()
        return _list(words.changes(before.data if before else {}, version.data))
