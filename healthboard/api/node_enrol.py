"""How a machine gets the credential that its reports carry, and a new one in time."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, JsonResponse
from ninja import Router

from healthboard import clock
from healthboard.api.node_door import NodeToken, Refused, body_of, documented, parsed, row_of
from healthboard.api.node_schema import Challenge, Credential, Error, IdentityIn, Nothing
from healthboard.people import enrolment
from healthboard.people.identity import Proof

router = Router(tags=["node"])
REFUSED = frozenset({400, 401, 403, 404, 409, 413, 415, 422, 429, 503})


@router.post(
    "/node/enrol/challenge",
    auth=None,
    response={200: Challenge, frozenset({400, 413, 415, 422}): Error},
    openapi_extra=documented(Nothing),
    summary="A nonce for a machine that is about to show who it is",
)
def challenge(request: HttpRequest) -> JsonResponse:
    try:
        parsed(Nothing, body_of(request))
        left = enrolment.NONCE_LIVES.total_seconds()
        return JsonResponse({"nonce": enrolment.challenge(), "expires_in_s": left})
    except Refused as refused:
        return refused.response()


@router.post(
    "/node/enrol/identity",
    auth=None,
    response={200: Credential, REFUSED - {401, 429}: Error},
    openapi_extra=documented(IdentityIn),
    summary="A token for the machine that signed this proof, on its first use",
)
def identity(request: HttpRequest) -> JsonResponse:
    try:
        told = parsed(IdentityIn, body_of(request))
        proof = Proof(told.region, told.nonce, told.authorization, told.date, told.security_token)
        return _answer(*enrolment.enrol(told.instance_id, proof))
    except enrolment.NotEnrolled as no:
        return _refused(no)
    except Refused as refused:
        return refused.response()


@router.post(
    "/node/renew",
    auth=NodeToken(),
    response={200: Credential, REFUSED - {403, 404, 503}: Error},
    openapi_extra=documented(Nothing),
    summary="A new token for a node that enrolled; the one before it ends soon after",
)
def renew(request: HttpRequest) -> JsonResponse:
    try:
        body = body_of(request)
        row = row_of(request)
        parsed(Nothing, body)
        return _answer(*enrolment.renew(row, now=clock.now()))
    except enrolment.NotEnrolled as no:
        return _refused(no)
    except Refused as refused:
        return refused.response()


def _answer(token: str, lives: timedelta) -> JsonResponse:
    return JsonResponse({"token": token, "expires_in_s": lives.total_seconds()})


def _refused(no: enrolment.NotEnrolled) -> JsonResponse:
    return Refused(no.status, no.reason, str(no), instance=no.instance).response()
