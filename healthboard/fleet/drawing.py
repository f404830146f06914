"""The fleet's map: one cell for each instance, drawn as reused SVG symbols and joined here, since a template takes
many times longer. A drawing is kept until the fleet changes."""

from __future__ import annotations

import hashlib
import html
import itertools
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet, Sum
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from healthboard import clock, marks
from healthboard.diagnosis.signals import VERDICT_ORDER
from healthboard.fleet import checks, queries
from healthboard.fleet.models import Gpu, Instance, Source, Task
from healthboard.fleet.sources import patience
from healthboard.fleet.symbols import SIZE, State, symbol, words_of
from healthboard.pages import around

#: what cells are grouped by -> the filter of the table that gives the same instances
GROUPS = ("zone", "pool", "job", "workload")
#: cells side by side and one below the other in one rack: as wide as a phone
WIDE, HIGH = 14, 10
#: (cells at most, size of one): a small fleet is drawn larger, so that the bars of its GPUs can be told apart
LARGER = ((120, 2.0), (400, 1.5))
#: drawings that are kept, and how long one may stand though nothing was told: silence, too, changes what is known
KEEP, MOST_S = 6, 30
_kept: OrderedDict[str, Drawn] = OrderedDict()


class Cell(NamedTuple):
    pk: int
    instance_id: str
    code: str
    group: str
    state: State


@dataclass(frozen=True, slots=True)
class Group:
    """One heading with its cells, finished; `table` is the query string of the same instances as a table."""

    name: str
    size: int
    table: str  # empty where no filter gives them
    drawn: SafeString


@dataclass(frozen=True, slots=True)
class Drawn:
    version: str  # of what it shows
    symbols: SafeString
    groups: list[Group]
    cells: int
    gpus_bad: int
    counts: list[tuple[str, int]]  # by verdict, whatever the filter for it, worst first


def drawn(seen: QuerySet[Instance], scope: tuple[Any, ...], params: dict[str, str], group: str) -> Drawn:
    """The map of the instances among `seen` under the filters; `scope` is a value for what `seen` lets through."""
    tick = [queries.fleet_version(), int(clock.now().timestamp() // MOST_S)]
    key = hashlib.sha256(repr([tick, scope, sorted(params.items()), group]).encode()).hexdigest()
    found = _kept.get(key)
    if found is None:
        cells = read(seen, params, group)
        counts = queries.health_counts(seen, params) if params["health"] else _counts(cells)
        found = draw(cells, counts, params, group)
    _kept[key] = found
    _kept.move_to_end(key)
    while len(_kept) > KEEP:
        _kept.popitem(last=False)
    return found


def _counts(cells: list[Cell]) -> list[tuple[str, int]]:
    """(verdict, cells), worst first; without those that there are none of."""
    found = Counter(cell.state.verdict for cell in cells)
    return [(str(verdict), found[verdict]) for verdict in VERDICT_ORDER if found[verdict]]


def read(seen: QuerySet[Instance], params: dict[str, str], group: str) -> list[Cell]:
    """Cells by group, pool and age: a cell keeps its place whatever its health does."""
    rows = queries.instances(seen, params).annotate(heard=_heard()).order_by("pool__name", "pk")
    columns = ("pk", "instance_id", "verdict", "verdict_code", "zone", "pool__name", "gpus_expected", "heard",
               "open_case__state", "open_repair__state", "gone_at")  # fmt: skip
    bad = _bad_gpus()
    tasks = _by_tasks(group) if group in queries.OF_TASKS else {}
    cells = []
    for pk, name, verdict, code, zone, pool, gpus, heard, case, repair, gone in rows.values_list(*columns):
        state = State(verdict, gpus or 0, bad.get(pk, 0), not heard, queries.stage(case, repair, gone))
        where = zone if group == "zone" else pool if group == "pool" else tasks.get(pk)
        cells.append(Cell(pk, name, code, where or "", state))
    return sorted(cells, key=lambda cell: (not cell.group, cell.group))


def _bad_gpus() -> dict[int, int]:
    """Instance -> its GPUs that are not good, as a mask by index; one without an index counts as the first."""
    masks: dict[int, int] = {}
    rows = Gpu.objects.exclude(status__in=["ok", ""]).filter(instance__gone_at=None, instance__isnull=False)
    for instance, index in rows.values_list("instance", "index"):
        masks[instance] = masks.get(instance, 0) | 1 << min(index or 0, 15)
    return masks


def _heard() -> ExpressionWrapper:
    """Whether an instance's node spoke within what is borne of its place; else its GPUs are not known to be good."""
    now = clock.now()
    places = {(s.account_id, s.region): patience(s) for s in Source.objects.filter(name="node")}
    heard, elsewhere = Q(pk__in=[]), Q()
    for (account, region), borne in places.items():
        here = Q(account=account, region=region)
        heard |= here & Q(node_seen_at__gte=now - borne)
        elsewhere &= ~here
    return ExpressionWrapper(heard | elsewhere & Q(node_seen_at__gte=now - checks.STALE), BooleanField())


def _by_tasks(group: str) -> dict[int, str]:
    """Instance -> the job or workload that holds most of its GPUs; daemons are nobody's work."""
    column = queries.OF_TASKS[group]
    rows = Task.objects.filter(instance__gone_at=None, instance__isnull=False).exclude(workload__kind="DAEMON")
    held = rows.values_list("instance", column).annotate(gpus=Sum("gpus")).order_by("gpus", column)
    return {instance: name for instance, name, _ in held if name}


def draw(cells: list[Cell], counts: list[tuple[str, int]], params: dict[str, str], group: str) -> Drawn:
    """Cells that stand by group -> the map; `counts` as `queries.health_counts`."""
    numbers: dict[State, int] = {}
    groups = []
    scale = next((size for most, size in LARGER if len(cells) <= most), 1.0)
    for name, members in itertools.groupby(cells, key=lambda cell: cell.group):
        parts = [(cell, numbers.setdefault(cell.state, len(numbers))) for cell in members]
        table = urlencode({key: value for key, value in {**params, group: name}.items() if value}) if name else ""
        groups.append(Group(name, len(parts), table, _section(name or f"no {group}", table, parts, scale)))
    defined = "".join(symbol(f"k{number}", state) for state, number in numbers.items())
    mark = hashlib.sha256(f"{counts} {defined}".encode())
    for one in groups:
        mark.update(one.drawn.encode())
    return Drawn(
        mark.hexdigest()[:16], mark_safe(defined), groups, len(cells),
        sum(cell.state.bad.bit_count() for cell in cells), counts,
    )  # fmt: skip


def _section(title: str, table: str, parts: list[tuple[Cell, int]], scale: float) -> SafeString:
    worse = [(verdict, n) for verdict, n in _counts([cell for cell, _ in parts]) if verdict != "HEALTHY"]
    step = WIDE * HIGH
    return format_html(
        '<section><h2>{} <span class="count">{}</span>{}</h2><div class="racks">{}</div></section>',
        format_html('<a href="{}?{}">{}</a>', reverse("fleet"), table, title) if table else title,
        len(parts),
        mark_safe("".join(f" {marks.mark('verdict', verdict, bare=True, word=str(n))}" for verdict, n in worse)),
        mark_safe("".join(_rack(parts[start : start + step], scale) for start in range(0, len(parts), step))),
    )


def _rack(parts: list[tuple[Cell, int]], scale: float) -> str:
    rows = []
    for start in range(0, len(parts), WIDE):
        line = "".join(_cell(cell, number, x) for x, (cell, number) in enumerate(parts[start : start + WIDE]))
        rows.append(f'<g transform="translate(0 {start // WIDE * SIZE})">{line}</g>')
    wide, high = min(len(parts), WIDE) * SIZE, len(rows) * SIZE
    size = f'width="{wide * scale:g}" height="{high * scale:g}"'
    return f'<svg class="rack" {size} viewBox="0 0 {wide} {high}">{"".join(rows)}</svg>'


def _cell(cell: Cell, number: int, x: int) -> str:
    """A link to the instance; the title of one that is as it should be says only which it is, to keep the page small."""
    title = html.escape(words_of(cell.instance_id, cell.code, cell.state))
    before, behind = around("instance")
    return f'<a href="{before}{cell.pk}{behind}"><title>{title}</title><use href="#k{number}" x="{x * SIZE}"/></a>'
