"""A log-in on the way: what was sent before it is not carried out after it. People are told so, led back to where the
button is, and find there what they wrote."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from healthboard import clock

#: methods of requests that only read
READS = ("GET", "HEAD")
NOTHING_DONE = "Nothing was done: log in and press it again."
ANEW = "You are logged in anew. Nothing was done yet: send it again."
#: marks the first of them, which is said before the log-in and after it
STOPPED = "stopped"
#: what is filled in again; no other field is kept, since some forms hold passwords
FIELDS = ("reason", "choice", "action", "on")
LONGEST, KEPT_S = 2000, 600
_KEY = "detour"


def log_in_first(request: HttpRequest) -> HttpResponse:
    """To the log-in page, and from there to the page asked for; after what only reads nothing of this kind is said."""
    if request.method in READS:
        return redirect_to_login(request.get_full_path())
    say_stopped(request)
    return redirect_to_login(came_from(request))


def say_stopped(request: HttpRequest) -> None:
    messages.warning(request, NOTHING_DONE, extra_tags=STOPPED)


def came_from(request: HttpRequest) -> str:
    """Path and query of our own page that a form was sent from; the inbox where the browser does not say."""
    told = request.headers.get("Referer", "")
    hosts, secure = {request.get_host()}, request.is_secure()
    if not told or not url_has_allowed_host_and_scheme(told, allowed_hosts=hosts, require_https=secure):
        return reverse("inbox")
    parts = urlsplit(told)
    where = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    return where if url_has_allowed_host_and_scheme(where, allowed_hosts=None) else reverse("inbox")


def before_log_in(request: HttpRequest) -> list[Any]:
    """What is said on the log-in page; that something was not done is kept to be said once more after it."""
    said = list(messages.get_messages(request))
    for one in said:
        if STOPPED in one.tags.split():
            messages.add_message(request, one.level, one.message, extra_tags=STOPPED)
    return said


def log_in_again(request: HttpRequest, where: str) -> HttpResponse:
    """To the fresh log-in, and from there to `where`, which fills in again what was written (`given`)."""
    keep(request, where)
    return HttpResponseRedirect(f"{reverse('again')}?{urlencode({'next': where})}", status=303)


def keep(request: HttpRequest, where: str) -> None:
    """Remember in the session that something was sent, for a short while and one use."""
    if request.method in READS:
        return
    form = request.resolver_match
    request.session[_KEY] = {
        "at": clock.now().isoformat(), "to": where, "form": form.url_name, "pk": form.kwargs.get("pk"),
        **{name: value[:LONGEST] for name in FIELDS if (value := request.POST.get(name))},
    }  # fmt: skip


def kept_of(request: HttpRequest) -> tuple[Any, dict[str, Any]]:
    """Who is logged in, and what of theirs is kept: for `put_back` where a log-in empties the session."""
    return request.user.pk, _kept(request)


def put_back(request: HttpRequest, sent: tuple[Any, dict[str, Any]]) -> None:
    """Nothing where somebody else has logged in."""
    user, kept = sent
    if kept and user == request.user.pk:
        request.session[_KEY] = kept


def logged_in_anew(request: HttpRequest) -> None:
    """Say, after a fresh log-in, that what was sent before it was not done."""
    if _kept(request):
        messages.warning(request, ANEW)


def given(request: HttpRequest) -> dict[str, Any]:
    """What was written into a form that was refused just now, or that led to a fresh log-in: its fields, with `form` and
    `pk` of the address that it was sent to. Empty where there is none."""
    if request.method not in READS:
        form = request.resolver_match
        return {**request.POST.dict(), "form": form.url_name, "pk": form.kwargs.get("pk")}
    kept = _kept(request)
    if not kept or kept["to"] != request.path:
        return {}
    del request.session[_KEY]
    return {**kept, "later": True}


def _kept(request: HttpRequest) -> dict[str, Any]:
    kept = request.session.get(_KEY)
    if kept and 0 <= (clock.now() - datetime.fromisoformat(kept["at"])).total_seconds() <= KEPT_S:
        return kept
    request.session.pop(_KEY, None)
    return {}


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form of another log-in: one in another tab changes the token that every form carries."""
    return render(request, "403_csrf.html", {"back": came_from(request), "said": NOTHING_DONE}, status=403)
