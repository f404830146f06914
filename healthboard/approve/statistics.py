"""Statistics of the fleet over time: a page with plots and the tables that tell the same, as CSV and as JSON."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import render

from healthboard import clock, spans, words
from healthboard.cases import statistics
from healthboard.exports import stream
from healthboard.fleet.models import Pool
from healthboard.pages import page
from healthboard.people import access

#: causes that the page lists; the rest is one row
MOST = 20


@page
def statistics_page(request: HttpRequest) -> HttpResponseBase:
    params = {name: request.GET.get(name, "").replace("\0", "").strip()[:255] for name in ("pool", "since", "until", "by")}  # fmt: skip
    see = access.seeing(request.user)
    since, until, by = statistics.span(
        spans.begin(params["since"]), spans.end(params["until"]), params["by"], clock.now()
    )
    found = statistics.figures(see, since, until, by, params["pool"])
    match request.GET.get("format"):
        case "csv":
            return stream("statistics", statistics.COLUMNS, map(statistics.row, found.buckets), "csv", see)
        case "json":
            return JsonResponse(statistics.plain(found))
        case "plots":
            return JsonResponse(_plots(found))
    pools = see(Pool.objects.all(), pool="name").order_by("name").values_list("name", flat=True).distinct()
    return render(request, "statistics.html", _context(found, params, list(pools)))


def _context(found: statistics.Figures, params: dict[str, str], pools: list[str]) -> dict[str, Any]:
    whole = found.whole
    return {
        "found": found,
        "whole": whole,
        "params": params,
        "filtered": any(params.values()),
        "pools": pools,
        "last": found.until - statistics.STEPS["day"],
        "false_means": statistics.FALSE_IN_WORDS,
        "false_percent": None if whole.false_share is None else round(whole.false_share * 100, 1),
        "deciders": [(words_, whole.repairs[name]) for name, words_ in statistics.DECIDERS.items()],
        "repairs": sum(whole.repairs.values()),
        "outcomes": [(words.RESOLUTIONS.get(name, name), count) for name, count in whole.outcomes.most_common()],
        "spreads": [(words_, whole.spread(name)) for name, words_ in statistics.SPANS.items()],
        "causes": [(one, sum(one.outcomes[name] for name in words.HELPED)) for one in found.causes[:MOST]],
        "causes_more": sum(one.cases for one in found.causes[MOST:]),
        "rows": [(bucket, bucket.spread("decide_person"), bucket.spread("repair")) for bucket in reversed(found.buckets)],
    }  # fmt: skip


def _plots(found: statistics.Figures) -> dict[str, Any]:
    """As `plots.js` takes it: by time, one plot for each metric, its series named."""
    buckets = found.buckets

    def minutes(name: str) -> list[float | None]:
        return [None if (m := b.spread(name).median) is None else round(m / 60, 2) for b in buckets]

    def plot(title: str, unit: str, **series: list[Any]) -> dict[str, Any]:
        names = [name.replace("_", " ") for name in series]
        return {"title": title, "unit": unit, "names": names, "values": list(series.values())}

    return {
        "times": [b.start.timestamp() for b in buckets if b.start],
        "dates": True,
        "marks": [],
        "gpus": [],
        "clocks": {"names": [], "values": []},
        "metrics": [
            plot("Cases opened", "", all=[b.cases for b in buckets], false_alarms=[b.false_alarms for b in buckets]),
            plot("Repairs, by who decided", "", **{name: [b.repairs[name] for b in buckets] for name in statistics.DECIDERS}),
            plot("Repairs, by their end", "", verified=[b.ended["SUCCEEDED"] for b in buckets],
                 failed=[b.ended["FAILED"] for b in buckets]),
            plot("Time to detect, median", "min", to_the_case=minutes("detect")),
            plot("Time to decide, median", "min", policy=minutes("decide_policy"), person=minutes("decide_person")),
            plot("Time to repair, median", "min", to_the_verified_end=minutes("repair")),
        ],
    }  # fmt: skip
