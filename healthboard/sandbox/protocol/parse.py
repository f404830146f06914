"""Request bodies into the dicts that boto3's caller wrote."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from botocore.model import ListShape, MapShape, Shape, StructureShape

from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.protocol.models import protocol_of, service_model

MAX_BODY = 1 << 20


def parse(service: str, headers: Any, body: bytes) -> tuple[str, dict[str, Any]]:
    """(operation, parameters). Raises AwsError for what AWS itself would refuse to read."""
    if protocol_of(service) == "json":
        operation = (headers.get("X-Amz-Target") or "").rpartition(".")[2]
        shape = _input_shape(service, operation, "UnknownOperationException")
        try:
            raw = json.loads(body or b"{}")
        except ValueError:
            raise AwsError("SerializationException", "the request body is no JSON") from None
        if not isinstance(raw, dict):
            raise AwsError("SerializationException", "the request body is no JSON object")
        params = _from_json(raw, shape) if shape else {}
    else:
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        operation = form.pop("Action", "")
        form.pop("Version", None)
        shape = _input_shape(service, operation, "InvalidAction")
        params = _from_tree(_tree(form), shape, protocol_of(service)) if shape else {}
    _require(service, shape, params)
    return operation, params


def _input_shape(service: str, operation: str, code: str) -> StructureShape | None:
    model = service_model(service)
    if operation not in model.operation_names:
        raise AwsError(code, f"The action {operation or '(none)'} is not valid for this web service.")
    return model.operation_model(operation).input_shape


def _require(service: str, shape: StructureShape | None, params: dict[str, Any]) -> None:
    for name in shape.required_members if shape else ():
        if name not in params:
            if service == "ec2":
                raise AwsError("MissingParameter", f"The request must contain the parameter {name}")
            code = "InvalidParameterException" if service == "ecs" else "ValidationError"
            raise AwsError(code, f"{name} is missing: value must not be null")


def _tree(form: dict[str, str]) -> dict[str, Any]:
    """``A.1.B=x`` -> {"A": {"1": {"B": "x"}}}."""
    root: dict[str, Any] = {}
    for key, value in form.items():
        node = root
        *path, last = key.split(".")
        for part in path:
            following = node.setdefault(part, {})
            if not isinstance(following, dict):
                following = node[part] = {}
            node = following
        node[last] = value
    return root


def _from_tree(node: Any, shape: Shape, protocol: str) -> Any:
    if isinstance(shape, StructureShape):
        out = {}
        for name, member in shape.members.items():
            key = _query_name(member, name, protocol)
            if isinstance(node, dict) and key in node:
                out[name] = _from_tree(node[key], member, protocol)
        return out
    if isinstance(shape, ListShape):
        if protocol == "query" and not shape.serialization.get("flattened") and isinstance(node, dict):
            node = node.get(shape.member.serialization.get("name", "member"), {})
        items = node if isinstance(node, dict) else {}
        return [_from_tree(items[k], shape.member, protocol) for k in sorted(items, key=_order)]
    if isinstance(shape, MapShape):
        entries = (node.get("entry", node) if isinstance(node, dict) else {}).values()
        return {e["key"]: _from_tree(e.get("value"), shape.value, protocol) for e in entries if isinstance(e, dict)}
    return _scalar(node, shape)


def _order(key: str) -> int:
    return int(key) if key.isdigit() else 0


def _query_name(member: Shape, name: str, protocol: str) -> str:
    if protocol == "ec2":
        if "queryName" in member.serialization:
            return member.serialization["queryName"]
        given = member.serialization.get("name", name)
        return given[0].upper() + given[1:] if "name" in member.serialization else name
    return member.serialization.get("name", name)


def _scalar(text: Any, shape: Shape) -> Any:
    kind = shape.type_name
    try:
        if kind in ("integer", "long"):
            return int(text)
        if kind in ("float", "double"):
            return float(text)
        if kind == "boolean":
            return text is True or str(text).lower() == "true"
        if kind == "blob":
            return base64.b64decode(text)
        if kind == "timestamp":
            if isinstance(text, int | float):
                return datetime.fromtimestamp(text, UTC)
            return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except (TypeError, ValueError):
        raise AwsError("InvalidParameterValue", f"cannot read {text!r} as {kind}") from None
    return text if isinstance(text, str) else json.dumps(text)


def _from_json(raw: Any, shape: Shape) -> Any:
    if raw is None:
        return None
    if isinstance(shape, StructureShape):
        if not isinstance(raw, dict):
            raise AwsError("SerializationException", f"{shape.name}: expected an object")
        names = {member.serialization.get("name", name): name for name, member in shape.members.items()}
        return {
            names[k]: _from_json(v, shape.members[names[k]]) for k, v in raw.items() if k in names and v is not None
        }
    if isinstance(shape, ListShape):
        if not isinstance(raw, list):
            raise AwsError("SerializationException", f"{shape.name}: expected a list")
        return [_from_json(item, shape.member) for item in raw]
    if isinstance(shape, MapShape):
        return {k: _from_json(v, shape.value) for k, v in raw.items()}
    return _scalar(raw, shape)
