"""The cells of the fleet's table that can be chosen, joined here: a template takes ten times as long for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from healthboard import words
from healthboard.fleet.columns import Column
from healthboard.fleet.models import Instance
from healthboard.marks import when


def _tasks(row: Instance) -> Any:
    more = format_html(' <span class="quiet">+{}</span>', row.tasks_pending) if row.tasks_pending else ""
    return format_html("{}{}", row.tasks_running, more)


def _ecs(row: Instance) -> Any:
    agent = ""
    if row.agent_connected is None:
        agent = format_html(', <span class="quiet">{}</span>', "agent unknown")
    elif not row.agent_connected:
        agent = format_html(', <span class="away">{}</span>', "agent away")
    return format_html("{}{}", row.ecs_status or "—", agent)


def _data(row: Instance) -> Any:
    return (
        format_html("{} <span class='quiet'>{}</span>", when(row.told_at), row.told_by)
        if row.told_by
        else when(row.told_at)
    )


#: column -> what stands in its cell; text is escaped where the cells are joined
_CONTENTS: dict[str, Callable[[Any], Any]] = {
    "pool": lambda row: row.pool.name if row.pool else "",
    "zone": lambda row: row.zone,
    "type": lambda row: row.instance_type,
    "tasks": _tasks,
    "since": lambda row: when(row.verdict_since, never="—"),
    "gpus": lambda row: "?" if row.gpus_expected is None else row.gpus_expected,
    "ecs": _ecs,
    "data": _data,
    "cluster": lambda row: row.cluster.name if row.cluster else "",
    "account": lambda row: row.account,
    "region": lambda row: row.region,
    "owner": lambda row: words.OWNERS.get(row.owner, row.owner),
    "ip": lambda row: row.private_ip,
    "driver": lambda row: row.driver_version,
    "image": lambda row: row.image_id,
    "purchase": lambda row: row.purchase,
    "launched": lambda row: when(row.launched_at, never="—"),
    "ec2": lambda row: row.state,
}


def cells(row: Instance, columns: list[Column]) -> SafeString:
    """The row's cells under `columns`, in their order; `row` has `told_at` and `told_by` of `queries.oldest_word`."""
    contents = ((column.style, _CONTENTS[column.name](row)) for column in columns)
    return format_html_join(
        "", '<td class="{}">{}</td>', ((style, "—" if v in ("", None) else v) for style, v in contents)
    )
