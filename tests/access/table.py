"""The table `matrix.txt`, row by row, and how an address of it is filled in and asked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction
from django.http import HttpResponse

from healthboard.people.access import VERBS
from tests.access.world import ROLES, World

#: URL name -> part of its address -> row of the world, where that is not the usual one
ROWS = {
    "release": {"case_id": "group"}, "release_breaker": {"pk": "breaker"}, "repair_over_budget": {"pk": "waits"},
    "second_confirm": {"pk": "request"}, "second_refuse": {"pk": "request"}, "end_pause": {"pk": "pause", "pause_id": "pause"},
    "lift": {"pk": "gpu"}, "repair": {"pk": "repair"}, "repair_answer": {"pk": "repair"}, "repair_stop": {"pk": "repair"},
}  # fmt: skip
USUAL = {"pk": "instance", "gpu_id": "gpu", "repair_id": "repair", "request_id": "request"}
FIXED = {"kind": "dismiss", "action": "drain"}


@dataclass(frozen=True)
class Row:
    method: str
    route: str
    takes: str
    may: int
    elsewhere: int

    @property
    def api(self) -> bool:
        return self.route.startswith("/api/v1/")

    def expected(self, who: str) -> int:
        if self.takes == "-":
            return self.may
        if who == "anonymous":
            return 401 if self.api else 302
        if self.takes == "person":
            return self.may
        if who == "elsewhere":
            return self.elsewhere
        roles = {str(role) for role in VERBS[self.takes][0]}
        return self.may if who in roles & set(ROLES) else 403


def rows(name: str) -> list[Row]:
    found = []
    for line in (Path(__file__).with_name(name)).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            method, route, takes, may, elsewhere = line.split()
            found.append(Row(method, route, takes, int(may), int(elsewhere)))
    return found


def fill(world: World, route: str, name: str) -> str:
    def value(match: re.Match) -> str:
        part = match[1]
        if part == "action" and route.startswith("/api/"):
            return FIXED[part].upper()
        return FIXED.get(part) or str(world.rows[ROWS.get(name, {}).get(part) or USUAL.get(part, part)])

    return re.sub(r"[<{](?:\w+:)?(\w+)[>}]", value, route)


def ask(world: World, who: str, row: Row, name: str) -> HttpResponse:
    """One request of one person; what it changed is for the caller to take back."""
    client = world.clients[who]
    client.cookies.clear()
    client.cookies.update(world.cookies[who])
    forms = {**world.forms, **(world.bodies if row.api else {})}
    address, form = fill(world, row.route, name), forms.get(name, {})
    if row.method == "GET":
        return client.get(address, headers=_bearer(world, who, row))
    if row.api:
        body = json.dumps(form)
        return client.post(address, body, content_type="application/json", headers=_bearer(world, who, row))
    return client.post(address, form)


def _bearer(world: World, who: str, row: Row) -> dict[str, str]:
    return {"Authorization": f"Bearer {world.tokens[who]}"} if row.api and who in world.tokens else {}


def undone(world: World, who: str, row: Row, name: str) -> tuple[int, str]:
    """Status and reason of one request whose changes are taken back."""
    with transaction.atomic():
        answer = ask(world, who, row, name)
        if answer.streaming:
            b"".join(answer.streaming_content)
        why = getattr(answer.wsgi_request, "refusal", "")
        transaction.set_rollback(True)
    return answer.status_code, why
