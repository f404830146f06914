"""A number that this architecture does not raise is doubtful unless another source agrees."""

from __future__ import annotations

from healthboard.diagnosis import witness
from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.rules.claims import Claim, Claims, number_of
from healthboard.diagnosis.signals import Action, Verdict

#: Older than NVIDIA's catalogue: they may still raise what it calls unused.
_OLD = frozenset({"volta", "turing"})


def _unused(evidence: Evidence, claim: Claim) -> bool:
    known = evidence.catalogue.get(claim.code)
    return claim.rule == "catalogue" and claim.verdict is Verdict.AMBIGUOUS and known.disagreement.startswith("unused")


def apply(evidence: Evidence, claims: Claims) -> None:
    architecture = evidence.context.architecture
    for claim in claims:
        if architecture in _OLD and _unused(evidence, claim):
            why = f"a number without a use since Ampere, seen on {architecture}: it may mean what it meant then"
            claim.set(Verdict.WATCH, Action.WATCH, why, "unused-number")
        if claim.verdict is not Verdict.HARDWARE or number_of(claim.code) is None:
            continue
        if evidence.catalogue.get(claim.code).raised_by(architecture) is not False:
            continue
        if {*claim.sources, *(source for source, _ in witness.others(evidence, claims, claim))} - {"kernel"}:
            continue
        why = f"{claim.why}; but NVIDIA's table does not list this number for {architecture}: is the line genuine?"
        claim.set(Verdict.AMBIGUOUS, Action.DIAGNOSE, why, "not-for-this-architecture")
