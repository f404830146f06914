"""The dead man's switch: a sign of life to somebody outside, who rings when it stays away.

It is sent only while the loop really goes round, so that whoever waits for it hears of a loop that stands still, of a
database that takes no writes and of a broken invariant as he hears of a machine that is gone.
"""

from __future__ import annotations

import logging

from healthboard import clock, config
from healthboard.celery import TICKS, every
from healthboard.fleet.models import Pulse
from healthboard.notices import outgoing
from workers import pulse

log = logging.getLogger("healthboard.heartbeat")
#: pulse -> the tick that writes it
NEEDED = {
    "canary": "canary", "decide": "read what is due", "breadth": "see breadth", "repair": "wake due repairs",
    "verify": "carry ends back to cases", "invariants": "check invariants",
}  # fmt: skip
ROUNDS, LEAST_S = 4, 60.0


def trouble() -> str:
    """Why no sign of life is given; empty where all is well."""
    now, pulses = clock.now(), {row.name: row for row in Pulse.objects.all()}
    for name, tick in NEEDED.items():
        row = pulses.get(name)
        age = (now - row.at).total_seconds() if row else None
        if age is None or age > max(every(TICKS[tick][1]) * ROUNDS, LEAST_S):
            return f"{tick}: " + ("never came round" if age is None else f"last came round {age:.0f} s ago")
    if not pulses["invariants"].ok:
        return "an invariant is broken"
    return ""


def send() -> None:
    """One sign of life to `HEALTHBOARD_HEARTBEAT_URL`; what stands in its way is logged, and shown as a late pulse."""
    url = config.read("HEALTHBOARD_HEARTBEAT_URL")
    if not url:
        return
    if why := trouble():
        log.warning("no heartbeat is sent: %s", why)
        return
    try:
        status = outgoing.post(url, b"", {}).status
    except (outgoing.Refused, outgoing.NotDelivered) as error:
        log.warning("the heartbeat did not arrive: %s", error)
        return
    if not 200 <= status < 300:
        log.warning("the heartbeat was answered with %d", status)
        return
    pulse.beat("heartbeat")
