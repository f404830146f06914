"""What an admin's policy says about a code: another verdict, a count within a window that raises it, or a code of its
own that stands for several.

A policy never speaks against what the rules found to be over or harmless, and it never gives permission: what it
raises to HARDWARE needs its witnesses as any other, and what it raises to AMBIGUOUS is asked about (`RAISED`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import Claim, Claims
from healthboard.diagnosis.signals import RAISED, Action, Event, Verdict

_BAD = (Verdict.HARDWARE, Verdict.AMBIGUOUS)


def apply(evidence: Evidence, claims: Claims) -> list[datetime]:
    """Overrides come last but for the silence of sources; a bad value is as if it were not there. Returns when counts
    fall below their number again."""
    later: list[datetime] = []
    overrides = {code: o for code, o in evidence.thresholds.code_overrides.items() if isinstance(o, Mapping)}
    for claim in claims:
        if (override := overrides.get(claim.code)) and "of" not in override and not _settled(claim):
            later += _override(evidence, claim, override)
    for code, override in sorted(overrides.items()):
        if isinstance(of := override.get("of"), list | tuple) and _counting(override):
            later += _own(evidence, claims, code, override, [c for c in of if isinstance(c, str)])
    return later


def _settled(claim: Claim) -> bool:
    """The rules found it to be over, or decoded it as harmless."""
    return (claim.verdict is Verdict.HEALTHY and claim.rule != "catalogue") or claim.rule == "answers-again"


def _override(evidence: Evidence, claim: Claim, override: Mapping[str, Any]) -> list[datetime]:
    verdict, action = _word(Verdict, override.get("verdict")), _word(Action, override.get("action"))
    was, later = claim.verdict, []
    if _counting(override):
        counted = [e for e in evidence.within(_window(override), claim.code) if e.gpu == claim.gpu]
        if _number(counted) < override["count"]:
            return []
        # the count raises: what is worse already stays as it is
        verdict = was if was is Verdict.HARDWARE else verdict or Verdict.AMBIGUOUS
        kept = claim.action if was in _BAD else Action.DIAGNOSE
        claim.set(verdict, action or kept, _counted(counted, override), "policy-count")
        later = [_falls(counted, override)]
    elif verdict or action:
        verdict, action = verdict or was, action or claim.action
        claim.set(verdict, action, f"{claim.why} (the policy sets {verdict}, {action})", "policy")
    if claim.verdict in _BAD and was not in _BAD:
        claim.rule = "policy-raised"
    return later


def _own(
    evidence: Evidence, claims: Claims, code: str, override: Mapping[str, Any], of: list[str]
) -> list[datetime]:  # fmt: skip
    """A code of the policy's own, on each GPU (or the instance) that shows enough of the codes that it stands for."""
    verdict = _word(Verdict, override.get("verdict")) or Verdict.AMBIGUOUS
    action = _word(Action, override.get("action")) or (
        Action.DIAGNOSE if verdict is Verdict.AMBIGUOUS else Action.WATCH
    )
    by_gpu: dict[str | None, list[Event]] = {}
    for event in evidence.within(_window(override), *of):
        by_gpu.setdefault(event.gpu, []).append(event)
    later = []
    for gpu, counted in by_gpu.items():
        if _number(counted) < override["count"]:
            continue
        for event in counted:
            claim = claims.add(code, gpu, event=event)
        claim.set(verdict, action, f"{', '.join(of)}: {_counted(counted, override)}", "policy-own")
        later.append(_falls(counted, override))
    return later


def _counting(override: Mapping[str, Any]) -> bool:
    count, window = override.get("count"), override.get("window_s")
    return isinstance(count, int) and isinstance(window, int | float) and count > 0 and window > 0


def _window(override: Mapping[str, Any]) -> timedelta:
    return timedelta(seconds=min(float(override["window_s"]), timedelta(days=366).total_seconds()))


def _number(events: Iterable[Event]) -> int:
    return sum(e.count for e in events if not e.attrs.get("only_named"))


def _counted(events: list[Event], override: Mapping[str, Any]) -> str:
    return f"{_number(events)} times within {override['window_s']:.0f} s, the policy's limit is {override['count']}"


def _falls(events: list[Event], override: Mapping[str, Any]) -> datetime:
    return min(e.last_at or e.at for e in events) + _window(override)


def _word(kind: Any, value: Any) -> Any:
    try:
        return kind(value) if value is not None else None
    except ValueError:
        return None


__all__ = ["RAISED", "apply"]
