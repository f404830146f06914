"""What a case's readings rested on, kept so that each can be decided again: see `cases.replay`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from healthboard.audit.record import digest
from healthboard.cases import lifecycle, shadow
from healthboard.cases.judge import Judgement
from healthboard.cases.models import Case
from healthboard.diagnosis.signals import Assessment
from healthboard.fleet.evidence import freeze
from healthboard.policies.matching import Resolved
from healthboard.policies.reading import BAD, Reread


def evidence_hash(a: Assessment) -> str:
    """Of what a decision rests on: verdict, action, and which codes on which GPUs; not of counts or ages."""
    return digest(
        {
            "verdict": str(a.verdict),
            "action": str(a.action),
            "codes": sorted({(f.code, f.gpu or "") for f in a.findings if f.verdict in BAD}),
        }
    )


def moved(case: Case, seen: Reread, judged: Judgement) -> list[str]:
    """In words, what this reading says otherwise than the case and its plan, which people were shown.

    Nothing where it reads good or cannot be read: that renews no case, and a repair asks for it before it changes
    anything.
    """
    a, found = seen.assessment, []
    if a.verdict not in BAD:
        return found
    if evidence_hash(a) != case.evidence_hash:
        found.append(f"the evidence reads {a.verdict} now: {', '.join(a.codes)}")
    if judged.dead_host != bool(case.plan.get("dead_host")):
        found.append(f"its work {'cannot be drained any more' if judged.dead_host else 'can be drained again'}")
    if judged.watch != bool(case.plan.get("watch")):
        found.append(
            f"its group {'replaces it by itself' if judged.watch else 'does not replace it by itself any more'}"
        )
    return found


def keep(case: Case, seen: Reread, judged: Judgement) -> None:
    """Append what was read, under which policies and circumstances, and what came of it."""
    inputs = freeze(seen.events, seen.readings, seen.context, thresholds=seen.thresholds, now=seen.at)
    lifecycle.keep(
        case, at=seen.at, hash=evidence_hash(seen.assessment), verdict=str(seen.assessment.verdict),
        inputs={**inputs, "policy": _policy(seen.policy), "given": _plain(asdict(judged.given))},
        assessment=assessment_json(seen.assessment), answer=answer_json(judged),
    )  # fmt: skip
    shadow.note(case, seen, judged)


def assessment_json(a: Assessment) -> dict[str, Any]:
    return _plain(asdict(a) | {"codes": a.codes})


def answer_json(judged: Judgement) -> dict[str, Any]:
    """Mode, action, why, watch, dead_host and untouchable: the policy's answer as far as circumstances allowed it."""
    answer = asdict(judged)
    del answer["given"]
    return _plain(answer)


def _policy(resolved: Resolved) -> dict[str, Any]:
    """The versions that matched, whole, since an unused policy can be deleted, and what they were matched against."""
    versions = [{"number": v.number, "data": v.data} for v in resolved.versions]
    return _plain({"versions": versions, "targets": [asdict(target) for target in resolved.targets]})


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
