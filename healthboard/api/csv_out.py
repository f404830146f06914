"""A list as CSV, with its header row even when it is empty; cells as `healthboard.exports` guards them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpResponse

from healthboard.exports import cell


def answer(name: str, columns: Sequence[str], items: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """`items` under `columns`; a list in a cell is joined by spaces, a mapping is JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    for item in items:
        writer.writerow(cell(_flat(item.get(column))) for column in columns)
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True, default=str) if value else ""
    return " ".join(str(v) for v in value) if isinstance(value, (list, tuple)) else value
