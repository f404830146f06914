"""What every page shares: who may see it, the fragment that is polled, and addresses that hold a page's state."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import is_valid_path, reverse
from django.utils.cache import patch_vary_headers
from django.utils.safestring import SafeString, mark_safe

from healthboard.people import access
from healthboard.people.detour import READS, log_in_first
from healthboard.refusals import Refusal

PAGE_SIZE = 100


def page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view for people with any role. Not logged in: to the log-in page, by header where htmx asks, so that a log-in
    form is never swapped into a table. Nothing is kept by the browser or a proxy."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            answer = log_in_first(request)
            if request.headers.get("HX-Request"):
                where = redirect_to_login(request.headers.get("HX-Current-URL", "/")).url
                answer = HttpResponse(status=401, headers={"HX-Redirect": where})
            return _kept_by_nobody(answer)
        if request.method in READS:
            access.read_once(request.user)
        if why := access.why_not(request.user, "view"):
            raise PermissionDenied(why)
        try:
            answer = view(request, *args, **kwargs)
        except Refusal as refusal:
            answer = refused(request, refusal)
        if answer.status_code == 405:
            answer = _only_sent_to(request, answer)
        return _kept_by_nobody(answer)

    return guarded


def _kept_by_nobody(answer: HttpResponse) -> HttpResponse:
    answer["Cache-Control"] = "no-store"
    patch_vary_headers(answer, ["HX-Request", "Cookie"])
    return answer


def _only_sent_to(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """To whom opens an address that only takes what a form sends, which browsers do after a log-in or a reload."""
    said = Refusal("this address only takes what a button sends. Go to the page that has it, and press it there.")
    page = render(request, "refused.html", {"refusal": said, "back": _above(request.path)}, status=405)
    page["Allow"] = answer.get("Allow", "POST")
    return page


def _above(path: str) -> str:
    """The nearest address above one that is a page's."""
    parts = path.strip("/").split("/")
    for length in range(len(parts) - 1, 0, -1):
        above = f"/{'/'.join(parts[:length])}/"
        if is_valid_path(above):
            return above
    return reverse("inbox")


def refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """The refusal as a page of its own, with its status."""
    request.refusal = refusal.message
    return render(request, "refused.html", {"refusal": refusal}, status=refusal.status)


def explained(
    request: HttpRequest, template: str, context: dict[str, Any], refusal: Refusal, address: str
) -> HttpResponse:
    """A live page under what stood against a click. It stays as it is until it is opened anew at `address`: the form's
    own address shows something else, or nothing."""
    request.refusal = refusal.message
    shown = {**context, "shown": "", "refusal": refusal, "anew": address}
    return render(request, template, shown, status=refusal.status)


def version(*parts: Any) -> str:
    """A short name for what a page shows, out of cheap values (counts, newest times) that change when it does."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


def live(
    request: HttpRequest, template: str, shown: Any, build: Callable[[], dict[str, Any]], *, framed: bool = True
) -> HttpResponse:
    """The page; to htmx its `live` fragment; 204 to a poll that already shows `shown`. `build` runs only if needed.
    `framed`: the page has the frame with navigation and banners, which is renewed along with it."""
    shown = version(shown, request.frame_version())
    if not request.headers.get("HX-Request"):
        return render(request, template, {**build(), "shown": shown})
    if request.headers.get("X-Shown") == shown:
        return HttpResponse(status=204)
    context = {**build(), "shown": shown, "fragment": True}
    answer = render(request, f"{template}#live", context)
    if framed:
        answer.content += render(request, "_frame.html", {"fragment": True}).content
    if request.headers.get("HX-Trigger") == "filters":
        answer["HX-Push-Url"] = f"{request.path}{query(request)}"
    return answer


def query(request: HttpRequest, drop: tuple[str, ...] = (), **change: Any) -> str:
    """The query string of this page with some values changed (None removes), empty values and paging left out."""
    params = request.GET.copy()
    for key in ("after", *drop):
        params.pop(key, None)
    for key, value in change.items():
        params.pop(key, None)
        if value not in (None, ""):
            params[key] = str(value)
    for key in [key for key, values in params.lists() if not any(values)]:
        params.pop(key)
    return f"?{params.urlencode()}" if params else "?"


def link(name: str, pk: int) -> SafeString:
    """The address of a page about one row, such as ``link("instance", 5)``: `reverse` takes thirty times as long, and a
    list has hundreds of them."""
    before, behind = around(name)
    return mark_safe(f"{before}{int(pk)}{behind}")


@functools.cache
def around(name: str) -> tuple[str, str]:
    """What stands before and behind the number in the addresses of a name."""
    before, _, behind = reverse(name, args=[0]).rpartition("0")
    return before, behind


def pack(key: list[Any]) -> str:
    """A keyset cursor as one opaque word for the address."""
    return base64.urlsafe_b64encode(json.dumps(key, default=str).encode()).decode().rstrip("=")


def unpack(word: str, length: int) -> list[Any] | None:
    """The cursor's values, or None for an absent or damaged one (the first page is shown then)."""
    try:
        key = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
    except (ValueError, RecursionError):  # the latter: brackets in brackets
        return None
    fits = isinstance(key, list) and len(key) == length and all(map(_storable, key))
    return key if fits else None


def _storable(value: Any) -> bool:
    """Whether a database would take it: a plain value, and no text that PostgreSQL refuses."""
    if not isinstance(value, str):
        return value is None or isinstance(value, (int, float))
    return "\0" not in value and value == value.encode("utf-8", "replace").decode()
