"""How a delivery is put into the words of each kind of target. `send` returns nothing, or raises `Failed`."""

from __future__ import annotations

import logging

from healthboard.notices.models import Delivery, Target
from healthboard.notices.senders import email, pagerduty, slack, webhook
from healthboard.notices.senders.failed import Failed, tidy, where

log = logging.getLogger("healthboard.notices")
_BY_KIND = {
    Target.Kind.SLACK: slack.send,
    Target.Kind.PAGERDUTY: pagerduty.send,
    Target.Kind.WEBHOOK: webhook.send,
    Target.Kind.EMAIL: email.send,
}


def send(delivery: Delivery) -> None:
    """Raises Failed with words that hold no secret of the target."""
    try:
        _BY_KIND[Target.Kind(delivery.target.kind)](delivery)
    except Failed as failed:
        failed.why = tidy(failed.why, delivery.target)
        raise
    except Exception as error:
        # whatever it says may hold what must not be kept
        log.error("notice %s was not written or sent: %s", delivery.notice_id, where(error))
        why = f"{type(error).__name__} while it was written or sent"
        raise Failed(why, "see the worker's log", alone=True) from None


__all__ = ["Failed", "send"]
