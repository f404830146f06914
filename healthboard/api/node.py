"""What nodes post: their reports, and in the sandbox their enrolment.

The instance comes from the credential. Everything that is refused is refused before anything is stored, and says what
to do. `uptime_s` that is null is taken as an unknown boot time, never as zero.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, JsonResponse
from ninja import Router
from ninja.security import HttpBearer
from pydantic import BaseModel, ValidationError

from healthboard import config, uploads
from healthboard.api import node_intake
from healthboard.api.node_schema import Answer, CondemnedOut, Enrolled, Enrolment, Error, HardwareIn, Report, inlined
from healthboard.diagnosis.node_report import BadReport
from healthboard.fleet import condemned
from healthboard.fleet.models import Instance
from healthboard.people import tokens
from healthboard.people.actors import system

log = logging.getLogger(__name__)
router = Router(tags=["node"])

SIZE_LIMIT = 1024 * 1024


class Refused(Exception):
    def __init__(self, status: int, error: str, detail: str, **headers: str) -> None:
        super().__init__(error)
        self.status, self.error, self.detail, self.headers = status, error, detail, headers

    def response(self) -> JsonResponse:
        body = {"error": self.error, "detail": self.detail}
        return JsonResponse(body, status=self.status, headers={k.replace("_", "-"): v for k, v in self.headers.items()})


class NodeToken(HttpBearer):
    """Puts the scheme into OpenAPI; the view itself checks the token, so that every refusal looks alike."""

    def __call__(self, request: HttpRequest) -> Any:
        return request.headers.get("Authorization") or "none"

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        return token


def _documented(model: type[BaseModel]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inlined(model)}}}}


@router.post(
    "/node/reports",
    auth=NodeToken(),
    response={200: Answer, frozenset({400, 401, 403, 413, 415, 422, 429}): Error},
    openapi_extra=_documented(Report),
    summary="Take a node's report; the answer may ask for one verb of the closed list",
)
def reports(request: HttpRequest) -> JsonResponse:
    try:
        body = _body(request)
        instance = _node(request)
        report = _parsed(Report, body)
        if report.instance_id not in (None, "", instance.instance_id):
            raise Refused(
                403,
                "another instance",
                f"this token belongs to {instance.instance_id}; a report cannot speak for {report.instance_id}",
            )
        return JsonResponse(node_intake.take(instance, report))
    except node_intake.TooFarAhead as error:
        return Refused(422, "sent_at is in the future", str(error)).response()
    except BadReport as error:
        return Refused(422, "the report does not follow schema 1", str(error)).response()
    except Refused as refused:
        return refused.response()


@router.post(
    "/node/condemned",
    auth=NodeToken(),
    response={200: CondemnedOut, frozenset({400, 401, 403, 413, 415, 422, 429}): Error},
    openapi_extra=_documented(HardwareIn),
    summary="Which of this node's GPUs were given back as broken before",
)
def known_bad(request: HttpRequest) -> JsonResponse:
    """For the admission gate. A node learns of the hardware that it names, and of no other."""
    try:
        body = _body(request)
        instance = _node(request)
        asked = _parsed(HardwareIn, body).gpus
        rows = condemned.among(instance.account_id, _told(g.uuid for g in asked), _told(g.serial for g in asked))
        found = [{"uuid": r.uuid, "serial": r.serial, "why": r.condemned_why} for r in rows]
        return JsonResponse({"condemned": found})
    except Refused as refused:
        return refused.response()


@router.post(
    "/node/enrol",
    auth=None,
    response={200: Enrolled, frozenset({400, 403, 404, 413, 415, 422}): Error},
    openapi_extra=_documented(Enrolment),
    summary="Sandbox only: a token for a simulated node",
)
def enrol(request: HttpRequest) -> JsonResponse:
    try:
        if config.mode() != "sandbox":
            raise Refused(404, "not found", "nodes of a real account are given a token by `manage.py node-token`")
        if not _local(request) or not _knows_key(request.headers.get("X-Sandbox-Key", "")):
            raise Refused(403, "not the sandbox", "only the sandbox of this installation may enrol nodes")
        asked = _parsed(Enrolment, _body(request))
        found = Instance.objects.select_related("account").filter(
            account__account_id=asked.account, region=asked.region, instance_id=asked.instance_id, gone_at=None
        )
        instance = found.first()
        if instance is None:
            raise Refused(404, "unknown instance", f"{asked.instance_id} was not collected yet: ask again in a while")
        return JsonResponse({"token": tokens.issue_node(instance, actor=system("sandbox"))})
    except Refused as refused:
        return refused.response()


def _body(request: HttpRequest) -> bytes:
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


def _node(request: HttpRequest) -> Instance:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    instance = tokens.verify_node(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
    if instance is None:
        raise Refused(
            401,
            "unknown token",
            "send Authorization: Bearer TOKEN, as printed by `manage.py node-token INSTANCE`; it may have been revoked",
            WWW_Authenticate="Bearer",
        )
    wait = node_intake.limited(instance.pk)
    if wait:
        raise Refused(429, "too many reports", f"try again in {wait} s", Retry_After=str(wait))
    return instance


def _parsed(model: type[BaseModel], body: bytes) -> Any:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise Refused(400, "not JSON", f"the body cannot be read: {first['msg']}") from None
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise Refused(422, "the body does not follow the schema", f"{where}: {first['msg']}") from None


def _told(values: Iterable[str | None]) -> list[str]:
    """Without what is not told; NUL, which PostgreSQL cannot store, stands in no UUID or serial."""
    return [value for value in values if value and "\0" not in value]


def _local(request: HttpRequest) -> bool:
    if request.headers.get("X-Forwarded-For") or request.headers.get("Forwarded"):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


def _knows_key(told: str) -> bool:
    try:
        key = (config.run_dir() / "enrol.key").read_text().strip()
    except OSError:
        return False
    return bool(key) and hmac.compare_digest(key.encode(), told.encode("utf-8", "replace"))
