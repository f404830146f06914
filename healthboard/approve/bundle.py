"""The support bundle of an instance as a download; that it was taken, and by whom, is on record."""

from __future__ import annotations

import re
import tempfile

from django.db import transaction
from django.http import FileResponse, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from healthboard import clock
from healthboard.approve.by_hand import find
from healthboard.approve.web import actor_of
from healthboard.audit.record import record
from healthboard.cases import bundle as bundles
from healthboard.pages import page
from healthboard.people import access

#: of the packed file, before it goes to disk
IN_MEMORY = 4 * 1024 * 1024


@page
@require_POST
def bundle(request: HttpRequest, pk: int) -> HttpResponse:
    found, names = find(request, pk), request.POST.get("names") != "out"
    actor = actor_of(request)
    # the answer closes it
    into = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
    try:
        files = bundles.write(into, found, access.seeing(request.user), names=names, by=actor.name)
    except BaseException:
        into.close()
        raise
    with transaction.atomic():
        summary = f"support bundle of {found} taken, process names {'included' if names else 'left out'}"
        record("instance.bundle", f"instance:{found.pk}", summary, actor=actor, instance=found,
               payload={"files": len(files), "names": names})  # fmt: skip
    into.seek(0)
    safe = re.sub(r"[^A-Za-z0-9-]", "", found.instance_id) or "instance"
    name = f"healthboard-{safe}-{clock.now():%Y%m%dT%H%M%SZ}.zip"
    return FileResponse(into, as_attachment=True, filename=name, content_type="application/zip")
