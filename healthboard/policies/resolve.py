"""Verdict, codes and settings in; mode and action out. Pure: the same arguments give the same answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from healthboard import clock
from healthboard.diagnosis.signals import Action, Thresholds, Verdict
from healthboard.policies import fields
from healthboard.policies.careful import READ_BY

#: Actions that change no instance.
QUIET = (Action.NONE, Action.WATCH, Action.NOTIFY_WORKLOAD)
#: The same broken host may be given again and again: no policy makes a loop of it.
CONDEMNED = "GPU_CONDEMNED_RETURNED"


@dataclass(frozen=True, slots=True)
class Answer:
    mode: str  # auto, ask, observe
    action: str
    why: str  # in words, with the policy where it is known


def resolve(
    verdict: str,
    codes: Sequence[str],
    action: str,
    may_act: bool,
    values: Mapping[str, Any],
    origin: Mapping[str, str] | None = None,
    *,
    raised: bool = False,
) -> Answer:
    """`codes`: the decisive one first. `origin` (see `matching.Resolved`) only adds the policy's name to the words.
    `raised`: only a policy makes a finding of it (`Assessment.raised`)."""
    verdict, action = str(verdict), str(action)
    if verdict == Verdict.CORRELATED:
        return Answer("ask", str(Action.HOLD), "many instances at once: held until a person decides")
    if verdict not in (Verdict.HARDWARE, Verdict.AMBIGUOUS):
        return Answer("observe", action, f"nothing is repaired on the verdict {verdict}")
    mode, why = _mode(verdict, codes, values, origin or {})
    proposed, action = action, _action(codes, action, values)
    if action != proposed:
        why = f"{why}; {action} instead of {proposed} by the policy's exceptions"
        if action in QUIET:
            return Answer("observe", action, why)
    if mode == "auto" and CONDEMNED in codes:
        return Answer("ask", action, f"{why}, but condemned hardware is back: only a person decides about it")
    if mode == "auto" and verdict == Verdict.HARDWARE and not may_act:
        return Answer("ask", action, f"{why}, but without a second witness a person is asked")
    if mode == "auto" and verdict == Verdict.AMBIGUOUS and raised:
        return Answer("ask", action, f"{why}, but only a policy makes a finding of it, so a person is asked")
    if mode == "auto" and action in (*QUIET, Action.HOLD, Action.RETURN):
        return Answer("ask", action, f"{why}, but {action} repairs nothing, so a person is asked")
    return Answer(mode, action, why)


def _mode(verdict: str, codes: Sequence[str], values: Mapping[str, Any], origin: Mapping[str, str]) -> tuple[str, str]:
    """The decisive code's own mode, else the most careful of the verdict's and what the other codes have."""
    name = "mode_hardware" if verdict == Verdict.HARDWARE else "mode_ambiguous"
    kind = "clear hardware failures" if verdict == Verdict.HARDWARE else "ambiguous findings"
    entries = {code: values["codes"].get(code, {}) for code in codes}
    own = {code: e.get(name) or e.get("mode") for code, e in entries.items() if e.get(name) or e.get("mode")}
    first = codes[0] if codes else None
    if first in own and not entries[first].get("partial"):
        return own[first], f"{first} is set to {own[first]}{_by(origin, 'codes')}"
    candidates = [(own[code], f"{code} is set to {own[code]}{_by(origin, 'codes')}") for code in own]
    if first not in own:
        candidates.insert(0, (values[name], f"{kind} are set to {values[name]}{_by(origin, name)}"))
    return min(candidates, key=lambda c: fields.MODES.index(c[0]))


def _action(codes: Sequence[str], proposed: str, values: Mapping[str, Any]) -> str:
    """The decisive code's own action, else the lightest of the proposal and what the other codes name."""
    entries = [values["codes"].get(code, {}) for code in codes]
    if entries and entries[0].get("action"):
        action = entries[0]["action"]
    else:
        action = fields.lighter_action([proposed, *(e["action"] for e in entries if e.get("action"))])
    return fields.lighter_action([action, *(e["action_at_most"] for e in entries if e.get("action_at_most"))])


def _by(origin: Mapping[str, str], name: str) -> str:
    return f" by {origin[name]}" if origin.get(name) else ""


def span(values: Mapping[str, Any], name: str) -> timedelta:
    """A duration setting as it passes here: policy times are divided by the sandbox's speed, undo and expiry are not."""
    seconds = float(values[name])
    return clock.scaled(seconds) if fields.BY_NAME[name].scaled else timedelta(seconds=seconds)


def thresholds(values: Mapping[str, Any]) -> Thresholds:
    """The part of a policy that changes how evidence is read; stored with each decision."""
    overrides = {}
    for code, entry in values["codes"].items():
        kept = {k: entry[k] for k in READ_BY if entry.get(k)}
        if (kept.get("verdict") or kept.get("of")) and entry.get("action"):
            kept["action"] = entry["action"]
        if kept:
            overrides[code] = kept
    return Thresholds(
        agent_disconnect=span(values, "disconnect_s"),
        witness_wait=span(values, "witness_wait_s"),
        dark_after=clock.scaled(timedelta(minutes=30)),
        code_overrides=overrides,
        outside_witness=bool(values["outside_witness"]),
    )
