"""T17: whatever comes in from nodes, exporters, AWS and people's tools is read or refused in words; nothing falls over,
and what is refused leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import math
import random
import resource
from collections.abc import Callable
from typing import Any

from django.test import Client

from healthboard import clock
from healthboard.api import node_intake
from healthboard.cases.models import Case
from healthboard.diagnosis import envelopes
from healthboard.diagnosis.explain import Unreadable, explain
from healthboard.diagnosis.formats import FORMATS
from healthboard.fleet.models import Gpu, Head, HealthEvent, Instance, Interval
from healthboard.people import tokens
from healthboard.people.actors import system
from healthboard.repairs.models import Repair
from tests import factories
from tests.api.node_helpers import report, xid
from tests.diagnosis.score import SAMPLES
from tests.safety.conductor import seeded
from tests.safety.rows.alone import driven, result
from tests.safety.site import Site

#: bytes that the whole trial may take; an input that wants more is one too many for a server
MEMORY = 4 * 2**30
INPUTS = 100_000
#: of a hundred inputs, so many are texts for the parsers, events, and bodies for the API; the last are the dear ones
SHARES = (90, 6, 4)
VERDICTS = {"HARDWARE", "AMBIGUOUS", "WORKLOAD", "WATCH", "UNKNOWN", "HEALTHY", "CORRELATED"}
STRANGE = (
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63), 1e308, -0.0, math.nan, math.inf, "", " ", "\0", "\ud800", "💥" * 50,
    "<script>alert(1)</script>", "=1+1", "../../etc/passwd", "'; drop table x; --", "\u202egpj", "x" * 5000, [], {}, [[]],
    {"": {}}, [None] * 100, "GPU-\0", "i-0", "NaN", "0x7fffffff", "2026-02-30T25:61:61Z", "9999-12-31T23:59:59Z",
)  # fmt: skip
PATHS = ("/node/reports", "/node/condemned", "/node/enrol/challenge", "/node/enrol/identity", "/node/renew")


class Fuzz:
    def __init__(self, rng: random.Random, row: Instance) -> None:
        self.rng, self.row = rng, row
        self.texts = [json.loads(line)["text"] for line in SAMPLES.read_text().splitlines()]
        self.events = [t for t in self.texts if '"detail-type"' in t] or self.texts[:1]
        self.client = Client(SERVER_NAME="127.0.0.1", raise_request_exception=True)
        self.token = tokens.issue_node(row, actor=system("test"))
        self.api = tokens.issue_api(factories.person("operator"), actor=system("test"))
        self.refused = self.taken = 0

    def text(self, source: list[str]) -> str:
        """A recorded text, cut, joined, doubled, or with characters and numbers of another kind."""
        rng, text = self.rng, self.rng.choice(source)[:4000]
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(text) + 1)
            match rng.randrange(8):
                case 0:
                    text = text[:at]
                case 1:
                    text = text[at:]
                case 2:
                    text = text[:at] + chr(rng.randrange(0x110000)) * rng.randrange(1, 4) + text[at:]
                case 3:
                    text = text[:at] + rng.choice(source)[:300] + text[at:]
                case 4:
                    text = text[:at] + text[at + rng.randrange(1, 40) :]
                case 5:
                    text = text.replace(str(rng.randrange(10)), rng.choice(["", "-", "9" * 30, "NaN", "1e999", "٣"]), 3)
                case 6:
                    text = text[: at // 2] + text[:at] * 2
                case 7:
                    text = text.replace(
                        rng.choice(['"', "{", ":", ",", "\n", " "]), rng.choice(["", "\0", "[", "\r"]), 2
                    )
        return text

    def value(self, value: Any, depth: int = 0) -> Any:
        """The same shape with some parts strange, missing, doubled or of another kind."""
        rng = self.rng
        if rng.random() < 0.06 or depth > 6:
            return rng.choice(STRANGE)
        if isinstance(value, dict):
            kept = {k: self.value(v, depth + 1) for k, v in value.items() if rng.random() > 0.03}
            return {**kept, "x" * rng.randrange(1, 300): rng.choice(STRANGE)} if rng.random() < 0.05 else kept
        if isinstance(value, list):
            return [self.value(v, depth + 1) for v in value if rng.random() > 0.03] * rng.choice((1, 1, 1, 1, 2))
        return value

    def reads(self) -> str:
        """One text for the parsers; what is wrong, or empty."""
        text = self.text(self.texts)
        try:
            found = explain(text, self.rng.choice(FORMATS))
        except Unreadable:
            self.refused += 1
            return ""
        self.taken += 1
        json.dumps(found)
        return "" if found["verdict"] in VERDICTS and len(found["ignored"]) <= 50 else f"no verdict: {found['verdict']}"

    def hears(self) -> str:
        """One message of the queue."""
        rng, text = self.rng, self.text(self.events)
        if rng.random() < 0.5:
            with contextlib.suppress(ValueError):
                text = json.dumps(self.value(json.loads(rng.choice(self.events))))
        try:
            envelopes.read(text, account=self.row.account.account_id, region=self.row.region, now=clock.now())
            self.taken += 1
        except envelopes.Unusable:
            self.refused += 1
        return ""

    def calls(self) -> str:
        """One body for the API; what is refused leaves nothing behind."""
        rng = self.rng
        path, token = (rng.choice(PATHS), self.token) if rng.random() < 0.8 else ("/cases/1/decisions", self.api)
        told = report(rng.randrange(1, 10**9), kernel=[xid(9, 94)] if rng.random() < 0.2 else [])
        body: Any = self.value(told) if path.endswith("reports") else self.value({"gpus": [{}], "decision": "approve"})
        raw = json.dumps(body).encode("utf-8", "surrogatepass") if rng.random() < 0.9 else self.text(self.texts).encode(
            "utf-8", "surrogatepass"
        )  # fmt: skip
        before = self.stored()
        answer = self.client.post(
            f"/api/v1{path}", raw, content_type=rng.choice(["application/json"] * 9 + ["text/plain"]),
            HTTP_AUTHORIZATION=f"Bearer {token}",
        )  # fmt: skip
        if answer.status_code >= 500 and answer.status_code != 503:
            return f"{path} was answered with {answer.status_code}"
        if answer.status_code < 400:
            self.taken += 1
            return ""
        self.refused += 1
        said = json.loads(answer.content)
        if not isinstance(said, dict) or not said:
            return f"{path}: the refusal says nothing"
        return "" if self.stored() == before else f"{path}: what was refused with {answer.status_code} was stored"

    def stored(self) -> list[int]:
        return [model.objects.count() for model in (Head, Interval, HealthEvent, Gpu, Case, Repair)]


def run(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # of this fork alone
    with driven(site, "solo=template:2"):
        broken, done = throw(seeded("T17", spec["seed"]), INPUTS)
        return result(broken, size=done)


def throw(rng: random.Random, inputs: int) -> tuple[list[str], int]:
    """So many inputs in the name of one machine; what they did that they must not, and how many there were."""
    broken, done = [], 0
    fuzz = Fuzz(rng, Instance.objects.select_related("account").order_by("instance_id")[0])
    ways: list[Callable[[], str]] = [fuzz.reads, fuzz.hears, fuzz.calls]
    for done in range(1, inputs + 1):
        way = rng.choices(ways, SHARES)[0]
        try:
            wrong = way()
        except Exception as error:
            wrong = f"{way.__name__} raised {type(error).__name__}: {error}"
        if wrong:
            broken.append(f"input {done}: {wrong[:500]}")
            if len(broken) >= 5:
                break
        if done % 100 == 0:
            for held_back in (node_intake.limiter, node_intake.rows):
                held_back.buckets.clear()
    if Repair.objects.exists():
        broken.append("a repair began")
    if not (fuzz.refused > done / 20 and fuzz.taken > done / 20):
        broken.append(f"the inputs were not of both kinds: {fuzz.taken} taken, {fuzz.refused} refused")
    return broken, done
