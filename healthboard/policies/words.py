"""Settings in words: one value, one exception, and the sentences that say what a policy will do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthboard.policies import fields, windows
from healthboard.policies.fields import BY_NAME, Setting

_ACTS = {
    "auto": "repaired without a person",
    "ask": "put before a person",
    "observe": "only shown and recorded",
}


def show(setting: Setting, value: Any) -> str:
    """A value as people write it: 5 min, 20 %, yes, no limit."""
    if value is None:
        return "no limit"
    match setting.kind:
        case "seconds":
            return duration(value)
        case "share":
            return f"{value * 100:g} %"
        case "yes_no":
            return "yes" if value else "no"
        case "names":
            return ", ".join(value) or "nobody"
        case "ladder":
            return ", then ".join([*value, "a person"])
        case "codes":
            return f"{len(value)} {'exception' if len(value) == 1 else 'exceptions'}"
        case "windows":
            return windows.show(value)
        case "blackouts":
            return "; ".join(value) or "none"
        case "text":
            return value or "nothing"
    return str(value)


def duration(seconds: float) -> str:
    for unit, name in ((fields.DAY, "d"), (fields.HOUR, "h"), (fields.MINUTE, "min")):
        if seconds and seconds % unit == 0:
            return f"{seconds // unit:g} {name}"
    return f"{seconds:g} s"


def code_line(code: str, entry: Mapping[str, Any]) -> str:
    """``XID_119: ask REPLACE 3x in 24h``, as the form takes it."""
    parts = [str(entry[key]) for key in ("mode", "action") if entry.get(key)]
    if entry.get("verdict"):
        parts.append(f"verdict={entry['verdict']}")
    if entry.get("of"):
        parts.append(f"of={','.join(entry['of'])}")
    if entry.get("count"):
        parts.append(f"{entry['count']}x in {duration(entry['window_s']).replace(' ', '')}")
    return f"{code}: {' '.join(parts)}"


def matches(data: Mapping[str, Any]) -> str:
    """Whom a policy (a version's data) applies to."""
    if data.get("is_default"):
        return "every instance that no other policy says more about"
    names = [("workload", "the workload"), ("pool", "the pool"), ("cluster", "the cluster"), ("region", "the region")]
    parts = [f"{word} {data[key]}" for key, word in names if data.get(key)]
    if data.get("account"):
        parts.append(f"the account {data['account']}")
    parts += [f"the tag {k}={v}" if v else f"the tag {k}" for k, v in sorted((data.get("tags") or {}).items())]
    return " in ".join(parts[:1]) + "".join(f", {p}" for p in parts[1:]) if parts else "every workload"


def sentences(values: Mapping[str, Any], whom: str = "") -> list[str]:
    """What resolved settings (every setting has a value) will do, most important first."""
    v = {name: show(BY_NAME[name], value) for name, value in values.items() if name in BY_NAME}
    witness = " confirmed by a second witness" if values["mode_hardware"] == "auto" else ""
    out = [
        (f"For {whom}: c" if whom else "C")
        + f"lear hardware failures{witness} are {_ACTS[values['mode_hardware']]}; "
        + f"ambiguous findings are {_ACTS[values['mode_ambiguous']]}."
    ]
    lines = sorted(values["codes"].items())
    if lines:
        shown = "; ".join(code_line(code, _plain(entry)) for code, entry in lines[:5])
        more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
        out.append(f"Exceptions: {shown}{more}.")
    if values["mode_hardware"] == values["mode_ambiguous"] == "observe" and not any(
        _asks(e) for e in values["codes"].values()
    ):
        return [*out, "Nothing is ever repaired."]
    limit = f"{v['budget_share']} of a pool (one below nine instances)"
    if values["budget_absolute"] is not None:
        limit += f" and {v['budget_absolute']} instances"
    rate = f", at most {v['repairs_per_hour']} repairs an hour" if values["repairs_per_hour"] is not None else ""
    zone = ", in one zone at a time" if values["one_zone_at_a_time"] else ""
    floor = f", and at least {v['minimum_healthy']} must keep serving" if values["minimum_healthy"] else ""
    out.append(f"No more than {limit} are out at once{rate}{zone}{floor}.")
    if values["windows"] or values["blackouts"]:
        when = f"only within {v['windows']}" if values["windows"] else "at any time"
        but = f", but not within {v['blackouts']}" if values["blackouts"] else ""
        out.append(f"Repairs begin {when}{but}; one that has begun to drain is carried to its end.")
    out += _before_draining(values, v)
    out.append(
        f"Tasks get {v['drain_timeout_s']} to leave, then a person is asked; nothing is stopped by force. "
        f"{_dead(values)}"
    )
    people = "one person" if values["approvals"] == 1 else f"{values['approvals']} different people"
    group = f" of the group {values['approver_group']}" if values["approver_group"] else ""
    out.append(
        f"What is asked needs {people}{group}; unanswered for {v['expiry_s']} it is escalated and nothing is done. "
        f"After an approval there are {v['undo_s']} to take it back."
    )
    out.append(
        f"After {v['tries_24h']} repairs of an instance within 24 hours a person is asked. Ladder: {v['ladder']}."
    )
    out.append(f"Told of what happens: {v['notify']}.")
    return out


def _dead(values: Mapping[str, Any]) -> str:
    alone = [
        what
        for name, what in (("dead_host", "a dead host"), ("unkillable", "a task that cannot be stopped"))
        if values[name] == "auto"
    ]
    if not alone:
        return "A dead host and a task that cannot be stopped are put before a person."
    return f"With every proof there, {' and '.join(alone)} need{'s' if len(alone) == 1 else ''} no person."


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


def _asks(entry: Mapping[str, Any]) -> bool:
    return any(entry.get(key) in ("auto", "ask") for key in ("mode", *fields.MODE_NAMES))


def _plain(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A merged exception as one line: its most careful mode and its action."""
    modes = [entry[k] for k in ("mode", *fields.MODE_NAMES) if entry.get(k)]
    action = entry.get("action") or entry.get("action_at_most")
    return {**entry, "mode": fields.more_careful_mode(modes) if modes else None, "action": action}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Differences between two versions' data, a sentence each."""
    out = []
    for key, word in (
        ("name", "name"), ("enabled", "enabled"), ("account", "account"), ("region", "region"), ("cluster", "cluster"),
        ("pool", "pool"), ("workload", "workload"), ("tags", "tags"),
    ):  # fmt: skip
        old, new = before.get(key), after.get(key)
        if old != new and (old or new):
            out.append(f"{word}: {_flat(old)} → {_flat(new)}")
    old_set, new_set = before.get("settings") or {}, after.get("settings") or {}
    for name in [n for n in BY_NAME if n in old_set or n in new_set]:
        if name == "codes":
            out += _code_changes(old_set.get(name) or {}, new_set.get(name) or {})
        elif old_set.get(name, ...) != new_set.get(name, ...):
            old, new = (show(BY_NAME[name], s[name]) if name in s else "inherited" for s in (old_set, new_set))
            out.append(f"{BY_NAME[name].title}: {old} → {new}")
    return out


def _code_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    out = []
    for code in sorted({*before, *after}):
        old, new = before.get(code), after.get(code)
        if old != new:
            texts = [code_line(code, e).split(": ", 1)[1] if e else "no exception" for e in (old, new)]
            out.append(f"{code}: {texts[0]} → {texts[1]}")
    return out


def _flat(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in sorted(value.items())) or "any"
    return str(value) if value else "any"
