"""The rows of the fleet's table, joined here: a template takes ten times as long for each cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from healthboard import words
from healthboard.fleet.columns import Column
from healthboard.fleet.models import Instance
from healthboard.marks import breakable, mark, when
from healthboard.pages import link


def _tasks(row: Instance) -> Any:
    if not row.tasks_pending:
        return row.tasks_running
    return format_html('{} <span class="quiet">+{}</span>', row.tasks_running, row.tasks_pending)


def _ecs(row: Instance) -> Any:
    status = row.ecs_status or "—"
    if row.agent_connected is None:
        return format_html('{}, <span class="quiet">{}</span>', status, "agent unknown")
    if not row.agent_connected:
        return format_html('{}, <span class="away">{}</span>', status, "agent away")
    return status


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
    return mark_safe("".join([f'<td class="{one.style}">{_text(_CONTENTS[one.name](row))}</td>' for one in columns]))


def head(row: Instance) -> SafeString:
    """What always stands before them: which instance it is, and its health."""
    pool, where = _text(row.pool.name if row.pool else "no pool"), _text(row.zone, "")
    told = f"{pool} · {where} · {words.count(row.tasks_running, 'task')}"
    health: str = mark("verdict", row.verdict)
    if row.verdict_code:
        code = conditional_escape(row.verdict_code)
        told += f" · {breakable(row.verdict_code)}"
        health += f' <code title="{code}">{code}</code>'
    name = f'<a class="open mono" href="{link("instance", row.pk)}">{conditional_escape(row.instance_id)}</a>'
    return mark_safe(f'<th scope="row">{name}<span class="meta narrow">{told}</span></th>\n        <td>{health}</td>')


def _text(content: Any, nothing: str = "—") -> str:
    return nothing if content in ("", None) else content if type(content) is int else conditional_escape(content)
