"""Of several values of a setting, the most careful one, as `fields` declares it. Independent of their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from healthboard.policies import windows
from healthboard.policies.fields import (
    MODE_NAMES,
    POLICY_VERDICTS,
    SETTINGS,
    Setting,
    lighter_action,
    more_careful_mode,
)

#: what of an exception changes the reading of the evidence
READ_BY = ("verdict", "of", "count", "window_s")


#: what is read as the policy is at that moment wherever it is used: windows where something may begin, codes with evidence
READ_ANEW = ("windows", "blackouts", "codes")


class NoOrder(Exception):
    """The values differ and no order is declared: the answer is to ask."""


def most_careful(setting: Setting, values: Sequence[Any]) -> Any:
    """The most careful of at least one value. Raises NoOrder. `codes` are merged by `merge_codes` instead."""
    first = values[0]
    if all(v == first for v in values):
        return first
    match setting.careful:
        case "first":
            return min(values, key=setting.choices.index)
        case "min":
            return min((v for v in values if v is not None), default=None)
        case "max":
            return None if None in values else max(values)
        case "yes":
            return any(values)
        case "no":
            return all(values)
        case "common":
            shortest = min(values, key=lambda v: (len(v), list(v)))
            return [rung for rung in shortest if all(rung in v for v in values)]
        case "within":
            return windows.together(values)
        case "union":
            return sorted({name for v in values for name in v})
    raise NoOrder(setting.name)


def tightened(frozen: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were frozen at a decision, each as careful as it is now where that is more careful.

    What has no order stays as frozen, and so does `READ_ANEW`; what was not frozen is taken as it is now.
    """
    out = {**current, **frozen}
    for setting in SETTINGS:
        name = setting.name
        if name in READ_ANEW or setting.careful is None or not (name in frozen and name in current):
            continue
        out[name] = most_careful(setting, [frozen[name], current[name]])
    return out


def merge_codes(resolved: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Most careful exceptions per code over the resolved values of several workloads.

    A workload without an exception for a code answers by its verdict's mode, so the merged entry holds
    ``mode_hardware`` and ``mode_ambiguous`` instead of one mode where they differ, ``partial`` where only some have
    one, and ``action_at_most`` where only some name an action. Raising on repetition stands only where all raise,
    and a policy's own code only where all have it, for what all let it count.
    """
    if len(resolved) == 1:
        return {code: dict(entry) for code, entry in resolved[0]["codes"].items()}
    merged = {}
    for code in sorted({c for values in resolved for c in values["codes"]}):
        entry = _merge_code(resolved, [values["codes"].get(code, {}) for values in resolved])
        if entry:
            merged[code] = entry
    return merged


def override(base: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """An exception over the same code's exception of a less specific policy: mode, action, and how it is read."""
    hidden = set()
    if any(entry.get(key) for key in READ_BY):
        hidden |= {*READ_BY}  # one rule: a verdict of the one with a number of times of the other is nobody's word
    if entry.get("mode"):
        hidden |= {*MODE_NAMES, "partial"}
    if entry.get("action"):
        hidden.add("action_at_most")
    return {**{k: v for k, v in base.items() if k not in hidden}, **entry}


def _merge_code(resolved: Sequence[Mapping[str, Any]], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if any(e.get("of") for e in entries):
        common = [code for code in entries[0].get("of") or () if all(code in (e.get("of") or ()) for e in entries)]
        if not common:
            return {}  # without it nothing comes of these codes together, which is the most careful
        out["of"] = sorted(common)
        entries = [{"verdict": "AMBIGUOUS", **e} for e in entries]
    verdicts = [e["verdict"] for e in entries if e.get("verdict")]
    floor = None  # the mode that a disagreement about the verdict leads to
    # one that gives its verdict only on repetition differs from one that gives it at once
    if len(verdicts) == len(entries) and len({bool(e.get("count")) for e in entries}) == 1:
        out["verdict"] = min(verdicts, key=POLICY_VERDICTS.index)
    elif verdicts:
        # what the others make of the code is known only with the evidence; so no exception, and nobody acts alone
        harmless = any(POLICY_VERDICTS.index(v) <= POLICY_VERDICTS.index("WATCH") for v in verdicts)
        floor = "observe" if harmless else "ask"
    explicit = [bool(e.get("mode") or e.get("mode_hardware")) and not e.get("partial") for e in entries]
    if floor or any(e.get("mode") or e.get("mode_hardware") for e in entries):
        modes = {}
        for name in MODE_NAMES:
            given = [e.get(name) or e.get("mode") or v[name] for e, v in zip(entries, resolved, strict=True)]
            modes[name] = more_careful_mode([*given, floor] if floor else given)
        out |= {"mode": modes["mode_hardware"]} if len(set(modes.values())) == 1 else modes
        if not all(explicit):
            out["partial"] = True  # some have no exception: it takes no precedence over other codes' exceptions
    actions = [e["action"] for e in entries if e.get("action")]
    caps = [e["action_at_most"] for e in entries if e.get("action_at_most")]
    if actions and len(actions) == len(entries):
        out["action"] = lighter_action(actions)
    elif actions:
        caps += actions
    if caps:
        out["action_at_most"] = lighter_action(caps)
    if all(e.get("count") for e in entries):
        out["count"] = max(e["count"] for e in entries)
        out["window_s"] = min(e["window_s"] for e in entries)
    return out
