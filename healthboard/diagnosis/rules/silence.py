"""What can no longer be seen, and what has lost its meaning with time."""

from __future__ import annotations

from datetime import datetime

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import Claim, Claims
from healthboard.diagnosis.signals import Action, Reading, Verdict

_GPU_SOURCES = ("nvml", "dcgm")
#: what was announced has happened by then, or was taken back without a word
_ANNOUNCED = frozenset({"EC2_SPOT_INTERRUPTION", "EC2_REBALANCE", "CAPACITY_BLOCK_ENDING"})


def apply(evidence: Evidence, claims: Claims) -> list[datetime]:
    """Adds the gaps, takes away what is past; returns when the next reading turns stale or note fades."""
    later: list[datetime] = []
    _gaps(evidence, claims)
    for r in evidence.fresh():
        if r.name not in ("GAP", "BOOT_ID") and not evidence.expected_silence(r.source):
            later.append(r.last + evidence.thresholds.stale_after)
    for claim in claims:
        fades = claim.verdict in (Verdict.HEALTHY, Verdict.WORKLOAD, Verdict.UNKNOWN) or claim.code in _ANNOUNCED
        if _goes_on(claim) or not fades:
            continue
        over = max(e.last_at or e.at for e in claim.events) + evidence.thresholds.shown_for
        if evidence.now > over and claim.role == "own":
            claims.drop(claim)
        elif claim.role == "own":
            later.append(over)
    return later


def _goes_on(claim: Claim) -> bool:
    """A reading of now shows it. An exporter's last-value gauge does not: it shows the last Xid for ever."""
    return not claim.events or any(r.name != "XID_LAST" for r in claim.readings)


def _gaps(evidence: Evidence, claims: Claims) -> None:
    silent = evidence.stale_sources()
    reasons = [f"{source}: {reason}" for source, (_, reason) in silent.items()]
    since = min((when for when, _ in silent.values()), default=evidence.now)
    no_gpu_source = (
        bool(evidence.context.expected_gpus)
        and not evidence.has("NVML", "GPU_STATUS", "XID_LAST", "GPU_COUNT")
        and not any(source in silent or evidence.expected_silence(source) for source in (*_GPU_SOURCES, "node"))
    )
    if no_gpu_source:
        reasons.append("no source has ever read this instance's GPUs")
    if not reasons:
        return
    claim = claims.add("MONITORING_GAP", reading=Reading("GAP", "; ".join(reasons), "node", since, evidence.now))
    claim.set(Verdict.UNKNOWN, Action.DIAGNOSE, f"nothing may be concluded from silence ({'; '.join(reasons)})", "gap")
