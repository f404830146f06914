"""The door that nodes come in by: what a body and a credential must be like. Each refusal says what to do, and is counted."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from ninja.security import HttpBearer
from pydantic import BaseModel, ValidationError

from healthboard import uploads
from healthboard.api import node_intake
from healthboard.api.node_schema import inlined
from healthboard.fleet.models import Instance
from healthboard.people import refused as refusals
from healthboard.people import tokens
from healthboard.people.models import NodeToken as Credential

SIZE_LIMIT = 1024 * 1024
#: which reporters are taken: docs/node-reporter.md
SCHEMA = (
    "schema: this server takes reports of schema 1. Install the healthboard_node.py of the server's release on the node; "
    "a server is upgraded before its nodes"
)


class Refused(Exception):
    """`instance` is whom it concerns, where that is proven; what somebody merely claims is counted under nobody."""

    def __init__(
        self, status: int, error: str, detail: str, *, instance: Instance | None = None, **headers: str
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.detail, self.headers = status, error, detail, headers
        self.instance = instance

    def response(self) -> JsonResponse:
        refusals.count(self.error, self.instance.instance_id if self.instance else "")
        body = {"error": self.error, "detail": self.detail}
        return JsonResponse(body, status=self.status, headers={k.replace("_", "-"): v for k, v in self.headers.items()})


class NodeToken(HttpBearer):
    """Puts the scheme into OpenAPI; the view itself checks the token, so that every refusal looks alike."""

    def __call__(self, request: HttpRequest) -> Any:
        return request.headers.get("Authorization") or "none"

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        return token


def documented(model: type[BaseModel]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inlined(model)}}}}


def body_of(request: HttpRequest) -> bytes:
    """The raw body, its size and kind checked first."""
    length = uploads.length(request)
    if length > SIZE_LIMIT:
        uploads.drain(request)
        raise Refused(413, "too large", f"a report has at most {SIZE_LIMIT} bytes, this one has {length}")
    if request.content_type != "application/json":
        raise Refused(415, "not JSON", "send Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Refused(415, "encoded", "send the report without Content-Encoding")
    return request.body


def node_of(request: HttpRequest) -> Instance:
    """The instance that the request's credential stands for. Raises Refused."""
    return row_of(request).instance


def row_of(request: HttpRequest) -> Credential:
    """The live node token of the request, with its instance. Raises Refused."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    row = tokens.of_node(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
    if row is None:
        raise Refused(
            401,
            "unknown token",
            "send Authorization: Bearer TOKEN, from the node's enrolment or as printed by `manage.py node-token "
            "INSTANCE`; it may have expired or been revoked",
            WWW_Authenticate="Bearer",
        )
    wait = node_intake.limited(row.instance_id)
    if wait:
        raise Refused(429, "too many reports", f"try again in {wait} s", instance=row.instance, Retry_After=str(wait))
    return row


def parsed(model: type[BaseModel], body: bytes) -> Any:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise Refused(400, "not JSON", f"the body cannot be read: {first['msg']}") from None
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        if where == "schema":
            raise Refused(422, "the body does not follow the schema", SCHEMA) from None
        raise Refused(422, "the body does not follow the schema", f"{where}: {first['msg']}") from None
