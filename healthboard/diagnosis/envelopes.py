"""One message of the event queue to what it says, or the reason why it is not used. Whoever may send is not believed.

An envelope that is used names its account, region, time and at least one thing of ours to look at; what AWS Health
says of a whole place needs no more than the place. What it says about
a state is a hint; only its announcements (`events`) are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from healthboard.diagnosis import aws_events, comms, ecs
from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.signals import Event

CONTAINER, HEALTH, TASK = (
    "ECS Container Instance State Change",
    "ECS Container Instance Health Change",
    "ECS Task State Change",
)
EC2_STATE = "EC2 Instance State-change Notification"
ANNOUNCED = "AWS Health Event"
#: detail-type -> who alone sends it; `aws.` sources are closed to everybody else on the bus
KINDS = {
    CONTAINER: "aws.ecs",
    HEALTH: "aws.ecs",
    TASK: "aws.ecs",
    EC2_STATE: "aws.ec2",
    "EC2 Spot Instance Interruption Warning": "aws.ec2",
    "EC2 Instance Rebalance Recommendation": "aws.ec2",
    "Capacity Block Reservation Expiration Warning": "aws.ec2",
    "Capacity Block Expiration Warning": "aws.ec2",
    ANNOUNCED: "aws.health",
}
#: SQS takes no more than this, in characters of a body
MOST = 262_144
#: SQS keeps no message for longer
OLDEST = timedelta(days=14)
#: clocks differ by less
AHEAD = timedelta(minutes=5)
_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
_BLOCK = re.compile(r"cr-[0-9a-f]{8,17}")
_CONTAINER = re.compile(r"arn:aws[a-z-]*:ecs:([a-z0-9-]+):(\d{12}):container-instance/[\w/-]{1,300}", re.ASCII)


class Unusable(Exception):
    """The message is of no use; `str()` is the short reason under which it is counted."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """`instances`: EC2 ids; `container`: ARN of a container instance; `block`: a Capacity Block's reservation.

    `state`: the EC2 state, or the last status of a task. `version`: of the container instance, growing.
    """

    id: str
    kind: str
    at: datetime
    instances: tuple[str, ...] = ()
    container: str = ""
    block: str = ""
    version: int | None = None
    status: str = ""
    connected: bool | None = None
    state: str = ""
    events: tuple[Event, ...] = ()

    @property
    def of_place(self) -> bool:
        """AWS Health speaks of the account, the region or a zone, and of no instance."""
        return self.kind == ANNOUNCED and not self.instances

    @property
    def order(self) -> tuple[datetime, int, str]:
        return self.at, self.version or 0, self.id


def read(body: Any, *, account: str, region: str, now: datetime) -> Envelope:
    """Raises Unusable, and nothing else, whatever the body is."""
    document = _document(body)
    kind, detail = document.get("detail-type"), document.get("detail")
    name = document.get("id")
    if not isinstance(kind, str) or not isinstance(detail, Mapping):
        raise Unusable("not an event")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise Unusable("not an event")
    if document.get("account") != account or document.get("region") != region:
        raise Unusable("another account or region")
    if KINDS.get(kind) != document.get("source"):
        raise Unusable("unexpected kind")
    at = _time(document, detail, kind, now)
    found = _announced(document, kind)
    made = Envelope(
        id=name,
        kind=kind,
        at=at,
        instances=_instances(detail, found),
        container=_container(detail, account, region),
        block=_matching(_BLOCK, detail.get("capacity-reservation-id")),
        version=_version(detail.get("version")),
        status=_word(detail.get("status")),
        connected=detail["agentConnected"] if isinstance(detail.get("agentConnected"), bool) else None,
        state=_word(detail.get("lastStatus") if kind == TASK else detail.get("state")),
        events=tuple(_named(event, name) for event in found),
    )
    if not (made.instances or made.container or made.block or kind == ANNOUNCED):
        raise Unusable("names no instance")
    return made


def _announced(document: Mapping[str, Any], kind: str) -> list[Event]:
    if kind == TASK:
        return comms.read_task(document)
    return (ecs.read_event(document) if kind == HEALTH else aws_events.read(document))[0]


def _document(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, str) or len(body) > MOST:
        raise Unusable("too large" if isinstance(body, str) else "not an event")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Unusable("not JSON") from None
    if not isinstance(document, Mapping):
        raise Unusable("not an event")
    return document


def _time(document: Mapping[str, Any], detail: Mapping[str, Any], kind: str, now: datetime) -> datetime:
    sent = parse_time(document.get("time"))
    if sent is None:
        raise Unusable("no time")
    at = (parse_time(detail.get("updatedAt")) if kind in (CONTAINER, TASK) else None) or sent
    if max(at, sent) - now > AHEAD:
        raise Unusable("from the future")
    if now - min(at, sent) > OLDEST:
        raise Unusable("too old")
    return at


def _instances(detail: Mapping[str, Any], found: list[Event]) -> tuple[str, ...]:
    named = [detail.get("ec2InstanceId"), detail.get("instance-id"), *(event.instance for event in found)]
    return tuple(dict.fromkeys(name for name in named if _matching(_INSTANCE, name)))


def _container(detail: Mapping[str, Any], account: str, region: str) -> str:
    arn = detail.get("containerInstanceArn")
    match = _CONTAINER.fullmatch(arn) if isinstance(arn, str) else None
    return arn if match and match.groups() == (region, account) else ""


def _named(event: Event, name: str) -> Event:
    """With a name of its own, under which it is stored once however often it is delivered."""
    return replace(event, attrs={**event.attrs, "id": f"{name}/{event.code}"})


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""


def _version(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else None


def _word(value: Any) -> str:
    return value[:40] if isinstance(value, str) else ""
