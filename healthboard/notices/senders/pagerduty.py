"""PagerDuty's Events API v2: a matter is an incident; its thread is the dedup key."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings

from healthboard.notices.models import Delivery, Notice
from healthboard.notices.senders import card
from healthboard.notices.senders.failed import deliver

URL = "https://events.pagerduty.com/v2/enqueue"


def send(delivery: Delivery) -> None:
    body = json.dumps(message(delivery.notice, delivery.target.secret)).encode()
    deliver(delivery.target.address or URL, body, {}, advice="enter the routing key of an Events API v2 integration")


def message(notice: Notice, routing_key: str) -> dict[str, Any]:
    thread = notice.thread or f"notice:{notice.pk}"
    # several installations may share a routing key
    key = f"{settings.URL or 'healthboard'} {thread}"[:255]
    found: dict[str, Any] = {"routing_key": routing_key, "event_action": notice.event, "dedup_key": key}
    if notice.event != "trigger":
        return found
    found["payload"] = {
        "summary": card.headline(notice)[:1024],
        "source": notice.facts.get("Machine") or card.where(notice) or "healthboard",
        "severity": notice.severity,
        "timestamp": notice.created_at.isoformat(),
        "group": notice.pool,
        "class": notice.kind,
        "custom_details": {**card.facts(notice), "why": notice.body[:2000]},
    }
    if address := card.link(notice):
        found |= {"links": [{"href": address, "text": "Open in healthboard"}], "client_url": address}
    return {**found, "client": "healthboard"}
