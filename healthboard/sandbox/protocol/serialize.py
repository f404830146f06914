"""Handlers' dicts into answers, by output shape. Members that a handler leaves out or sets to None are left out."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from botocore.model import ListShape, MapShape, Shape, StructureShape

from healthboard.sandbox.protocol.models import protocol_of, service_model


def render(service: str, operation: str, result: dict[str, Any], request_id: str) -> tuple[int, str, bytes]:
    """(HTTP status, content type, body). Raises KeyError for a member that the model doesn't have: a handler's bug."""
    model = service_model(service)
    shape = model.operation_model(operation).output_shape
    if protocol_of(service) == "json":
        body = json.dumps(_to_json(result, shape) if shape else {}, separators=(",", ":"))
        return 200, "application/x-amz-json-1.1", body.encode()
    parts: list[str] = []
    if shape:
        _members(result, shape, parts)
    inner = "".join(parts)
    space = model.metadata.get("xmlNamespace", "")
    if protocol_of(service) == "ec2":
        inner = f"<requestId>{request_id}</requestId>{inner}"
    else:
        wrapper = (shape.serialization.get("resultWrapper") if shape else None) or f"{operation}Result"
        meta = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        inner = f"<{wrapper}>{inner}</{wrapper}>{meta}"
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{space}">{inner}</{operation}Response>'
    return 200, "text/xml;charset=UTF-8", text.encode()


def iso(value: float | datetime) -> str:
    at = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _members(value: dict[str, Any], shape: StructureShape, parts: list[str]) -> None:
    members = shape.members
    for name, item in value.items():
        if item is not None:
            _xml(item, members[name], members[name].serialization.get("name", name), parts)


def _xml(value: Any, shape: Shape, tag: str, parts: list[str]) -> None:
    if isinstance(shape, StructureShape):
        parts.append(f"<{tag}>")
        _members(value, shape, parts)
        parts.append(f"</{tag}>")
    elif isinstance(shape, ListShape):
        if shape.serialization.get("flattened"):
            for item in value:
                _xml(item, shape.member, tag, parts)
            return
        parts.append(f"<{tag}>")
        inner = shape.member.serialization.get("name", "member")
        for item in value:
            _xml(item, shape.member, inner, parts)
        parts.append(f"</{tag}>")
    elif isinstance(shape, MapShape):
        parts.append(f"<{tag}>")
        for key, item in value.items():
            parts.append(f"<entry><key>{escape(key)}</key>")
            _xml(item, shape.value, "value", parts)
            parts.append("</entry>")
        parts.append(f"</{tag}>")
    else:
        parts.append(f"<{tag}>{escape(_text(value, shape))}</{tag}>")


def _text(value: Any, shape: Shape) -> str:
    if shape.type_name == "timestamp":
        return iso(value)
    if shape.type_name == "boolean":
        return "true" if value else "false"
    if shape.type_name == "blob":
        return base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode()
    return str(value)


def _to_json(value: Any, shape: Shape) -> Any:
    if isinstance(shape, StructureShape):
        members = shape.members
        return {
            members[name].serialization.get("name", name): _to_json(item, members[name])
            for name, item in value.items()
            if item is not None
        }
    if isinstance(shape, ListShape):
        return [_to_json(item, shape.member) for item in value]
    if isinstance(shape, MapShape):
        return {key: _to_json(item, shape.value) for key, item in value.items()}
    if shape.type_name == "timestamp":
        return value.timestamp() if isinstance(value, datetime) else round(value, 3)
    return value
