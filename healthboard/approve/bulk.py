"""Careful bulk: explicit rows with what was seen of each, like cases only, a page that repeats it in words, and a
result for each row."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from healthboard import digits
from healthboard.approve.web import actor_of, may
from healthboard.cases import answers
from healthboard.cases.models import Case
from healthboard.fleet import foreign
from healthboard.pages import page
from healthboard.people import access
from healthboard.refusals import Invalid, NotAllowed, Refusal

MOST = 50
KINDS = {"approve": "Approve", "dismiss": "Dismiss"}


def _rows(request: HttpRequest) -> list[dict[str, Any]]:
    """The posted rows ``case:plan version:evidence hash``; refused as a whole if one is damaged."""
    rows = []
    for word in dict.fromkeys(request.POST.getlist("row")):
        number, _, rest = word.partition(":")
        version, _, evidence = rest.partition(":")
        case, plan = digits.number(number), digits.number(version)
        if case is None or plan is None or not evidence:
            raise Invalid("A row of the form is damaged: go back and select again.")
        rows.append({"case_id": case, "plan_version": plan, "evidence_hash": evidence})
    if not rows:
        raise Invalid("No case was selected: tick the cases, then choose what to do with them.")
    if len(rows) > MOST:
        raise Invalid(f"{len(rows)} cases were selected; at most {MOST} can be answered at once.")
    return rows


def _may_at_all(request: HttpRequest) -> None:
    """Whoever may decide nothing is refused as a whole; where somebody may, is looked at row by row."""
    if why := access.why_not(request.user, "decide"):
        raise NotAllowed(why)


def _kind(request: HttpRequest) -> str:
    kind = request.POST.get("kind", "")
    if kind not in KINDS:
        raise Invalid("Choose to approve or to dismiss.")
    return kind


def _cases(request: HttpRequest, rows: list[dict[str, Any]]) -> dict[int, Case]:
    """Those of the posted cases that the person may see; to be shown, not to be saved."""
    wanted = [row["case_id"] for row in rows]
    seen = access.within(request.user, Case.objects.all())
    found = seen.select_related("instance", "pool", "account", "policy_version").filter(pk__in=wanted)
    return {case.pk: case for case in foreign.rows(access.seeing(request.user), found, "title", "plan")}


@page
@require_POST
def confirm(request: HttpRequest) -> HttpResponse:
    """Repeats count and targets in words, one form for each kind of like cases. Changes nothing."""
    _may_at_all(request)
    rows, kind = _rows(request), _kind(request)
    cases = _cases(request, rows)
    known = [{**row, "case": cases[row["case_id"]]} for row in rows if row["case_id"] in cases]
    for row in known:
        row["changed"] = (row["plan_version"], row["evidence_hash"]) != (
            row["case"].plan_version, row["case"].evidence_hash,
        )  # fmt: skip
        row["why_not"] = may(request, "decide", row["case"])

    def like(row: dict[str, Any]) -> tuple[str, int, str]:
        case = row["case"]
        return (case.action, case.policy_version_id or 0, case.verdict)

    groups = [
        {"action": key[0], "verdict": key[2], "rows": list(found)}
        for key, found in groupby(sorted(known, key=like), like)
    ]
    return render(request, "bulk.html", {"kind": kind, "verb": KINDS[kind], "groups": groups, "count": len(known)})


@page
@require_POST
def carry_out(request: HttpRequest) -> HttpResponse:
    """Decides each row by itself: one that changed is refused, the others stand."""
    _may_at_all(request)
    rows, kind = _rows(request), _kind(request)
    reason = request.POST.get("reason", "")
    if kind == "dismiss" and not reason.strip():
        raise Invalid("A dismissal needs a reason. Go back and write one: nothing was done.")
    cases = _cases(request, rows)
    if len({(c.action, c.policy_version_id) for c in cases.values()}) > 1:
        raise Invalid(
            "Only cases with the same action under the same policy can be answered together. Nothing was done."
        )
    results = [
        {"case": cases.get(case_id), "case_id": case_id, "refused": isinstance(result, Refusal), "result": result}
        for case_id, result in answers.decide_many(rows, actor=actor_of(request), kind=kind, reason=reason)
    ]
    done = sum(1 for result in results if not result["refused"])
    context = {"kind": kind, "verb": KINDS[kind], "results": results, "done": done, "refused": len(results) - done}
    return render(request, "bulk_done.html", context, status=200 if done else 409)
