"""Which machines and clusters healthboard itself runs on: nothing is ever done to them (INV9).

The settings name them; besides, each worker asks its host, over IMDSv2 and the ECS agent's task metadata, and leaves the
answer in the database, since the one that collects may run elsewhere. The sandbox asks nobody.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
import socket
import time
import urllib.request
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from healthboard import clock, config
from healthboard.fleet.models import Cluster, Pulse

log = logging.getLogger(__name__)
IMDS = "http://169.254.169.254"
NAME = "runs on "
#: a host is asked, and its answer renewed, so often; it counts for so long after that
EVERY_S, KEPT = 3600.0, timedelta(days=2)
#: one that does not answer is asked again so soon, so often: as a machine starts, its metadata may come later than we do
AGAIN_S, TIMES = 60.0, 10
_TIMEOUT_S = 1.0
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")


class _Here(urllib.request.HTTPRedirectHandler):
    """What answers there is asked for what it says itself, and never leads elsewhere."""

    def redirect_request(self, *_: object) -> None:
        return None


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Here)
HELD_S = 30.0
_next, _in_vain = 0.0, 0


@dataclass(frozen=True, slots=True)
class Own:
    """EC2 ids, and keys of clusters."""

    instances: frozenset[str]
    clusters: frozenset[int]

    def has(self, instance_id: str, cluster_id: int | None) -> bool:
        return instance_id in self.instances or cluster_id in self.clusters


_known: tuple[float, tuple, Own] = (0.0, (), Own(frozenset(), frozenset()))


def own() -> Own:
    """What the settings name and what workers have found; asked of the database at most twice a minute."""
    global _known
    said = frozenset(config.own_instances()), frozenset(config.listed("HEALTHBOARD_SELF_CLUSTER"))
    until, of, found = _known
    if of != said or time.monotonic() > until:
        found = _own(*said)
        _known = time.monotonic() + HELD_S, said, found
    return found


def _own(instances: frozenset[str], clusters: frozenset[str]) -> Own:
    told = list(Pulse.objects.filter(name__startswith=NAME, at__gt=clock.now() - KEPT).values_list("detail", flat=True))
    names = clusters | {one.get("cluster", "") for one in told} - {""}
    rows = Cluster.objects.values_list("pk", "name", "arn") if names else ()
    found = instances | {one.get("instance", "") for one in told} - {""}
    return Own(found, frozenset(pk for pk, *called in rows if names & set(called)))


def remember() -> None:
    """Ask this host, once an hour, and keep the answer. Never raises for a host that does not answer."""
    global _next, _in_vain
    if config.mode() != "aws" or time.monotonic() < _next:
        return
    detail = {"instance": _instance(), "cluster": _cluster()}
    _in_vain = 0 if any(detail.values()) else _in_vain + 1
    _next = time.monotonic() + (AGAIN_S if 0 < _in_vain < TIMES else EVERY_S)
    if any(detail.values()):
        name = (NAME + (detail["instance"] or socket.gethostname()))[:64]
        Pulse.objects.update_or_create(name=name, defaults={"at": clock.now(), "ok": True, "detail": detail})


def _instance() -> str:
    try:
        token = _ask(f"{IMDS}/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        told = _ask(f"{IMDS}/latest/meta-data/instance-id", "GET", {"X-aws-ec2-metadata-token": token})
    except (OSError, ValueError):  # no EC2 instance, or its metadata is closed to us
        return ""
    return told if _INSTANCE.fullmatch(told) else ""


def _cluster() -> str:
    """The cluster of the ECS task that this is, as ARN or name."""
    url = os.environ.get("ECS_CONTAINER_METADATA_URI_V4", "")
    try:
        host = ipaddress.ip_address(urlsplit(url).hostname or "")
        told = json.loads(_ask(f"{url}/task", "GET", {})) if host.is_link_local or host.is_loopback else {}
    except (OSError, ValueError):
        return ""
    found = told.get("Cluster") if isinstance(told, dict) else ""
    return found[:512] if isinstance(found, str) else ""


def _ask(url: str, method: str, headers: dict[str, str]) -> str:
    asked = urllib.request.Request(url, method=method, headers=headers)
    with _direct.open(asked, timeout=_TIMEOUT_S) as answer:
        return answer.read(65536).decode()
