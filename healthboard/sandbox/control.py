"""The control URLs under ``/_sandbox/``: JSON in, JSON out, for loopback callers only."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from healthboard.sandbox import hostile
from healthboard.sandbox.injure import BadInjection, check, clear, inject
from healthboard.sandbox.interfere import KINDS, LAUNCHES
from healthboard.sandbox.status import fleet, status
from healthboard.sandbox.world import Sandbox

MODES = ("ok", "off", "throttle")
QUEUE_MODES = ("ok", "lost")
#: what makes the queue of events a lost one, among the rules that spoil calls
LOST_QUEUE = {
    "service": "sqs",
    "do": "error",
    "code": "AWS.SimpleQueueService.NonExistentQueue",
    "message": "The specified queue does not exist.",
}


class BadRequest(ValueError):
    """One line for the caller."""


def handle(sandbox: Sandbox, endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Raises BadRequest; KeyError for an unknown path."""
    action = ACTIONS[path]
    with sandbox.lock:
        answer = action(sandbox, endpoint, body)
        sandbox.flush()
    return answer


def _status(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    return status(sandbox, endpoint)


def _fleet(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    return fleet(sandbox)


def _health(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"ok": True, "aws": sandbox.mode, "worlds": [list(w) for w in sandbox.worlds]}


def _inject(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    ids, code, gpu = body.get("instances") or [], str(body.get("code", "")), body.get("gpu")
    try:
        found = check(list(sandbox.worlds.values()), ids, code, gpu)
    except BadInjection as bad:
        raise BadRequest(str(bad)) from None
    for world, instance in found:
        if body.get("clear"):
            clear(world, instance, code, gpu)
        else:
            inject(world, instance, code, gpu)
    return {"ok": True, "instances": [i.id for _, i in found], "code": code}


def _aws(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    if body.get("mode") not in MODES:
        raise BadRequest(f"mode must be one of {', '.join(MODES)}")
    sandbox.set_mode(body["mode"])
    return {"ok": True, "aws": sandbox.mode}


def _queue(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    if body.get("mode") not in QUEUE_MODES:
        raise BadRequest(f"mode must be one of {', '.join(QUEUE_MODES)}")
    others = [rule for rule in sandbox.rules if rule != LOST_QUEUE]
    sandbox.set_rules([LOST_QUEUE, *others] if body["mode"] == "lost" else others)
    return {"ok": True, "queue": body["mode"]}


def _rules(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    rules = body.get("rules")
    if rules is not None:
        known = (*KINDS, *LAUNCHES)
        if not isinstance(rules, list) or any(
            not isinstance(r, dict) or r.get("do", "error") not in known for r in rules
        ):
            raise BadRequest(f"rules: a list of objects; 'do' is one of {', '.join(known)}")
        sandbox.set_rules(rules)
    return {"rules": sandbox.rules}


def _hostile(sandbox: Sandbox, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    seed = body.get("seed")
    if seed is not None and not (isinstance(seed, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,40}", seed)):
        raise BadRequest("seed: up to 40 letters, digits, _ and -")
    before = hostile.turn(sandbox, seed) if "seed" in body else sandbox.hostile
    return {"hostile": sandbox.hostile.seed if sandbox.hostile else None, "did": dict(before.did) if before else {}}


ACTIONS: dict[str, Callable[[Sandbox, str, dict[str, Any]], dict[str, Any]]] = {
    "status": _status,
    "fleet": _fleet,
    "health": _health,
    "inject": _inject,
    "aws": _aws,
    "queue": _queue,
    "rules": _rules,
    "hostile": _hostile,
}
#: what may be asked with GET
READS = ("status", "fleet", "health", "rules", "hostile")
