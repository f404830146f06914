"""Every page that there is, found in the URL configuration, so that a new one is measured and looked at by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.urls import URLPattern, get_resolver

from healthboard.cases.models import Case
from healthboard.fleet.models import Gpu
from healthboard.repairs.models import Repair

#: of Django's own, of machines, and of people's log-in
_NOT_PAGES = ("admin/", "api/", "accounts/", "healthz", "readyz", "metrics")
_PART = re.compile(r"<(?:(\w+):)?(\w+)>")


def every() -> dict[str, str]:
    """URL name -> address, filled in from the database's rows; a page whose rows are not there is left out.

    Addresses that only take a POST are among them: they answer 405.
    """
    cases = Case.objects.filter(instance__isnull=False).order_by("pk")
    case = cases.filter(state="WAITING").first() or cases.first()
    group = Case.objects.filter(instance=None, breaker__isnull=False).first()
    repair = Repair.objects.filter(closed_at=None).order_by("pk").first() or Repair.objects.first()
    condemned = Gpu.objects.filter(condemned_at__isnull=False).first()
    rows = {
        "cases": case and case.pk, "instances": case and case.instance_id, "repairs": repair and repair.pk,
        "condemned": condemned and condemned.pk, "release": group and group.pk,
    }  # fmt: skip
    found = {}
    for name, route in _routes(get_resolver().url_patterns, ""):
        if not route.startswith(_NOT_PAGES) and (address := _filled(route, name, rows)):
            found[name] = address
    return found


def _routes(patterns: list, before: str) -> Iterator[tuple[str, str]]:
    for one in patterns:
        route = before + str(one.pattern)
        if isinstance(one, URLPattern):
            yield one.name or route, route
        else:
            yield from _routes(one.url_patterns, route)


def _filled(route: str, name: str, rows: dict) -> str:
    values = {"int": rows.get(name) or rows.get(route.split("/")[0]), "slug": {"act": "drain"}.get(name, "override")}
    wanted = [kind for kind, _ in _PART.findall(route)]
    if (wanted and any(not values.get(kind) for kind in wanted)) or wanted.count("slug") > 1:
        return ""
    return "/" + _PART.sub(lambda part: str(values[part[1]]), route)
