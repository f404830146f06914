"""A webhook of your own: JSON, signed so that the receiver knows who sent it and when.

``X-Healthboard-Timestamp``: seconds since 1970. ``X-Healthboard-Signature``: ``v1=`` and the HMAC-SHA256 (hex) over the
timestamp, a full stop and the body, once for each secret that is live, separated by commas. ``X-Healthboard-Delivery``:
the same for a message that comes again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from healthboard import clock
from healthboard.notices.models import Delivery
from healthboard.notices.senders import card
from healthboard.notices.senders.failed import Failed, deliver


def send(delivery: Delivery) -> None:
    target = delivery.target
    secrets = [secret for secret in (target.secret, target.secret_before) if secret]
    if not secrets:
        raise Failed("It has no secret to sign with", "enter one", for_good=True)
    body = json.dumps(message(delivery)).encode()
    at = str(int(clock.now().timestamp()))
    headers = {
        "X-Healthboard-Timestamp": at,
        "X-Healthboard-Signature": signature(secrets, at, body),
        "X-Healthboard-Delivery": str(delivery.pk),
    }
    deliver(target.address, body, headers, advice="look at what the receiver expects, and at its secret")


def signature(secrets: list[str], at: str, body: bytes) -> str:
    said = at.encode() + b"." + body
    return ",".join(f"v1={hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()}" for secret in secrets)


def message(delivery: Delivery) -> dict[str, Any]:
    notice = delivery.notice
    return {
        "delivery": delivery.pk,
        "notice": notice.key,
        "kind": notice.kind,
        "event": notice.event,
        "severity": notice.severity,
        "thread": notice.thread,
        "at": notice.created_at.isoformat(),
        "account": notice.account,
        "region": notice.region,
        "pool": notice.pool,
        "workloads": notice.workloads,
        "subject": notice.subject,
        "body": notice.body,
        "facts": card.facts(notice),
        "count": notice.count,
        "instances": notice.tally,
        "url": card.link(notice),
    }
