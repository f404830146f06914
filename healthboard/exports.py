"""Lists as CSV and JSON: the same rows as the page, with the same filters, and no name of what the person may not see."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse

from healthboard.fleet import foreign

FORMATS = ("csv", "json")
#: rows of an export; a longer list is exported in parts, by filters
MOST = 20_000
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


def first(rows: Any) -> Any:
    """Of a query, the rows that an export gives, and one more, by which `export` knows that there are more."""
    return rows[: MOST + 1]


def export(
    name: str, columns: Sequence[str], items: Iterable[dict[str, Any]], kind: str, see: foreign.See
) -> HttpResponse:
    """`items` (dicts with the keys `columns`) as a file of that name, for the person of `see` (`access.seeing`); JSON is
    ``{"items": [...], "more": false}``. The header row of a CSV is there even when no row is. Of more than `MOST` the
    first are given, and both say so: JSON by `more`, a CSV, which has no place for it, by its name."""
    found = list(islice(items, MOST + 1))
    more, items = len(found) > MOST, foreign.plain(see, found[:MOST])
    if kind == "json":
        return JsonResponse({"items": items, "more": more})
    part = f"-first-{MOST}" if more else ""
    headers = {"Content-Disposition": f'attachment; filename="{name}{part}.csv"'}
    return HttpResponse("".join(_csv(columns, [items])), content_type="text/csv; charset=utf-8", headers=headers)


def stream(
    name: str, columns: Sequence[str], items: Iterable[dict[str, Any]], kind: str, see: foreign.See
) -> StreamingHttpResponse:
    """Like `export`, for lists of any length: rows are read while they are sent."""
    if kind == "json":
        return StreamingHttpResponse(_json(_parts(items, see)), content_type="application/json")
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(
        _csv(columns, _parts(items, see)), content_type="text/csv; charset=utf-8", headers=headers
    )


def _csv(columns: Sequence[str], parts: Iterable[list[dict[str, Any]]]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    for part in parts:
        writer.writerows([cell(item[column]) for column in columns] for item in part)
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def _json(parts: Iterable[list[dict[str, Any]]]) -> Iterator[str]:
    encoder, between = DjangoJSONEncoder(), ""
    yield '{"items": ['
    for part in parts:
        yield between + ", ".join(map(encoder.encode, part))
        between = ", "
    yield "]}"


def _parts(items: Iterable[dict[str, Any]], see: foreign.See) -> Iterator[list[dict[str, Any]]]:
    """Some hundred rows a piece, as the person may see them: each piece is compressed and sent by itself."""
    rows = iter(items)
    while part := list(islice(rows, 500)):
        yield foreign.plain(see, part)
