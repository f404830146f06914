"""What is wrong, in one sentence, in terms of jobs where one stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.db.models import QuerySet

from healthboard import words
from healthboard.cases.models import Case
from healthboard.cases.standstill import Standstill, of_cases
from healthboard.diagnosis import catalogue
from healthboard.fleet.models import Gpu


def standing(see: Callable[..., QuerySet], case: Case) -> Standstill | None:
    return of_cases(see, [case]).get(case.pk)


def in_job_terms(told: Standstill, victims: int) -> str:
    """``Job x stands still: 4 nodes with 32 GPUs are idle; …``. What began it, and when, stands beside it."""
    name = f"Job {words.listing(list(told.jobs))}" if told.jobs else "A job"
    size = f"{words.count(told.nodes, 'node')} with {words.count(told.gpus, 'GPU')}"
    many = len(told.jobs) > 1
    name = name.replace("Job ", "Jobs ", 1) if many else name
    if not told.idle:
        return f"{name} {'run' if many else 'runs'} on {size} and {'need' if many else 'needs'} this one."
    after = (
        f"; {words.count(victims, 'victim')} show{'s' if victims == 1 else ''} only what followed" if victims else ""
    )
    return f"{name} {'stand' if many else 'stands'} still: {size} are idle{after}."


def first_fault(found: Any, case: Case, gpus: Iterable[Gpu]) -> dict[str, Any]:
    """The decisive code in words, its GPU, and when it was first seen."""
    primary = getattr(found, "primary", None)
    index = next((gpu.index for gpu in gpus if case.gpu and case.gpu in (gpu.uuid, gpu.pci)), None)
    return {
        "what": catalogue.get(case.code).title,
        "gpu": f"GPU {index}" if index is not None else case.gpu,
        "at": primary.first if primary is not None and primary.first else case.evidence_at,
    }
