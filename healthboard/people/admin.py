"""People, their roles and tokens. Django's own permissions, groups of permissions and superusers play no part."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from healthboard.audit.record import record
from healthboard.people import access, detour, filters, grants, passwords, sessions, tokens  # noqa: F401  (filters register themselves)
from healthboard.people.granted import Granted, ReadOnly, acting
from healthboard.people.models import ApiToken, Grant, NodeToken, ServiceAccount
from healthboard.people.token_form import TokenForm
from healthboard.people.web import recent
from healthboard.refusals import Closed, Invalid

admin.site.site_header = "healthboard"
admin.site.site_title = "healthboard"
admin.site.index_title = "Policies, people and pauses"


def _login(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """One log-in page only: it limits guesses and stamps the time."""
    return redirect_to_login(request.GET.get("next") or "/admin/")


def _password(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """One page only for a password of one's own: it wants the old one and limits guesses."""
    return HttpResponseRedirect("/accounts/password/")


admin.site.login = _login
admin.site.password_change = _password
admin.site.unregister(User)
admin.site.unregister(Group)
for model in (EmailAddress, SocialApp, SocialToken, SocialAccount):  # who is known by a provider is nobody's to edit
    if admin.site.is_registered(model):
        admin.site.unregister(model)


class Audited(Granted):
    """Each saved or deleted row leaves an audit row in the same transaction."""

    noun = "people"

    def _refusable(self, request: HttpRequest, view: Any, *args: Any, **kwargs: Any) -> Any:
        """What is saved here asks by itself for no fresh log-in."""

        def fresh(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            may = request.method == "POST" and access.somewhere(request.user, self.verb)  # else it is refused anyway
            if may and self.verb in access.RECENT and not recent(request):
                raise access.again(acting(request))
            return view(request, *args, **kwargs)

        return super()._refusable(request, fresh, *args, **kwargs)

    def _note(self, request: HttpRequest, verb: str, obj: Any, text: str, message: Any = None) -> None:
        record(f"{self.noun}.{verb}", f"{self.noun}:{obj.pk}", text, actor=acting(request), payload={"detail": message})

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._note(request, "made", obj, f"{self.noun} {obj} made")
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._note(request, "changed", obj, f"{self.noun} {obj} changed", message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        for obj in queryset:
            self._note(request, "deleted", obj, f"{self.noun} {obj} deleted")
        return super().log_deletions(request, queryset)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return access.why_not(request.user, self.verb) is None

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return access.why_not(request.user, self.verb) is None

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return access.why_not(request.user, self.verb) is None


@admin.register(User)
class PersonAdmin(Audited, UserAdmin):
    noun = "user"
    list_display = ("username", "email", "roles", "is_active", "last_login")
    list_filter = ("is_active", "groups", "grants__role")
    readonly_fields = ("last_login", "date_joined", "roles")
    filter_horizontal = ("groups",)
    actions = ("end_sessions",)
    fieldsets = (
        (None, {"fields": ("username", "password", "is_active")}),
        ("About", {"fields": ("first_name", "last_name", "email")}),
        ("What this person may do", {"fields": ("roles", "groups"), "description": "Roles are given under Grants."}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )

    @admin.display(description="roles")
    def roles(self, user: User) -> str:
        return "; ".join(grants.words(g) for g in user.grants.select_related("account")) or "none"

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        if id.isdecimal() and int(id) == request.user.pk:  # here nobody is asked for the old one
            return _password(request)
        return self._stale(request) or self._refusable(request, self._given, id, form_url)

    def _given(self, request: HttpRequest, id: str, form_url: str) -> HttpResponse:
        """The new password and its audit row."""
        answer = super().user_change_password(request, id, form_url)
        if request.method == "POST" and answer.status_code == 302:
            passwords.given(User.objects.get(pk=id))
        return answer

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        shown, count, _, protected = super().get_deleted_objects(objs, request)
        return shown, count, set(), protected  # grants and tokens go with their person

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if change and not obj.is_active:
            _keep(obj)
        super().save_model(request, obj, form, change)
        if not change and obj.has_usable_password():
            passwords.given(obj)
        if change and not obj.is_active:  # switched on again, an old session must not be good again
            sessions.end(obj, actor=acting(request))

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        _keep(obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for user in queryset:
            self.delete_model(request, user)

    @admin.action(description="End every session of the selected people", permissions=["change"])
    def end_sessions(self, request: HttpRequest, queryset: Any) -> None:
        actor = acting(request)
        access.require(actor, self.verb)
        ended = sum(sessions.end(user, actor=actor, keep=request.session.session_key) for user in queryset)
        self.message_user(request, f"Sessions ended: {ended}. Their tokens stay; revoke these under API tokens.")


def _keep(user: User) -> None:
    if grants.last_admin(user):
        raise Closed(f"{user} is the last admin of everything; make another one first.")


@admin.register(Group)
class GroupAdmin(Audited):
    """Named groups of people that a policy can ask approvals from."""

    noun = "group"
    fields = ("name",)
    search_fields = ("name",)


class GrantForm(forms.ModelForm):
    def clean(self) -> dict[str, Any]:
        data = super().clean()
        place = {"account": data.get("account"), "region": data.get("region", ""), "pool": data.get("pool", "")}
        if reason := access.why_not(self.request_user, "people", **place):
            raise forms.ValidationError(reason)
        return data


@admin.register(Grant)
class GrantAdmin(Granted):
    form = GrantForm
    list_display = ("user", "role", "account", "region", "pool", "source")
    list_filter = ("role", "account", "region")
    search_fields = ("user__username", "pool")
    list_select_related = ("user", "account")
    fieldsets = (
        (None, {"fields": ("user", "role"), "description": (
            "viewer reads. operator decides cases, drains, returns and throws the stop switch. approver does that too, "
            "is the second person where one is asked for, and alone may allow terminate-first. admin does what an "
            "operator does, keeps policies, people and pauses, and releases breakers and the stop switch.")}),
        ("Where", {"fields": ("account", "region", "pool"), "description": "What is left empty means all."}),
    )  # fmt: skip

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type("GrantForm", (form,), {"request_user": request.user})

    def save_model(self, request: HttpRequest, obj: Grant, form: Any, change: bool) -> None:
        grants.give(obj, actor=acting(request))

    def delete_model(self, request: HttpRequest, obj: Grant) -> None:
        grants.take(obj, actor=acting(request))

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for grant in queryset:
            grants.take(grant, actor=acting(request))


class TokenAdmin(ReadOnly):
    actions = ("revoke",)
    ordering = ("-created_at",)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return access.why_not(request.user, "people") is None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return access.why_not(request.user, "people") is None

    @admin.action(description="Revoke the selected tokens")
    def revoke(self, request: HttpRequest, queryset: Any) -> None:
        for row in queryset.filter(revoked_at=None):
            self.take(row, actor=acting(request))
        self.message_user(request, "Revoked. The holders are refused from now on.")


@admin.register(ApiToken)
class ApiTokenAdmin(TokenAdmin):
    verb = "people"
    list_display = ("user", "name", "scope", "account", "region", "pool", "created_at", "created_by", "expires_at",
                    "revoked_at", "used_at")  # fmt: skip
    list_select_related = ("user", "account")
    fields = list_display
    take = staticmethod(tokens.revoke_api)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return access.why_not(request.user, "people") is None

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """A form, and after it the token, once and on a page that nothing keeps."""
        if not self.has_add_permission(request):
            raise PermissionDenied(access.why_not(request.user, "people"))
        if not recent(request):
            return detour.log_in_again(request, request.get_full_path())
        form = TokenForm(request.POST or None)
        context = {**self.admin_site.each_context(request), "title": "New API token", "form": form}
        if form.is_valid():
            try:
                holder, token = form.issue(actor=acting(request))
                context |= {"holder": holder, "token": token}
            except Invalid as refusal:
                form.add_error(None, refusal.message)
        answer = TemplateResponse(request, "admin/people/token.html", context)
        answer["Cache-Control"] = "no-store"
        return answer


@admin.register(ServiceAccount)
class ServiceAccountAdmin(TokenAdmin):
    """Made with their first token; switched off, as every user, under Users."""

    actions = None
    ordering = ("user__username",)
    list_display = ("user", "purpose", "made_at", "made_by")
    list_select_related = ("user",)
    fields = list_display


@admin.register(NodeToken)
class NodeTokenAdmin(TokenAdmin):
    list_display = ("instance", "created_at", "created_by", "expires_at", "revoked_at")
    list_select_related = ("instance",)
    fields = ("instance", "created_at", "created_by", "expires_at", "revoked_at")
    search_fields = ("instance__instance_id",)
    take = staticmethod(tokens.revoke_node)
