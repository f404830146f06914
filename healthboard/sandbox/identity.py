"""The instance identity role: the keys that a machine's metadata service gives, and STS's check of what they signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from datetime import UTC, datetime
from typing import Any

from healthboard.sandbox.hardware import digest
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import Sandbox, World

KEY = re.compile(r"ASIANODE(\d{12})X([0-9A-F]{8,17})")
HEADER = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([A-Z0-9]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)
LATE_S = 15 * 60
BASE = "/latest/meta-data/"
TOKEN = "sandbox-imds-token"


def metadata(sandbox: Sandbox, method: str, path: str, headers: Any) -> tuple[int, str]:
    """(status, text) of the metadata service of one machine, at ``/imds/INSTANCE/latest/…``; version 2 only."""
    instance, _, rest = path.removeprefix("/imds/").partition("/")
    found = _machine(sandbox, instance)
    if found is None:
        return 404, ""
    if (method, rest) == ("PUT", "latest/api/token") and headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
        return 200, TOKEN
    if method != "GET" or headers.get("X-aws-ec2-metadata-token") != TOKEN:
        return 401, ""
    what = f"/{rest}".removeprefix(BASE)
    if what == "instance-id":
        return 200, instance
    if what == "placement/region":
        return 200, found.region
    if what == "identity-credentials/ec2/security-credentials/ec2-instance":
        return 200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", **credentials(found, instance)})
    return 404, ""


def credentials(world: World, instance: str) -> dict[str, str]:
    """The keys of a machine's identity role, as the metadata service names them."""
    return {
        "AccessKeyId": f"ASIANODE{world.account}X{instance.removeprefix('i-').upper()}",
        "SecretAccessKey": digest("node-secret", world.account, instance)[:40],
        "Token": digest("node-session", world.account, instance),
    }


def arn_of(sandbox: Sandbox, headers: Any, body: bytes) -> str:
    """The ARN of the machine whose keys signed the request; empty where other keys did. Raises AwsError as STS does."""
    given = headers.get("Authorization") or ""
    if "=ASIANODE" not in given:
        return ""
    found = HEADER.fullmatch(given)
    node = KEY.fullmatch(found.group(1)) if found else None
    if found is None or node is None:
        raise AwsError("IncompleteSignature", "The request signature does not conform to AWS standards.")
    account, instance = node.group(1), "i-" + node.group(2).lower()
    world = _machine(sandbox, instance)
    if world is None or world.account != account:
        raise AwsError("InvalidClientTokenId", "The security token included in the request is invalid.")
    keys = credentials(world, instance)
    if headers.get("X-Amz-Security-Token") != keys["Token"]:
        raise AwsError("InvalidClientTokenId", "The security token included in the request is invalid.")
    _check_time(sandbox, headers.get("X-Amz-Date") or "")
    if not hmac.compare_digest(_signature(found, keys["SecretAccessKey"], headers, body), found.group(6)):
        raise AwsError("SignatureDoesNotMatch", "The request signature we calculated does not match.", 403)
    return f"arn:aws:sts::{account}:assumed-role/aws:ec2-instance/{instance}"


def _machine(sandbox: Sandbox, instance: str) -> World | None:
    with sandbox.lock:
        for world in sandbox.worlds.values():
            row = world.instances.get(instance)
            if row is not None and row.state == "running":
                return world
    return None


def _check_time(sandbox: Sandbox, date: str) -> None:
    try:
        at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise AwsError("IncompleteSignature", "Date must be in ISO-8601 'basic format'.") from None
    if abs(at.timestamp() - sandbox.now()) > LATE_S:
        raise AwsError("SignatureDoesNotMatch", f"Signature expired: {date}", 403)


def _signature(found: re.Match[str], secret: str, headers: Any, body: bytes) -> str:
    _, day, region, service, names, _ = found.groups()
    lines = "".join(f"{name}:{' '.join((headers.get(name) or '').split())}\n" for name in names.split(";"))
    asked = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{day}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{headers.get('X-Amz-Date')}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    key = ("AWS4" + secret).encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()
