"""How the pages look and listen to keys for this browser: two cookies, set by a plain form."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

YEAR = 365 * 86400
CHOICES = {"theme": ("system", "light", "dark"), "keys": ("on", "off")}


@require_POST
def look(request: HttpRequest) -> HttpResponse:
    where = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(where, allowed_hosts={request.get_host()}):
        where = "/"
    answer = HttpResponseRedirect(where, status=303)
    for name, values in CHOICES.items():
        value = request.POST.get(name)
        if value in values:
            answer.set_cookie(
                f"{settings.COOKIE_PREFIX}{name}",
                value,
                max_age=YEAR,
                httponly=True,
                samesite="Lax",
                secure=settings.SESSION_COOKIE_SECURE,
            )
    return answer
