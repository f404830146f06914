"""Policies through the API: as they are, as YAML, a changed file checked, tried on what was recorded, and saved."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from healthboard.api import more, schemas
from healthboard.api.auth import Throttle, actor_of, may_view
from healthboard.api.errors import READ, WRITE
from healthboard.api.lists import CSV, After, Limit, page
from healthboard.cases import preview as previews
from healthboard.fleet import foreign
from healthboard.people import access
from healthboard.policies import exchange
from healthboard.policies.matching import MATCH_KEYS
from healthboard.policies.models import Policy
from healthboard.policies.visible import visible

router = Router(tags=["policies"], throttle=[Throttle()])
#: of what works for seconds each time, and for how long at most before a file is given up
COSTLY, SECONDS = [Throttle("20/m", "policies")], 10.0


@router.get("/policies", response={200: more.PolicyList, **READ}, operation_id="list_policies", openapi_extra=CSV)
def policies(
    request: HttpRequest, after: After = None, limit: Limit = 500, format: schemas.Format = schemas.Format.JSON
):
    """Policies that may match what the caller sees, each as its current version keeps it."""
    may_view(request)
    rows = visible(access.seeing(request.auth)).select_related("current")
    return page(request, rows, _policy, "policies", after, limit, format, more.PolicyItem)


def _policy(row: Policy) -> dict[str, Any]:
    now = row.current
    return {
        "id": row.pk, "name": row.name, "is_default": row.is_default, "enabled": row.enabled,
        "version": now.number if now else None, "match": {k: v for k in MATCH_KEYS if (v := getattr(row, k))},
        "settings": row.settings or {}, "saved_at": now.saved_at if now else None,
        "saved_by": now.saved_by_name if now else "",
    }  # fmt: skip


@router.post("/policies/apply", response={200: more.Applied, **WRITE}, operation_id="apply_policies", throttle=COSTLY)
def apply(request: HttpRequest, payload: more.ApplyIn) -> Any:
    """Save every policy of the YAML that differs, all or none: `manage.py policies apply` under the caller's name. Like
    any edit of a policy it wants an admin who has logged in lately, which a token alone never proves. With `dry_run`
    nothing is saved, and a token will do: a pipeline checks a file, a person saves it."""
    may_view(request)
    reason = payload.reason.strip() or "applied through the API"
    told = {"actor": actor_of(request), "reason": reason, "dry_run": payload.dry_run, "seconds": SECONDS}
    said = exchange.apply(payload.yaml, **told)
    return {"changes": said, "dry_run": payload.dry_run}


@router.get("/policies/export", response={200: more.Exported, **READ}, operation_id="export_policies")
def export(request: HttpRequest) -> Any:
    """The same policies as the list, as one file to keep in git: what `manage.py policies export` prints."""
    may_view(request)
    return {"yaml": exchange.export(visible(access.seeing(request.auth)))}


@router.post(
    "/policies/preview",
    response={200: more.Previewed, **WRITE},
    operation_id="preview_policies",
    throttle=COSTLY,
)
def preview(request: HttpRequest, payload: more.PreviewIn) -> Any:
    """What the policies of the YAML would have done with the recorded evidence of the last days in the caller's places,
    beside what was done. Nothing is saved, and a token will do."""
    may_view(request)
    told = {"actor": actor_of(request), "reason": "preview", "dry_run": True, "seconds": SECONDS}
    exchange.apply(payload.yaml, **told)  # whatever is wrong with it
    see = access.seeing(request.auth)
    found = previews.of(see, *exchange.read(payload.yaml), days=payload.days)
    names = (
        "days",
        "since",
        "until",
        "total",
        "looked",
        "cut",
        "cases",
        "alike",
        "counterfactual",
        "by_rules",
        "unreadable",
        "running",
        "more",
    )
    lines = [
        {
            "case": line.case.pk, "title": line.case.title, "at": line.at, "then": line.then.words, "now": line.now.words,
            "done": line.done, "why": list(line.why), "counterfactual": line.counterfactual,
        }
        for line in found.lines
    ]  # fmt: skip
    sums = [dict(zip(("then", "now", "cases", "counterfactual"), row, strict=True)) for row in found.sums]
    return foreign.plain(see, {**{name: getattr(found, name) for name in names}, "sums": sums, "lines": lines})
