"""What a policy will do, in sentences: every setting is in one of them, most important first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthboard import words
from healthboard.policies import fields, windows
from healthboard.policies.fields import BY_NAME
from healthboard.policies.words import code_line, show

_ACTS = {
    "auto": "repaired without a person",
    "ask": "put before a person",
    "observe": "only shown and recorded",
}
SHOWN_CODES = 20


def sentences(values: Mapping[str, Any], whom: str = "") -> list[str]:
    """Of resolved settings (every setting has a value)."""
    v = {name: show(BY_NAME[name], value) for name, value in values.items() if name in BY_NAME}
    out = _modes(values, whom)
    told = f"Told of what happens: {v['notify']}."
    agent = f"An agent that is away for {v['disconnect_s']} counts as a finding."
    if values["mode_hardware"] == values["mode_ambiguous"] == "observe" and not any(
        _asks(e) for e in values["codes"].values()
    ):
        return [*out, "Nothing is ever repaired.", agent, _closing(values, v), told]
    return [
        *out,
        f"{_witnesses(values, v)} {agent}",
        _budget(values, v),
        *_when(values),
        *_before_draining(values, v),
        f"Tasks get {v['drain_timeout_s']} to leave, then a person is asked; nothing is stopped by force. "
        f"{_dead(values, v)}",
        f"A replacement must serve within {v['launch_timeout_s']}, a reboot be over within {v['reboot_timeout_s']}, and "
        f"what came back look good for {v['soak_s']}; else a person is asked.",
        _people(values, v),
        f"After {_times(values['tries_24h'])} of an instance within 24 hours a person is asked. Ladder: {v['ladder']}.",
        _closing(values, v),
        told,
    ]


def _modes(values: Mapping[str, Any], whom: str) -> list[str]:
    witness = " confirmed by a second witness" if values["mode_hardware"] == "auto" else ""
    out = [
        (f"For {whom}: c" if whom else "C")
        + f"lear hardware failures{witness} are {_ACTS[values['mode_hardware']]}; "
        + f"ambiguous findings are {_ACTS[values['mode_ambiguous']]}."
    ]
    lines = sorted(values["codes"].items())
    if lines:
        shown = "; ".join(code_line(code, _plain(entry)) for code, entry in lines[:SHOWN_CODES])
        more = f"; and {len(lines) - SHOWN_CODES} more" if len(lines) > SHOWN_CODES else ""
        out.append(f"Exceptions: {shown}{more}.")
    return out


def _witnesses(values: Mapping[str, Any], v: Mapping[str, str]) -> str:
    outside = ", which must not be the node itself," if values["outside_witness"] else ""
    return f"A failure told by one witness waits {v['witness_wait_s']} for a second{outside} before a person is asked."


def _budget(values: Mapping[str, Any], v: Mapping[str, str]) -> str:
    limit = f"{v['budget_share']} of a pool (one below nine instances)"
    if values["budget_absolute"] is not None:
        limit += f" and {words.count(values['budget_absolute'], 'instance')}"
    rate = ""
    if values["repairs_per_hour"] is not None:
        rate = f", at most {words.count(values['repairs_per_hour'], 'repair')} an hour"
    zone = ", in one zone at a time" if values["one_zone_at_a_time"] else ""
    floor = f", and at least {v['minimum_healthy']} must keep serving" if values["minimum_healthy"] else ""
    return f"No more than {limit} are out at once{rate}{zone}{floor}."


def _when(values: Mapping[str, Any]) -> list[str]:
    when = windows.when(values)
    return [f"Repairs begin {when}; one that has begun to drain is carried to its end."] if when else []


def _before_draining(values: Mapping[str, Any], v: Mapping[str, str]) -> list[str]:
    out = []
    if values["wait_for_idle"] != "never":
        what = {"job": "job, standalone or protected task", "standalone": "standalone or protected task"}
        out.append(
            f"Nothing is drained while a {what[values['wait_for_idle']]} runs on it; after {v['idle_wait_s']} a person "
            "is asked."
        )
    if values["checkpoint"]:
        then = {"ask": "a person is asked", "go_on": "it is drained all the same"}[values["checkpoint_silence"]]
        out.append(
            f"Before draining {v['checkpoint']} must answer that it is ready; a refusal is put before a person, and "
            f"without an answer within {v['checkpoint_wait_s']} {then}."
        )
    return out


def _dead(values: Mapping[str, Any], v: Mapping[str, str]) -> str:
    own = f"its own stop time-out (without one: {v['stop_timeout_s']})"
    stuck = f"a task that cannot be stopped {v['unkillable_margin_s']} after {own}"
    alone = [what for name, what in (("dead_host", "a dead host"), ("unkillable", stuck)) if values[name] == "auto"]
    if not alone:
        return f"A dead host and {stuck} are put before a person."
    return f"With every proof there, {' and '.join(alone)} need{'s' if len(alone) == 1 else ''} no person."


def _people(values: Mapping[str, Any], v: Mapping[str, str]) -> str:
    people = "one person" if values["approvals"] == 1 else f"{values['approvals']} different people"
    group = f" of the group {values['approver_group']}" if values["approver_group"] else ""
    undo = f"After an approval there are {v['undo_s']} to take it back." if values["undo_s"] else "It starts at once."
    return f"What is asked needs {people}{group}; unanswered for {v['expiry_s']} it is escalated and nothing is done. {undo}"


def _closing(values: Mapping[str, Any], v: Mapping[str, str]) -> str:
    how = "closes by itself" if values["auto_resolve"] else "is closed by a person"
    return f"A case whose evidence has been clear for {v['clear_s']} {how}."


def _times(tries: int) -> str:
    return f"{tries} {'repair' if tries == 1 else 'repairs'}"


def _asks(entry: Mapping[str, Any]) -> bool:
    return any(entry.get(key) in ("auto", "ask") for key in ("mode", *fields.MODE_NAMES))


def _plain(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A merged exception as one line: its most careful mode and its action."""
    modes = [entry[k] for k in ("mode", *fields.MODE_NAMES) if entry.get(k)]
    action = entry.get("action") or entry.get("action_at_most")
    return {**entry, "mode": fields.more_careful_mode(modes) if modes else None, "action": action}
