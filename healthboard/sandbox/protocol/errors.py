"""AWS's errors, and how each protocol writes them."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

#: Codes whose HTTP status is not 400.
STATUS = {
    "AuthFailure": 401,
    "MissingAuthenticationToken": 403,
    "InvalidClientTokenId": 403,
    "AccessDenied": 403,
    "UnauthorizedOperation": 403,
    "DryRunOperation": 412,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "ServiceUnavailableException": 503,
    "Unavailable": 503,
    "InternalError": 500,
    "InternalFailure": 500,
    "ServerException": 500,
    "InsufficientInstanceCapacity": 500,
}


class AwsError(Exception):
    """An error that the caller sees as ``ClientError`` with this code."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status or STATUS.get(code, 400)


#: the names of shapes that differ from the codes of the time before JSON
SHAPES = {"AWS.SimpleQueueService.NonExistentQueue": "QueueDoesNotExist"}


def query_error(error: AwsError) -> str:
    """The header by which clients of a service that once spoke the query protocol still see its old codes."""
    return f"{error.code};{'Sender' if error.status < 500 else 'Receiver'}"


def render(error: AwsError, protocol: str, request_id: str) -> tuple[int, str, bytes]:
    """(HTTP status, content type, body) of `error` in `protocol` (``ec2``, ``query`` or ``json``)."""
    if protocol == "json":
        body = json.dumps({"__type": SHAPES.get(error.code, error.code), "message": error.message})
        return error.status, "application/x-amz-json-1.1", body.encode()
    code, message = escape(error.code), escape(error.message)
    if protocol == "ec2":
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            f"<RequestID>{request_id}</RequestID></Response>"
        )
    else:
        kind = "Sender" if error.status < 500 else "Receiver"
        text = (
            f"<ErrorResponse><Error><Type>{kind}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
    return error.status, "text/xml;charset=UTF-8", ('<?xml version="1.0" encoding="UTF-8"?>\n' + text).encode()
