"""Log-in, log-out, and the fresh log-in that some decisions want."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate, update_session_auth_hash
from django.contrib.auth import views as django_views
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView

from healthboard.audit.record import record
from healthboard.people import detour, limits, passwords, sessions
from healthboard.people.web import actor_of, recent, stamp

TOO_MANY = (
    "Too many wrong passwords. Wait a quarter of an hour, longer after more of them; or log in with a browser that you "
    "have logged in with before."
)
NO_LOCAL = "Local passwords are switched off here (HEALTHBOARD_LOCAL_LOGIN): log in by the other way."


class Login(django_views.LoginView):
    template_name = "registration/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(
            oidc=settings.OIDC, local=settings.LOCAL_LOGIN, messages=detour.before_log_in(self.request), **kwargs
        )

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        name = request.POST.get("username", "")
        if not settings.LOCAL_LOGIN:
            form = self.get_form_class()(request)
            return self.render_to_response(self.get_context_data(form=form, refused=NO_LOCAL), status=403)
        if limits.limited(name, limits.origin_of(request, name)):
            form = self.get_form_class()(request)  # unbound: the password is not even looked at
            return self.render_to_response(self.get_context_data(form=form, refused=TOO_MANY), status=429)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        name = self.request.POST.get("username", "")
        limits.failed(name, limits.origin_of(self.request, name))
        return super().form_invalid(form)

    @transaction.atomic
    def form_valid(self, form: Any) -> HttpResponse:
        try:
            must = passwords.must_choose(form.get_user())
        except forms.ValidationError as too_old:
            form.add_error(None, too_old)
            return super().form_invalid(form)
        response = super().form_valid(form)
        _welcome(self.request)
        if must:
            self.request.session[passwords.MUST] = True
        limits.remember(self.request, response, self.request.user.get_username())
        return response


class Logout(django_views.LogoutView):
    """What the browser kept of these pages goes as well; its mark stays (see `limits`)."""

    http_method_names = ["post", "options"]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        answer = super().post(request, *args, **kwargs)
        answer["Clear-Site-Data"] = '"cache", "storage"'
        return answer


class PasswordForm(forms.Form):
    password = forms.CharField(
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}), strip=False
    )

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.request = request
        super().__init__(*args, **kwargs)

    def clean_password(self) -> str:
        name = self.request.user.get_username()
        user = authenticate(self.request, username=name, password=self.cleaned_data["password"])
        if user is None or user.pk != self.request.user.pk:
            raise forms.ValidationError("This is not your password.")
        return ""


@method_decorator([sensitive_post_parameters(), never_cache], name="dispatch")
class Again(LoginRequiredMixin, FormView):
    """Ask for the password once more, then return to ``?next=``."""

    template_name = "registration/again.html"
    form_class = PasswordForm

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        local = settings.LOCAL_LOGIN and self.request.user.has_usable_password()
        by_provider = None if local else settings.OIDC
        return super().get_context_data(next=self.next_url(), oidc=by_provider, **kwargs)

    def next_url(self) -> str:
        asked = self.request.POST.get("next") or self.request.GET.get("next") or ""
        hosts, secure = {self.request.get_host()}, self.request.is_secure()
        safe = url_has_allowed_host_and_scheme(asked, allowed_hosts=hosts, require_https=secure)
        return asked if safe else resolve_url(settings.LOGIN_REDIRECT_URL)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        name = request.user.get_username()
        if limits.limited(name, limits.origin_of(request, name)) or not settings.LOCAL_LOGIN:
            why, status = (TOO_MANY, 429) if settings.LOCAL_LOGIN else (NO_LOCAL, 403)
            return self.render_to_response(
                self.get_context_data(form=PasswordForm(request), refused=why), status=status
            )
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        name = self.request.user.get_username()
        limits.failed(name, limits.origin_of(self.request, name))
        return super().form_invalid(form)

    @transaction.atomic
    def form_valid(self, form: Any) -> HttpResponse:
        _welcome(self.request)
        detour.logged_in_anew(self.request)
        return HttpResponseRedirect(self.next_url())


@method_decorator([sensitive_post_parameters(), never_cache], name="dispatch")
class Password(LoginRequiredMixin, FormView):
    """A new password of one's own: every other session of that person ends with it. While they must choose one the page
    stands alone: what leads elsewhere leads back here, and who knows the other password is told nothing of the fleet."""

    template_name = "registration/password.html"
    form_class = passwords.OwnPassword

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "user": self.request.user}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(must=passwords.MUST in self.request.session, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        name = request.user.get_username()
        if limits.limited(name, limits.origin_of(request, name)):
            context = self.get_context_data(form=passwords.OwnPassword(request.user), refused=TOO_MANY)
            return self.render_to_response(context, status=429)
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: Any) -> HttpResponse:
        if "old_password" in form.errors:
            name = self.request.user.get_username()
            limits.failed(name, limits.origin_of(self.request, name))
        return super().form_invalid(form)

    @transaction.atomic
    def form_valid(self, form: Any) -> HttpResponse:
        user = form.save()
        update_session_auth_hash(self.request, user)
        passwords.chosen(user)
        self.request.session.pop(passwords.MUST, None)
        stamp(self.request)
        actor = actor_of(self.request)
        record(
            "user.password",
            f"user:{user.pk}",
            f"{user} changed their password: their other sessions ended",
            actor=actor,
        )
        messages.success(self.request, "Your password is changed. Every other session of yours has ended.")
        return HttpResponseRedirect(reverse("sessions"))


@never_cache
def own_sessions(request: HttpRequest) -> HttpResponse:
    """Where one is logged in. To end a session takes a fresh log-in, so that a stolen one cannot lock its owner out."""
    if not request.user.is_authenticated:
        return detour.log_in_first(request)
    mine = request.session.session_key
    if request.method != "POST":
        rows = sessions.of(request.user, mine)
        return render(request, "registration/sessions.html", {"rows": rows, "own": request.user.has_usable_password()})
    if not recent(request):
        detour.keep(request, reverse("sessions"))
        return redirect_to_login(reverse("sessions"), reverse("again"))
    count = sessions.end(request.user, actor=actor_of(request), name=request.POST.get("name") or None, keep=mine)
    messages.success(request, f"{count} session{'' if count == 1 else 's'} ended.")
    return HttpResponseRedirect(reverse("sessions"), status=303)


def _welcome(request: HttpRequest) -> None:
    sessions.begin(request)
    stamp(request)
    name, address = request.user.get_username(), limits.address_of(request)
    limits.succeeded(name, limits.origin_of(request, name))
    record("login", f"user:{request.user.pk}", f"{name} logged in from {address}", actor=actor_of(request))
