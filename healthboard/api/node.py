"""What nodes post: their reports, and in the sandbox their enrolment.

The instance comes from the credential. Everything that is refused is refused before anything is stored, and says what
to do. `uptime_s` that is null is taken as an unknown boot time, never as zero.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterable

from django.http import HttpRequest, JsonResponse
from ninja import Router

from healthboard import config
from healthboard.api import node_intake
from healthboard.api.node_door import NodeToken, Refused, body_of, documented, node_of, parsed, row_of
from healthboard.api.node_schema import Answer, CondemnedOut, Enrolled, Enrolment, Error, HardwareIn, Report
from healthboard.diagnosis.node_report import BadReport
from healthboard.fleet import condemned
from healthboard.fleet.models import Instance
from healthboard.people import tokens
from healthboard.people.actors import system

log = logging.getLogger(__name__)
router = Router(tags=["node"])


@router.post(
    "/node/reports",
    auth=NodeToken(),
    response={200: Answer, frozenset({400, 401, 403, 413, 415, 422, 429}): Error},
    openapi_extra=documented(Report),
    summary="Take a node's report; the answer may ask for one verb of the closed list",
)
def reports(request: HttpRequest) -> JsonResponse:
    try:
        body = body_of(request)
        credential = row_of(request)
        instance = credential.instance
        if wait := node_intake.rows.empty(instance.pk):
            raise Refused(
                429,
                "too much history",
                f"nearly every reading of this node turns over with each report: the next one is taken in {wait} s. Look "
                "at the machine; what it reports can hardly be so",
                instance=instance,
                Retry_After=str(wait),
            )
        report = parsed(Report, body)
        if report.instance_id not in (None, "", instance.instance_id):
            raise Refused(
                403,
                "another instance",
                f"this token belongs to {instance.instance_id}; a report cannot speak for {report.instance_id}",
                instance=instance,
            )
        try:
            return JsonResponse(node_intake.take(instance, report, asked=credential.asked))
        except node_intake.TooFarAhead as error:
            later = {} if error.wait is None else {"Retry_After": str(error.wait)}
            status = 429 if later else 422
            raise Refused(status, "sent_at is in the future", str(error), instance=instance, **later) from None
        except BadReport as error:
            raise Refused(422, "the report does not follow schema 1", str(error), instance=instance) from None
    except Refused as refused:
        return refused.response()


@router.post(
    "/node/condemned",
    auth=NodeToken(),
    response={200: CondemnedOut, frozenset({400, 401, 403, 413, 415, 422, 429}): Error},
    openapi_extra=documented(HardwareIn),
    summary="Which of this node's GPUs were given back as broken before",
)
def known_bad(request: HttpRequest) -> JsonResponse:
    """For the admission gate. A node learns of the hardware that it names, and of no other."""
    try:
        body = body_of(request)
        instance = node_of(request)
        asked = parsed(HardwareIn, body).gpus
        rows = condemned.among(instance.account_id, _told(g.uuid for g in asked), _told(g.serial for g in asked))
        found = [{"uuid": r.uuid, "serial": r.serial, "why": r.condemned_why} for r in rows]
        return JsonResponse({"condemned": found})
    except Refused as refused:
        return refused.response()


@router.post(
    "/node/enrol",
    auth=None,
    response={200: Enrolled, frozenset({400, 403, 404, 413, 415, 422}): Error},
    openapi_extra=documented(Enrolment),
    summary="Sandbox only: a token for a simulated node",
)
def enrol(request: HttpRequest) -> JsonResponse:
    try:
        if config.mode() != "sandbox":
            raise Refused(404, "not found", "nodes of a real account are given a token by `manage.py node-token`")
        if not _local(request) or not _knows_key(request.headers.get("X-Sandbox-Key", "")):
            raise Refused(403, "not the sandbox", "only the sandbox of this installation may enrol nodes")
        asked = parsed(Enrolment, body_of(request))
        found = Instance.objects.select_related("account").filter(
            account__account_id=asked.account, region=asked.region, instance_id=asked.instance_id, gone_at=None
        )
        instance = found.first()
        if instance is None:
            raise Refused(404, "unknown instance", f"{asked.instance_id} was not collected yet: ask again in a while")
        return JsonResponse({"token": tokens.issue_node(instance, actor=system("sandbox"))})
    except Refused as refused:
        return refused.response()


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
