"""What every answer carries, whoever made it: pages, files, errors, the API. The outermost middleware but one.

Nothing that is set further in is changed; see docs/security/asvs.md, V3.4.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse

#: of an answer that is no page: nothing is loaded by it, wherever it is opened
NO_PAGE = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
ALWAYS = {
    "Content-Security-Policy": NO_PAGE,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}
#: of programs: one that begins without TLS has sent its token already, and must learn that it did
PROGRAMS = ("/api/", "/metrics")
#: what a view may be asked by; TRACE and methods that are made up end here
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Headers:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method not in METHODS:
            answer: HttpResponse = HttpResponse(status=405, headers={"Allow": ", ".join(METHODS)})
        elif settings.SECURE_SSL_REDIRECT and request.path.startswith(PROGRAMS) and not request.is_secure():
            detail = "This is answered over https only. A token that was sent without it should be replaced."
            answer = JsonResponse({"error": "https_only", "detail": detail}, status=403)
        else:
            answer = self.get_response(request)
        for name, value in ALWAYS.items():
            answer.setdefault(name, value)
        if answer.status_code >= 400 or not request.path.startswith(settings.STATIC_URL):
            answer.setdefault("Cache-Control", "no-store")
        if settings.SECURE_HSTS_SECONDS and request.is_secure():
            answer.setdefault(
                "Strict-Transport-Security", f"max-age={settings.SECURE_HSTS_SECONDS}; includeSubDomains; preload"
            )
        return answer
