"""T16: somebody who holds one node's credential, and who has listened to others, says all that he can say."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db.models import Sum
from django.test import Client

from healthboard import clock
from healthboard.api import node_intake
from healthboard.cases.models import Case
from healthboard.fleet.models import Gpu, Head, HealthEvent, Instance, Interval
from healthboard.people import refused, tokens
from healthboard.people.actors import system
from healthboard.people.models import NodeRefusal, NodeToken
from healthboard.repairs.models import Repair
from healthboard.sandbox.identity import credentials
from healthboard.sandbox.world import World
from tests.api.node_helpers import iso, report, xid
from tests.repairs.driver import Drive
from tests.safety.conductor import seeded
from tests.safety.rows.alone import driven, result
from tests.safety.site import Site
from workers.node import healthboard_node as node

REQUESTS = 10_000
REPORTS, IDENTITY, RENEW, CONDEMNED = "/reports", "/enrol/identity", "/renew", "/condemned"


class Attacker:
    """His own node's token, the ended tokens and old reports of others, nonces and proofs that were used."""

    def __init__(self, rng: random.Random, rows: list[Instance], world: World) -> None:
        self.rng, self.mine, self.others = rng, rows[0], rows[1:]
        self.keys = credentials(world, self.mine.instance_id)  # his machine's own, which he can read
        self.client = Client(SERVER_NAME="127.0.0.1")
        self.token = tokens.issue_node(self.mine, actor=system("test"))
        self.ended = [tokens.issue_node(row, actor=system("test")) for row in self.others]
        NodeToken.objects.filter(instance__in=self.others).update(revoked_at=clock.now())
        self.heard = [report(n, instance_id=row.instance_id) for n, row in enumerate(self.others, 5)]
        self.said = report(3, boot_id="boot-mine")
        self.nonces = [self._nonce() for _ in range(20)]
        self.asked: Counter[int] = Counter()
        self.kinds: list[Callable[[], int]] = [
            self.guessed, self.ended_token, self.another, self.passed_on, self.again, self.far_ahead, self.no_schema,
            self.enrols, self.shows_himself_for_another, self.renews, self.asks_for_others,
        ]  # fmt: skip

    def one(self) -> int:
        """The status of one more request."""
        status = self.rng.choice(self.kinds)()
        self.asked[status] += 1
        return status

    def post(self, path: str, value: Any, token: str | None) -> int:
        headers = {} if token is None else {"HTTP_AUTHORIZATION": f"Bearer {token}"}
        answer = self.client.post(
            f"/api/v1/node{path}", json.dumps(value), content_type="application/json", **headers
        )  # fmt: skip
        return answer.status_code

    def _nonce(self) -> str:
        answer = self.client.post("/api/v1/node/enrol/challenge", "{}", content_type="application/json")
        return answer.json()["nonce"]

    def _sick(self, **more: Any) -> dict[str, Any]:
        """What would get a machine repaired, were it that machine's."""
        return report(self.rng.randrange(1, 10**6), kernel=[xid(9)], nvml={"state": "hung", "code": 0}, **more)

    def guessed(self) -> int:
        cut = self.token[: self.rng.randrange(len(self.token))]
        token = self.rng.choice(["", "hbn_" + "A" * 43, cut, self.token.upper(), self.token + "A", "hba_" + "x" * 43])
        return self.post(REPORTS, self._sick(), token)

    def ended_token(self) -> int:
        return self.post(self.rng.choice([REPORTS, RENEW]), self._sick(), self.rng.choice(self.ended))

    def another(self) -> int:
        return self.post(REPORTS, self._sick(instance_id=self.rng.choice(self.others).instance_id), self.token)

    def passed_on(self) -> int:
        return self.post(REPORTS, self.rng.choice(self.heard), self.rng.choice([self.token, None, "hbn_x"]))

    def again(self) -> int:
        return self.post(REPORTS, self.said, self.token)

    def far_ahead(self) -> int:
        days = self.rng.choice([1, 30, 3650])
        return self.post(REPORTS, self._sick(sent_at=iso(clock.now() + timedelta(days=days))), self.token)

    def no_schema(self) -> int:
        spoiled = self.rng.choice([[], {}, {"schema": 1}, {**self.said, "seq": -1}, {**self.said, "gpus": [{}]}, "x"])
        return self.post(REPORTS, spoiled, self.token)

    def enrols(self) -> int:
        row = self.rng.choice(self.others)
        nonce = self.rng.choice([*self.nonces, "made.up~x"])
        keys = {
            "AccessKeyId": f"ASIANODE{row.account.account_id}X{row.instance_id[2:].upper()}",
            "SecretAccessKey": "guessed", "Token": "x" * 40,
        }  # fmt: skip
        server = self.rng.choice(["127.0.0.1", "evil.example.com"])
        proof = node.sign_identity(keys, row.region, server, nonce, clock.now().timestamp())
        if self.rng.random() < 0.3:
            proof["authorization"] = proof["authorization"].replace("sts", self.rng.choice(["ec2", "sts\r\nX: y"]))
        return self.post(
            IDENTITY, {"instance_id": row.instance_id, "region": row.region, "nonce": nonce, **proof}, None
        )

    def shows_himself_for_another(self) -> int:
        """A true proof of his own machine, and another's name on it."""
        row = self.rng.choice(self.others)
        nonce = self._nonce()
        proof = node.sign_identity(self.keys, row.region, "127.0.0.1", nonce, clock.now().timestamp())
        return self.post(
            IDENTITY, {"instance_id": row.instance_id, "region": row.region, "nonce": nonce, **proof}, None
        )

    def renews(self) -> int:
        return self.post(RENEW, {}, self.rng.choice([self.token, *self.ended, "hbn_x"]))

    def asks_for_others(self) -> int:
        return self.post(
            CONDEMNED, {"gpus": [{"uuid": "GPU-\0"}] * self.rng.randrange(70)}, self.rng.choice(self.ended)
        )


def _seen(rows: list[Instance]) -> list[Any]:
    """All that is stored of some instances: what nobody else's word may change."""
    ids = [row.pk for row in rows]
    found: list[Any] = [list(Instance.objects.filter(pk__in=ids).order_by("pk").values())]
    for model in (Head, Interval, HealthEvent, Gpu):
        found.append(list(model.objects.filter(instance__in=ids).order_by("pk").values()))
    found.append(list(Repair.objects.filter(instance__in=ids).values()))
    return found


def run(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    with driven(site, "solo=template:6") as drive:
        attacker, broken = attack(drive, seeded("T16", spec["seed"]), REQUESTS)
        return result(broken, size=sum(attacker.asked.values()))


def attack(drive: Drive, rng: random.Random, requests: int) -> tuple[Attacker, list[str]]:
    """So many requests of one attacker against a fleet; what they did that they must not."""
    broken: list[str] = []
    rows = list(Instance.objects.select_related("account").order_by("instance_id"))
    rng.shuffle(rows)
    attacker = Attacker(rng, rows, drive.fleet.world)
    before = _seen(attacker.others)
    for number in range(requests):
        status = attacker.one()
        if status >= 500:
            broken.append(f"request {number} was answered with {status}")
            break
        if number % 500 == 0:  # the flood is held back too, but a test of the rest must not be
            for held_back in (node_intake.limiter, node_intake.rows):
                held_back.buckets.clear()
    refused.flush(force=True)
    counted = NodeRefusal.objects.aggregate(all=Sum("count"))["all"] or 0
    told = sum(number for status, number in attacker.asked.items() if status >= 400)
    if counted != told:
        broken.append(f"{told} were refused, {counted} were counted")
    if _seen(attacker.others) != before:
        broken.append("what is stored of other machines has changed")
    if NodeToken.objects.filter(instance__in=[r.pk for r in attacker.others], revoked_at=None).exists():
        broken.append("somebody was given another machine's credential")
    drive.steps(20)
    foreign = Case.objects.exclude(instance=attacker.mine).exclude(instance=None)
    if foreign.exists() or Repair.objects.exclude(instance=attacker.mine).exists():
        broken.append("a case or a repair of another machine began")
    if not all(attacker.asked[status] for status in (200, 401, 403, 422)):
        broken.append(f"the requests were not of all kinds: {dict(attacker.asked)}")
    return attacker, broken
