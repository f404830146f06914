"""Hardware that was given back as broken and is here again: a person decides, whatever else it shows."""

from __future__ import annotations

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import Claims

CODE = "GPU_CONDEMNED_RETURNED"


def apply(evidence: Evidence, claims: Claims) -> None:
    """A claim for each condemned GPU that a fresh reading shows: NVML's, or the registration with ECS."""
    known = evidence.context.condemned
    if not known:
        return
    for r in evidence.now_of("GPU_STATUS"):
        if r.gpu in known:
            claims.add(CODE, r.gpu, reading=r)
    for r in evidence.now_of("ECS_GPUS"):
        for gpu in r.value if isinstance(r.value, list | tuple) else ():
            if gpu in known:
                claims.add(CODE, gpu, reading=r)
    for claim in claims.of(CODE):
        claim.why = f"this GPU was given back as broken ({known[claim.gpu or '']}) and is here again"
