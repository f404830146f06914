"""What would change the answer: which second witness is still missing, which time is waited for, which recovery would
clear it. Pure, from an assessment and the catalogue; the words beside the rules of `witness` and `rules.repeats`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from healthboard.diagnosis import catalogue as shipped
from healthboard.diagnosis.catalogue import Catalogue
from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.rules.claims import GONE, WORN
from healthboard.diagnosis.rules.repeats import FIRST_TIME, MOVING, RESET_CLASS
from healthboard.diagnosis.signals import Action, Assessment, Finding, Thresholds, Verdict
from healthboard.diagnosis.witness import HOST, OUTSIDE

_DEFAULT = Thresholds()
KINDS = ("witness", "time", "worse", "recovery", "person")
#: findings whose outlook is told, the decisive one first
MOST = 3
#: verdicts that a change of the evidence can move
_OPEN = (Verdict.HARDWARE, Verdict.AMBIGUOUS, Verdict.UNKNOWN, Verdict.WORKLOAD, Verdict.WATCH)
_ECS = "ECS_ACCELERATED_COMPUTE_IMPAIRED"
_RESET = frozenset({"GPU_RESET_REQUIRED", "GPU_RECOVERY_ACTION", "XID_154"})
#: group of codes -> source -> what it would have to say
WITNESSES: Mapping[str, Mapping[str, str]] = {
    "host": {
        "ec2": "EC2's system or instance check reads impaired",
        "ecs": "ECS shows the agent away at two collection times",
    },
    "gone": {
        "kernel": "the kernel log says that the GPU is gone",
        "nvml": "NVML reads the GPU as lost, or counts too few",
        "dcgm": "the exporter shows the same Xid",
        "ecs": "ECS reads accelerated compute as impaired",
    },
    "worn": {
        "nvml": "NVML reads the same flag",
        "dcgm": "DCGM reads the same flag",
    },
    "number": {
        "kernel": "the kernel log has the line",
        "nvml": "NVML asks for a reset or a recovery step",
        "dcgm": "the exporter shows the same Xid",
        "ecs": "ECS reads accelerated compute as impaired",
    },
    "ecs": {
        "kernel": "the kernel log has a line of a hardware failure",
        "nvml": "NVML reads a GPU as lost or waiting for a reset",
    },
}
#: codes by their beginning -> what ends them
_ENDS = (
    ("GPU_CONDEMNED_RETURNED", "an approver or admin lifts the condemnation, or the GPU is no longer there"),
    ("EC2_EVENT_", "AWS completes or cancels the event"),
    ("EC2_STATUS_", "EC2 reports the checks again"),
    ("EC2_", "EC2's checks read OK again"),
    ("AWS_HEALTH", "AWS closes the event"),
    ("ECS_AGENT", "the agent connects again"),
    ("ECS_", "ECS reads it well again"),
    ("MONITORING_GAP", "the silent source tells again"),
    ("DCGM_", "the exporter is scraped again"),
    ("NVML_", "NVML reads it again"),
    ("GPU_MISSING", "all GPUs answer again"),
    ("GPU_COUNT", "all GPUs answer again"),
    ("ROW_REMAP_PENDING", "the next reset completes the remap"),
    ("FABRIC", "the fabric reads well again"),
    ("EFA_", "all EFA devices are there again"),
    ("TASKS_FAILING", "tasks on it succeed again"),
    ("GPU_", "the reading is good again"),
    ("ECC_", "a reboot without a new error: what was before it counts no more"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that would change the answer. `kind` is of `KINDS`: a witness would let it act alone."""

    kind: str
    text: str
    at: datetime | None = None


def outlook(
    a: Assessment, *, thresholds: Thresholds = _DEFAULT, catalogue: Catalogue | None = None
) -> tuple[Change, ...]:
    """What would change this answer, the missing witness first; empty for a machine that is well."""
    found: list[Change] = []
    if a.primary is not None and a.verdict is Verdict.HARDWARE:
        found += _witness(a, a.primary, thresholds)
    rows = [f for f in a.findings if f.role == "own" and f.verdict in _OPEN and f.code.isupper()]
    rows = sorted(rows, key=lambda f: f != a.primary)[:MOST]
    several = len({f.code for f in rows}) > 1
    for finding in rows:
        lead = f"{finding.code}: " if several else ""
        found += [Change(c.kind, lead + c.text, c.at) for c in _of_finding(finding, thresholds, catalogue)]
    if a.verdict is Verdict.AMBIGUOUS:
        found.append(Change("person", "nothing acts alone on what is ambiguous: a person decides"))
    return tuple(sorted(dict.fromkeys(found), key=lambda change: KINDS.index(change.kind)))


def group_of(code: str) -> str:
    """The row of `WITNESSES` for a code that may act alone; empty where only a standing reading bears it out."""
    if code in HOST:
        return "host"
    if code in GONE:
        return "gone"
    if code in WORN:
        return "worn"
    if code == _ECS:
        return "ecs"
    return "number" if code.startswith("XID_") or code in _RESET else ""


def _witness(a: Assessment, primary: Finding, thresholds: Thresholds) -> list[Change]:
    """Which second word is missing, and until when it is waited for."""
    if a.may_act or "witness" not in a.may_act_why:  # else something speaks against it, and no witness helps
        return []
    missing = {s: words for s, words in WITNESSES.get(group_of(primary.code), {}).items() if s not in primary.sources}
    if thresholds.outside_witness:
        missing = {s: words for s, words in missing.items() if s in OUTSIDE}
    found = []
    if missing:
        found.append(Change("witness", f"a second witness would let it act alone: {_either(list(missing.values()))}"))
    if set(primary.sources) - {"kernel"} and not thresholds.outside_witness:
        found.append(Change("witness", "or the same reading at a second collection time"))
    until = primary.first + thresholds.witness_wait if primary.first else None
    if until and a.next_at and a.next_at <= until:
        found.append(Change("time", "without one by then, a person is asked", until))
    return found


def _of_finding(finding: Finding, thresholds: Thresholds, catalogue: Catalogue | None) -> list[Change]:
    return [*_worse(finding, thresholds), *_recovery(finding, thresholds, catalogue or shipped.load())]


def _worse(finding: Finding, thresholds: Thresholds) -> list[Change]:
    code, window = finding.code, _span(thresholds.repeat_window)
    found = []
    override = thresholds.code_overrides.get(code)
    if isinstance(override, Mapping) and override.get("count"):
        limit = f"{override['count']} times within {_span(timedelta(seconds=float(override.get('window_s') or 0)))}"
        found.append(Change("worse", f"{limit}, by the policy, raises it"))
    if code == "ECS_AGENT_DISCONNECTED" and finding.verdict is Verdict.UNKNOWN:
        at = finding.first + thresholds.agent_disconnect if finding.first else None
        found.append(Change("time", "if the agent is still away then, a person is asked", at))
    elif finding.verdict is Verdict.AMBIGUOUS and code in FIRST_TIME:
        found.append(Change("worse", "the same on this GPU after a reboot makes it hardware: replace"))
    elif finding.verdict is Verdict.HARDWARE and finding.action is Action.REBOOT and code in RESET_CLASS:
        found.append(Change("worse", "the same on this GPU after a reboot means replace"))
    elif finding.verdict is Verdict.WORKLOAD and (code in MOVING or code == "XID_94"):
        again = "again on this GPU" if code == "XID_94" else "again on this GPU from another application"
        found.append(Change("worse", f"{again} within {window} puts it before a person"))
    if finding.verdict is Verdict.AMBIGUOUS and code.startswith("XID_"):
        found.append(Change("worse", "the driver asking for a reset or reboot of this GPU makes it hardware: reboot"))
    return found


def _recovery(finding: Finding, thresholds: Thresholds, catalogue: Catalogue) -> list[Change]:
    code = finding.code
    if code in WORN:
        return [Change("recovery", "nothing but another GPU: no reset brings spare parts back")]
    if finding.verdict is Verdict.WORKLOAD:
        at = finding.last + thresholds.shown_for if finding.last else None
        return [Change("recovery", "it fades when no such line comes again", at)]
    if code in GONE:
        return [Change("recovery", "NVML reading the GPU again since would leave it to be watched")]
    if ends := next((words for begin, words in _ENDS if code.startswith(begin)), ""):
        return [Change("recovery", ends)]
    if code.startswith("XID_") and catalogue.get(code).known:
        return [Change("recovery", "the driver taking its wish for a recovery step back, or a reboot without the line")]
    return [Change("recovery", "a reboot without the line: what was before it counts no more")]


def of_json(data: Any) -> Assessment | None:
    """An assessment as a case keeps it; None where it cannot be read as one."""
    try:
        findings = tuple(_finding(row) for row in data.get("findings") or [])
        primary = _finding(data["primary"]) if data.get("primary") else None
        return Assessment(
            verdict=Verdict(data["verdict"]), action=Action(data["action"]), findings=findings,
            may_act=bool(data.get("may_act")), may_act_why=str(data.get("may_act_why") or ""),
            witnesses=tuple(data.get("witnesses") or ()), primary=primary, why=str(data.get("why") or ""),
            next_at=_time(data.get("next_at")),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _finding(row: Mapping[str, Any]) -> Finding:
    known = {f.name for f in fields(Finding)}
    values = {name: value for name, value in row.items() if name in known}
    values |= {"verdict": Verdict(row["verdict"]), "action": Action(row["action"]), "sources": tuple(row["sources"])}
    values |= {"first": _time(row.get("first")), "last": _time(row.get("last"))}
    return Finding(**values)


def _time(value: Any) -> datetime | None:
    return parse_time(value) if isinstance(value, str) else value if isinstance(value, datetime) else None


def _either(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _span(length: timedelta) -> str:
    minutes = length.total_seconds() / 60
    return f"{minutes / 60:.0f} h" if minutes >= 100 else f"{minutes:.0f} min"
