"""One small installation with a row for each kind of address, its people, and what is sent to each form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import Client

from healthboard import clock
from healthboard.people import grants, second, tokens
from healthboard.people.models import Grant, NodeToken
from healthboard.people.web import AUTH_AT
from healthboard.policies import versions
from tests import factories as make

ROLES = ("viewer", "operator", "approver", "admin")
#: nobody: logged in without a role, and a superuser at that; elsewhere: every role, in another pool
PEOPLE = ("anonymous", "nobody", *ROLES, "elsewhere")


@dataclass
class World:
    clients: dict[str, Client]
    cookies: dict[str, Any]
    tokens: dict[str, str]
    rows: dict[str, Any]
    forms: dict[str, dict[str, Any]]
    bodies: dict[str, dict[str, Any]]  # of the API, where they differ


def build() -> World:
    """Call inside a transaction that is taken back at the end."""
    versions.ensure_default()
    make.switch(acting=True)
    home = make.pool("train")
    make.pool("infer")
    on, other, third, fourth, fifth = (make.instance(home) for _ in range(5))
    gpu = make.gpus(on, 1)[0]
    type(gpu).objects.filter(pk=gpu.pk).update(condemned_at=clock.now(), condemned_why="XID_79")
    make.event(on)
    make.source()
    case = make.case(on)
    breaker = make.breaker("train")
    group = make.case(None, verdict="CORRELATED", breaker=breaker, pool=home)
    make.case(third, state="HELD", parent=group)
    asks = make.repair(
        other, state="ASKING", facts={"choices": [{"key": "again", "title": "Again", "needs": "decide"}]}
    )
    steps = make.steps(asks, "drain")
    make.call(steps[0])
    full = "Budget of train: 1 of 1 allowed are out (x)"
    waits, asked_of = (make.repair(one, state="SCHEDULED", why_waiting=full) for one in (fourth, fifth))
    make.occupancy(asks)
    admin = make.person("admin", "made-it")
    asked = second.ask("over_budget", f"repair:{asked_of.pk}", actor=make.actor(admin), reason="due", what="over",
                       account=home.account, region=home.region, pool="train")  # fmt: skip
    pause = make.pause("pool", "train")
    make.decision(case, admin)
    tokens.issue_node(on, actor=make.actor(admin))
    tokens.issue_api(admin, actor=make.actor(admin))
    with transaction.atomic():
        make.audit("test", "a row", by=make.actor(admin), instance=on)
    Group.objects.create(name="owners")
    clients, bearer = {}, {}
    for name in PEOPLE:
        clients[name] = client = Client(raise_request_exception=False)
        if name != "anonymous":
            user = _person(name)
            grants.sync(user)
            bearer[name] = tokens.issue_api(user, actor=make.actor(admin))
            client.force_login(user)
            session = client.session
            session[AUTH_AT] = clock.now().isoformat()
            session.save()
    default = versions.ensure_default()
    rows = {
        "case_id": case.pk, "case": case.pk, "group": group.pk, "instance": on.pk, "repair": asks.pk, "waits": waits.pk,
        "breaker": breaker.pk, "request": asked.pk, "pause": pause.pk, "gpu": gpu.pk, "policy": default.pk,
        "token": NodeToken.objects.get().pk, "account": home.account.account_id, "region": home.region,
        "instance_id": on.instance_id,
    }  # fmt: skip
    seen = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash}
    row = f"{case.pk}:{case.plan_version}:{case.evidence_hash}"
    forms = {
        "answer": {**seen, "reason": "x"}, "bulk": {"row": [row], "kind": "dismiss", "reason": "x"},
        "bulk_confirm": {"row": [row], "kind": "dismiss"}, "act": {"reason": "x", "seen": "none"},
        "pause": {"reason": "x", "length": "3600"}, "stop": {"reason": "x"}, "resume": {"reason": "x"},
        "acting": {"on": "0", "reason": "x"}, "release": {"reason": "x"}, "release_breaker": {"reason": "x"},
        "acknowledge": {"reason": "x"}, "set_pause": {"kind": "pool", "scope": "train", "length": "3600", "reason": "x"},
        "repair_answer": {"choice": "again", "reason": "x"}, "lift": {"reason": "x"}, "save_view": {"name": "mine"},
        "second_refuse": {"reason": "x"}, "repair_over_budget": {"reason": "x"}, "quiet": {"off": "1"},
        "decide": {**seen, "decision": "dismiss", "reason": "x"}, "explain": {"text": "x"},
    }  # fmt: skip
    changed = "version: 1\npolicies:\n- {name: Fleet default, default: true, settings: {undo_s: 60}}\n"
    bodies = {
        "ask": {"action": "DRAIN", "reason": "x", "seen": "0" * 64}, "pause": {"reason": "x", "length_s": 3600},
        "apply": {"yaml": changed, "reason": "x"}, "preview": {"yaml": changed}, "refuse": {"reason": "x"},
        "ask_for": {"kind": "over_budget", "id": waits.pk, "reason": "x"}, "answer": {"choice": "again", "reason": "x"},
    }  # fmt: skip
    return World(
        clients, {name: client.cookies.copy() for name, client in clients.items()}, bearer, rows, forms, bodies
    )


def _person(name: str) -> Any:
    user = get_user_model().objects.create_user(name, password=make.PASSWORD)
    if name == "nobody":
        user.is_superuser = True
        user.save()
    for role in ROLES:
        if name == role or name == "elsewhere":
            Grant.objects.create(user=user, role=role, pool="infer" if name == "elsewhere" else "")
    return user
