"""Pages are sent compressed, but for those that may hold a secret beside what a stranger can put into them.

Django's middleware adds a random number of bytes to each answer, which hides the length that the BREACH attack reads;
the CSRF token is masked anew in each answer anyway. See docs/decisions/0047-compression.md.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware

#: passwords, tokens and the secrets of outgoing messages are entered and shown here
SECRET = ("/accounts/", "/admin/")


class Compress(GZipMiddleware):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path.startswith(SECRET):
            return response
        return super().process_response(request, response)
