"""What an admin's policy says about a code: another verdict, or a count within a window that raises it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import Claim, Claims
from healthboard.diagnosis.signals import Action, Verdict


def apply(evidence: Evidence, claims: Claims) -> None:
    """Overrides come last but for the silence of sources; a bad value is as if it were not there."""
    for claim in claims:
        override = evidence.thresholds.code_overrides.get(claim.code)
        if isinstance(override, Mapping):
            _override(evidence, claim, override)


def _override(evidence: Evidence, claim: Claim, override: Mapping[str, Any]) -> None:
    verdict, action = _word(Verdict, override.get("verdict")), _word(Action, override.get("action"))
    count, window = override.get("count"), override.get("window_s")
    if isinstance(count, int) and isinstance(window, int | float) and count > 0 and window > 0:
        oldest = evidence.now - timedelta(seconds=float(window))
        seen = sum(
            e.count
            for e in evidence.of(claim.code, earlier=True) + claim.events
            if (e.last_at or e.at) >= oldest and e.gpu == claim.gpu
        )
        if seen < count:
            return
        why = f"{seen} times within {window:.0f} s, the policy's limit is {count}"
        if verdict is None:
            # the count raises: what is worse already stays as it is
            verdict = claim.verdict if claim.verdict is Verdict.HARDWARE else Verdict.AMBIGUOUS
        kept = claim.action if claim.verdict is verdict else Action.DIAGNOSE
        claim.set(verdict, action or kept, why, "policy-count")
    elif verdict or action:
        verdict, action = verdict or claim.verdict, action or claim.action
        claim.set(verdict, action, f"{claim.why} (the policy sets {verdict}, {action})", "policy")


def _word(kind: Any, value: Any) -> Any:
    try:
        return kind(value) if value is not None else None
    except ValueError:
        return None
