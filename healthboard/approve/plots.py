"""What the flight recorder kept, for the plots of a case and of an instance: JSON for the script, CSV for people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.http import HttpRequest, HttpResponse, JsonResponse

from healthboard import clock
from healthboard.approve.by_hand import find as find_instance
from healthboard.cases.models import Case
from healthboard.exports import export
from healthboard.fleet import recorder
from healthboard.fleet.models import Gpu, Instance
from healthboard.fleet.recorder import Recording
from healthboard.pages import page
from healthboard.people import access
from healthboard.refusals import NotFound

#: a recording tells of the minutes before its fault, and arrives soon after it
BEFORE, AFTER = timedelta(minutes=15), timedelta(minutes=30)


def of_case(case: Case, gpus: Iterable[Gpu]) -> Recording | None:
    """Around the time of the case; None for a group, or where no node sent a recording."""
    if case.instance is None:
        return None
    since = min(case.opened_at, case.evidence_at) - BEFORE
    until = min(case.closed_at or clock.now(), case.opened_at + AFTER)
    return recorder.recorded(case.instance, since=since, until=until, gpu=case.gpu, indexes=_indexes(gpus))


def of_instance(instance: Instance, gpus: Iterable[Gpu], gpu: str = "") -> Recording | None:
    """The newest one, with `gpu` (UUID) in question."""
    return recorder.recorded(instance, gpu=gpu, indexes=_indexes(gpus))


def _indexes(gpus: Iterable[Gpu]) -> dict[str, int | None]:
    return {gpu.uuid: gpu.index for gpu in gpus}


@page
def case_recorder(request: HttpRequest, case_id: int) -> HttpResponse:
    from healthboard.approve.case import find

    found = find(request, case_id)
    return _answer(request, f"case-{case_id}", of_case(found, found.instance.gpus.all() if found.instance else ()))


@page
def instance_recorder(request: HttpRequest, pk: int) -> HttpResponse:
    found = find_instance(request, pk)
    return _answer(request, found.instance_id, of_instance(found, found.gpus.all(), request.GET.get("gpu", "")[:96]))


def _answer(request: HttpRequest, name: str, recording: Recording | None) -> HttpResponse:
    if recording is None:
        raise NotFound("No flight recording is kept for it.")
    if request.GET.get("format") == "csv":
        rows = (
            {"at": at, "gpu": track.uuid, "index": track.index,
             **{m.name: track.values[m.name][n] for m in recorder.METRICS},
             recorder.CLOCKS: track.values[recorder.CLOCKS][n]}
            for track in recording.tracks for n, at in enumerate(recording.times)
        )  # fmt: skip
        columns = ("at", "gpu", "index", *(m.name for m in recorder.METRICS), recorder.CLOCKS)
        return export(f"recorder-{name}", columns, rows, "csv", access.seeing(request.user))
    return JsonResponse(recording.plain())
