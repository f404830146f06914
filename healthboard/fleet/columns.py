"""The columns of the fleet's table: which there are, which are shown, and what each is sorted by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    title: str
    sort: str = ""  # key of `queries.SORTS`, empty where it has no order
    style: str = "wide"  # CSS classes
    usual: bool = False  # shown where nothing else was chosen
    hint: str = ""


#: in the order of the table; instance, health and stage always stand before them
COLUMNS = (
    Column("pool", "Pool", "pool", usual=True),
    Column("zone", "Zone", "zone", usual=True),
    Column("type", "Type", "type", usual=True),
    Column("tasks", "Tasks", "tasks", "num wide", usual=True),
    Column("since", "Since", "since", usual=True, hint="since when its health is what it is"),
    Column("gpus", "GPUs", "", "num wide", usual=True),
    Column("ecs", "ECS", usual=True),
    Column("data", "Data", "", "num wide", True, "when the more silent of AWS and the node last told something"),
    Column("cluster", "Cluster", "cluster"),
    Column("account", "Account"),
    Column("region", "Region"),
    Column("owner", "Replaced by"),
    Column("ip", "Private IP", style="wide mono"),
    Column("driver", "Driver", "driver"),
    Column("image", "Image", style="wide mono"),
    Column("purchase", "Purchase"),
    Column("launched", "Launched", "launched"),
    Column("ec2", "EC2"),
)
_NAMES = {column.name for column in COLUMNS}


def chosen(names: list[str]) -> list[Column]:
    """The columns to show out of an address's ``col`` values; the usual ones where it names none that exist."""
    wanted = _NAMES.intersection(names)
    return [column for column in COLUMNS if (column.name in wanted if wanted else column.usual)]
