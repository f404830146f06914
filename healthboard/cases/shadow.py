"""Observing is a rehearsal: what would have been done, and when, had the policy or the fleet been switched on.

Noted where evidence is kept, so once for each new reading of a case, and once per case for each answer. The rehearsal
is the policy's own answer with `observe` read as `auto`: witnesses, ladder, tries and owner narrow it as always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from healthboard.cases.judge import Judgement, narrow
from healthboard.cases.models import Case, WouldHave
from healthboard.policies.fields import MODE_NAMES
from healthboard.policies.matching import Resolved
from healthboard.policies.reading import Reread
from healthboard.repairs import brakes


def note(case: Case, seen: Reread, judged: Judgement) -> None:
    """Note what would have been done with this reading; nothing where it is done or asked, or would only be watched."""
    if judged.mode == "observe":
        held, would = WouldHave.HeldBy.POLICY, narrow(seen.assessment, switched_on(seen.policy), judged.given)
    elif judged.mode == "auto" and not brakes.switch().acting:
        held, would = WouldHave.HeldBy.FLEET, judged
    else:
        return
    if would.mode == "observe":
        return  # its owner or a tag forbids it, or an exception lets nothing be done: no switch would change that
    primary = seen.assessment.primary
    WouldHave.objects.get_or_create(
        case=case, held_by=held, mode=would.mode, action=would.action,
        defaults={
            "code": primary.code if primary else str(seen.assessment.verdict), "verdict": str(seen.assessment.verdict),
            "gpus": case.instance.gpus_expected or 0, "why": would.why,
            "observed": judged.why if held == WouldHave.HeldBy.POLICY else "acting is switched off",
            "policy_version": seen.policy.version, "at": seen.at,
        },
    )  # fmt: skip


def switched_on(policy: Resolved) -> Resolved:
    """The same settings with every `observe` read as `auto`."""
    values = {**policy.values, "codes": {code: _on(entry) for code, entry in policy.values["codes"].items()}}
    values |= {name: _mode(values[name]) for name in MODE_NAMES}
    return replace(policy, values=values)


def _on(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _mode(value) if key in ("mode", *MODE_NAMES) else value for key, value in entry.items()}


def _mode(mode: str) -> str:
    return "auto" if mode == "observe" else mode
