"""The picture of an instance: its GPUs, their links, and its neighbours that show the same. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet

from healthboard.fleet.models import Gpu, Instance

#: cell and gap of the drawing, in its own units
WIDE, HIGH, GAP, BAR = 104, 62, 12, 30
MOST_NEIGHBOURS = 12


@dataclass(frozen=True, slots=True)
class Cell:
    gpu: Gpu
    x: int
    y: int
    this: bool  # the one in question
    links: str  # up, down, unknown, none
    down: int
    link_from: int  # the line from the cell to the bar
    link_to: int

    @property
    def middle(self) -> int:
        return self.x + WIDE // 2


@dataclass(frozen=True, slots=True)
class Picture:
    cells: list[Cell]
    width: int
    height: int
    bar: int  # top of the bar that stands for the links between the GPUs; 0 where none is told
    words: list[str]


def picture(gpus: Sequence[Gpu], expected: int | None, focus: str = "") -> Picture | None:
    """Two rows of cells with the links between them; None where nothing is known of the GPUs."""
    if not gpus:
        return None
    linked = any(_links(gpu)[0] in ("up", "down") for gpu in gpus)
    columns = (len(gpus) + 1) // 2 if len(gpus) > 2 else len(gpus)
    bar = GAP + HIGH + GAP if linked else 0
    second = bar + BAR + GAP if linked else HIGH + 2 * GAP
    cells = []
    for number, gpu in enumerate(gpus):
        row, column = divmod(number, columns)
        y = GAP if row == 0 else second
        state, down = _links(gpu) if linked else ("none", 0)
        cells.append(
            Cell(gpu, GAP + column * (WIDE + GAP), y, bool(focus) and focus in (gpu.uuid, gpu.pci), state, down,
                 y + HIGH if row == 0 else bar + BAR, bar if row == 0 else y)
        )  # fmt: skip
    rows = 1 if len(gpus) <= columns else 2
    height = (second if rows == 2 else (bar + BAR if linked else GAP)) + (HIGH if rows == 2 or not linked else 0) + GAP
    return Picture(cells, GAP + columns * (WIDE + GAP), height, bar, _words(cells, expected))


def _links(gpu: Gpu) -> tuple[str, int]:
    told = gpu.measurements if isinstance(gpu.measurements, dict) else {}
    down = told.get("nvlink_down")
    if isinstance(down, bool) or not isinstance(down, int):
        return "unknown", 0
    return ("down", down) if down else ("up", 0)


def _words(cells: list[Cell], expected: int | None) -> list[str]:
    found = []
    this = next((cell for cell in cells if cell.this), None)
    if this is not None:
        gpu = this.gpu
        known = ", ".join(filter(None, (gpu.name, gpu.pci, f"serial {gpu.serial}" if gpu.serial else "")))
        found.append(
            f"{_name(gpu)} of {expected or len(cells)} is the one in question{f' ({known})' if known else ''}."
        )
    if expected and len(cells) < expected:
        found.append(f"{len(cells)} of {expected} GPUs were ever told by its node.")
    broken = [cell for cell in cells if cell.links == "down"]
    unknown = [cell for cell in cells if cell.links == "unknown"]
    if broken:
        found.append("NVLink down: " + ", ".join(f"{cell.down} on {_name(cell.gpu)}" for cell in broken) + ".")
    elif all(cell.links == "up" for cell in cells):
        found.append("All NVLinks are up.")
    if unknown and len(unknown) < len(cells):
        found.append("Links unknown: " + ", ".join(_name(cell.gpu) for cell in unknown) + ".")
    return found


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}" if gpu.index is not None else gpu.uuid


def neighbours(see: Callable[..., QuerySet], of: Instance, code: str) -> dict[str, Any]:
    """Of the same zone: how many instances there are, how many show the same code now, and which of those the person
    sees (`access.seeing`), and how many more there are. At most two queries."""
    if not of.zone:
        return {}
    near = Instance.objects.filter(account=of.account_id, region=of.region, zone=of.zone, gone_at=None)
    near = near.exclude(pk=of.pk)
    sums = near.aggregate(total=Count("pk"), showing=Count("pk", filter=Q(verdict_code=code)))
    same = []
    if code and sums["showing"]:
        rows = see(near.filter(verdict_code=code)).only("instance_id").order_by("instance_id")
        same = list(rows[:MOST_NEIGHBOURS])
    return {"zone": of.zone, **sums, "same": same, "more": sums["showing"] - len(same)}
