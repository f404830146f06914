"""Every refusal as JSON: ``{"error": a short name, "detail": a sentence, …}`` with its HTTP status."""

from __future__ import annotations

import json
import re
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.serializers.json import DjangoJSONEncoder
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.datastructures import MultiValueDict
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, Throttled, ValidationError
from ninja.parser import Parser
from pydantic import ConfigDict

from healthboard.refusals import Refusal


class Error(Schema):
    """What every refusal looks like; some add more, such as `changes`."""

    model_config = ConfigDict(extra="allow")
    error: str
    detail: str


NAMES = {
    400: "bad_request", 401: "unauthorized", 403: "not_allowed", 404: "not_found", 409: "conflict", 413: "too_large",
    415: "unsupported_media_type", 422: "invalid", 429: "too_many_requests",
}  # fmt: skip


def responses(*codes: int) -> dict[int, Any]:
    """Documented refusals of an operation, beside its answer."""
    return dict.fromkeys(codes, Error)


READ = responses(400, 401, 403, 422, 429)
WRITE = responses(400, 401, 403, 404, 409, 413, 415, 422, 429)


def answer(
    status: int, detail: str, *, error: str = "", headers: dict[str, str] | None = None, **more: Any
) -> HttpResponse:
    body = {"error": error or NAMES.get(status, "error"), "detail": detail, **more}
    text = json.dumps(body, cls=DjangoJSONEncoder)
    return HttpResponse(text, status=status, content_type="application/json", headers=headers)


def install(api: NinjaAPI) -> None:
    @api.exception_handler(Refusal)
    def refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
        details = {k: v for k, v in refusal.details.items() if k not in ("error", "detail", "status", "headers")}
        request.refusal = refusal.message
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(refusal).__name__).lower()
        try:
            json.dumps(details, cls=DjangoJSONEncoder)
        except TypeError:  # rows and the like are for pages
            details = {k: str(v) for k, v in details.items()}
        return answer(refusal.status, refusal.message, error=name, **details)

    @api.exception_handler(ValidationError)
    def invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        lines = []
        for item in error.errors:
            where = ".".join(
                str(part) for part in item.get("loc", ()) if part not in ("body", "query", "path", "payload")
            )
            lines.append(f"{where}: {item.get('msg', 'invalid')}" if where else str(item.get("msg", "invalid")))
        return answer(422, "; ".join(lines) or "The request is invalid.")

    @api.exception_handler(AuthenticationError)
    def unknown(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
        return answer(401, "Send a bearer token, or log in.", headers={"WWW-Authenticate": "Bearer"})

    @api.exception_handler(Throttled)
    def throttled(request: HttpRequest, error: Throttled) -> HttpResponse:
        wait = str(max(1, int(getattr(error, "wait", None) or 1)))
        return answer(429, f"Too many requests; try again in {wait} s.", headers={"Retry-After": wait})

    @api.exception_handler(HttpError)
    def http(request: HttpRequest, error: HttpError) -> HttpResponse:
        cause = error.__cause__
        if isinstance(cause, RequestDataTooBig):
            return too_big(request, cause)
        if isinstance(cause, HttpError):  # ours, which the framework took for bad JSON
            error = cause
        request.refusal = str(error)
        headers = {"WWW-Authenticate": "Bearer"} if error.status_code == 401 else None
        return answer(error.status_code, str(error), headers=headers)

    @api.exception_handler(RequestDataTooBig)
    def too_big(request: HttpRequest, error: Exception) -> HttpResponse:
        return answer(413, "The body is too large.")

    @api.exception_handler(SuspiciousOperation)
    def suspicious(request: HttpRequest, error: Exception) -> HttpResponse:
        return answer(400, "The request cannot be read.")

    @api.exception_handler(Http404)
    def missing(request: HttpRequest, error: Http404) -> HttpResponse:
        return answer(404, str(error) or "There is nothing here.")


class JsonOnly(Parser):
    """Bodies must be declared as JSON; a form posted from elsewhere never is. An empty parameter is one left out."""

    def parse_body(self, request: HttpRequest) -> Any:
        if request.content_type != "application/json":
            raise HttpError(415, "Send the body as application/json.")
        return super().parse_body(request)

    def parse_querydict(self, data: MultiValueDict, list_fields: list[str], request: HttpRequest) -> dict[str, Any]:
        told = super().parse_querydict(data, list_fields, request)
        return {name: value for name, value in told.items() if value != ""}
