"""Slack's incoming webhook: a small card with a link. It decides nothing: chat only links.

A message that came by a webhook cannot be edited, so how a matter went on is a message of its own.
"""

from __future__ import annotations

import json
from typing import Any

from healthboard.notices.models import Delivery, Notice
from healthboard.notices.senders import card
from healthboard.notices.senders.failed import deliver

_SIGNS = {"critical": "🔴", "warning": "🟠", "info": "🔵"}
_OVER = {"acknowledge": "🟢", "resolve": "✅"}


def send(delivery: Delivery) -> None:
    body = json.dumps(message(delivery.notice)).encode()
    deliver(delivery.target.address, body, {}, advice="make a new incoming webhook in Slack and enter its address")


def message(notice: Notice) -> dict[str, Any]:
    sign = _OVER.get(notice.event) or _SIGNS.get(notice.severity, "")
    title = f"{sign} {card.headline(notice)}"
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(title, 150)}]
    if notice.body:
        blocks.append({"type": "section", "text": _plain(notice.body, 2000)})
    fields = [{"type": "mrkdwn", "text": f"*{_safe(k)}*\n{_safe(v)}"[:1900]} for k, v in card.facts(notice).items()]
    if fields:
        blocks.append({"type": "section", "fields": fields[:10]})
    last = [_safe(part) for part in (notice.severity, card.where(notice)) if part]
    if address := card.link(notice):
        last.insert(0, f"<{address}|Open in healthboard>")
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(last)}]})
    return {"text": _safe(title)[:1000], "blocks": blocks}


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": text if len(text) <= most else text[: most - 1] + "…", "emoji": False}


def _safe(text: str) -> str:
    """Slack's own escapes: without them a node's text could call everybody (``<!channel>``) or make up a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
