"""Lists as CSV and JSON: the same rows as the page, with the same filters."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.http import HttpResponse, JsonResponse

FORMATS = ("csv", "json")
#: a cell that begins so is run as a formula by a spreadsheet
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def cell(value: Any) -> str:
    """A value as text; what a spreadsheet would run is led by an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def export(name: str, items: Iterable[dict[str, Any]], kind: str) -> HttpResponse:
    """`items` (dicts with the same keys) as a file of that name; JSON is ``{"items": [...]}``."""
    if kind == "json":
        return JsonResponse({"items": list(items)})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for number, item in enumerate(items):
        if number == 0:
            writer.writerow(item)
        writer.writerow(cell(value) for value in item.values())
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)
