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
#: of a plot of times: unit, its seconds, and below how many seconds it is taken
UNITS = (("s", 1, 300), ("min", 60, 5 * 3600), ("h", 3600, 4 * 86400), ("d", 86400, float("inf")))


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

    def time(title: str, **spans: str) -> dict[str, Any]:
        """Medians in the unit that the longest of them is said in."""
        medians = {label: [b.spread(name).median for b in buckets] for label, name in spans.items()}
        most = max((m for row in medians.values() for m in row if m is not None), default=0)
        unit, seconds = next(one for one in UNITS if most < one[2])[:2]
        told = {label: [None if m is None else round(m / seconds, 2) for m in row] for label, row in medians.items()}
        return plot(title, unit, **told)

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
            time("Time to detect, median", to_the_case="detect"),
            time("Time to decide, median", policy="decide_policy", person="decide_person"),
            time("Time to repair, median", to_the_verified_end="repair"),
        ],
    }  # fmt: skip
