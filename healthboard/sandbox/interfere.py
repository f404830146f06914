"""What can go wrong with a call, at one place: before its handler runs, and after.

`aws off|throttle` are the two switches of everyday; rules (a list in the state, set through the control URL) spoil
chosen calls a chosen number of times. A rule: {"service", "operation" (either may be absent: any), "times" (absent: for
ever), "account", "target", "do": one of `KINDS`, "code", "message", "delay_s", "skip", "lag_s", "fields"}. Rules whose
"do" is one of `LAUNCHES` spoil launches instead: {"do", "pool", "times", "skip", "code"}. What no rule spoils, a hostile
script may (`hostile`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.spoil import LISTS, OPTIONAL
from healthboard.sandbox.world import Sandbox

#: error: refused before any effect; drop_before / drop_after: the connection ends without or with the effect;
#: error_after: 500 although it took effect; delay: answers late; empty: lists come back empty; half: half of what was
#: asked fails, with HTTP 200 (ECS); fields: optional fields are missing; lag: reading calls are told for `lag_s` of AWS's
#: seconds what was before this change (a launch: nothing)
KINDS = ("error", "drop_before", "drop_after", "error_after", "delay", "empty", "half", "fields", "lag")
#: how a launch comes up: it never registers with ECS; with the fault of a machine of its pool, or `code`; as another type;
#: on the host of a machine that was given back; EC2 does not show it for `lag_s` of its seconds, a group that launched it does
LAUNCHES = ("never_registers", "same_fault", "other_type", "condemned", "unseen")
THROTTLED_SHARE = 0.9
LAG_S = 60.0


@dataclass(slots=True)
class Call:
    at: float
    service: str
    operation: str
    account: str
    region: str
    params: dict[str, Any]


@dataclass(slots=True)
class Behaviour:
    """What happens instead of, or on top of, an honest answer."""

    error: AwsError | None = None  # before any effect
    drop: bool = False  # before any effect: no answer at all
    delay_s: float = 0.0
    error_after: AwsError | None = None
    drop_after: bool = False
    empty: bool = False
    half: bool = False
    fields: tuple[str, ...] = ()
    lag_s: float = 0.0  # AWS's seconds
    outcome: str = ""  # what the log of calls says of a call that never got an answer


HONEST = Behaviour()
_rng = random.Random(7)


def throttled(service: str) -> AwsError:
    if service == "ec2":
        return AwsError("RequestLimitExceeded", "Request limit exceeded.")
    if service == "ecs":
        return AwsError("ThrottlingException", "Rate exceeded")
    return AwsError("Throttling", "Rate exceeded")


def interfere(sandbox: Sandbox, call: Call) -> Behaviour:
    """Asked once per call, with the lock held."""
    if sandbox.mode == "off":
        return Behaviour(drop=True, outcome="ServiceUnavailable")
    if sandbox.mode == "throttle" and call.service != "sts" and _rng.random() < THROTTLED_SHARE:
        return Behaviour(error=throttled(call.service))
    for rule in sandbox.rules:
        if _matches(rule, call):
            if rule.get("skip", 0) > 0:
                _count(sandbox, rule, "skip")
                continue
            if "times" in rule:
                _count(sandbox, rule, "times")
            return behaviour_of(rule, call)
    if sandbox.hostile is not None and (drawn := sandbox.hostile.behaviour(call)):
        return drawn
    return HONEST


def fate(sandbox: Sandbox, pool: str | None) -> dict[str, Any]:
    """How the next launch of a pool comes up, as a rule; empty: as it should. Asked once per launch, lock held."""
    for rule in sandbox.rules:
        if rule.get("do") not in LAUNCHES or rule.get("times", 1) <= 0 or rule.get("pool") not in (None, pool):
            continue
        if rule.get("skip", 0) > 0:
            _count(sandbox, rule, "skip")
            continue
        if "times" in rule:
            _count(sandbox, rule, "times")
        return rule
    drawn = sandbox.hostile.fate(pool) if sandbox.hostile is not None and pool else None
    return drawn or {}


def _matches(rule: dict[str, Any], call: Call) -> bool:
    if rule.get("times", 1) <= 0 or rule.get("do") in LAUNCHES:
        return False
    for name in ("service", "operation", "account", "region"):
        if rule.get(name) not in (None, getattr(call, name)):
            return False
    return "target" not in rule or rule["target"] in str(call.params)


def _count(sandbox: Sandbox, rule: dict[str, Any], name: str) -> None:
    sandbox.set_rules([{**r, name: r[name] - 1} if r is rule else r for r in sandbox.rules])


def behaviour_of(rule: dict[str, Any], call: Call) -> Behaviour:
    kind = rule.get("do", "error")
    if "code" in rule:
        error = AwsError(rule["code"], rule.get("message", "made to fail"), rule.get("status"))
    elif kind == "error":
        error = throttled(call.service)
    else:
        error = AwsError("InternalError" if call.service == "ec2" else "InternalFailure", "internal error", 500)
    delay = float(rule.get("delay_s", 0))
    if kind == "error":
        return Behaviour(error=error, delay_s=delay)
    if kind == "drop_before":
        return Behaviour(drop=True, delay_s=delay, outcome="RequestTimeout")
    if kind == "drop_after":
        return Behaviour(drop_after=True, delay_s=delay)
    if kind == "error_after":
        return Behaviour(error_after=error, delay_s=delay)
    if kind == "lag":
        return Behaviour(delay_s=delay, lag_s=float(rule.get("lag_s", LAG_S)))
    if kind == "fields":
        return Behaviour(delay_s=delay, fields=tuple(rule.get("fields") or OPTIONAL.get(call.operation, ())))
    return Behaviour(delay_s=delay, empty=kind == "empty", half=kind == "half" and call.operation in LISTS)
