"""Pools: a capacity provider; for instances without one, their cluster and launch template."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from healthboard.fleet.models import Account, Cluster, Instance, Pool
from workers.collect import autoscaling, store
from workers.collect.reader import Blind, Reader

NO_TEMPLATE = "(no template)"
TEMPLATE_TAG = "aws:ec2launchtemplate:id"
_names: dict[tuple[str, str, str], str] = {}


def learn_templates(reader: Reader, account: Account, region: str, told: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Template id -> name; a template that cannot be read goes by its id."""
    ids = {store.tags_of(item).get(TEMPLATE_TAG, "") for item in told.values()} - {""}
    found = {}
    for template in sorted(ids):
        key = (account.account_id, region, template)
        if key not in _names:
            try:
                params = {"LaunchTemplateId": template, "Versions": ["$Default"]}
                versions = reader.call("describe_launch_template_versions", **params).get("LaunchTemplateVersions")
            except Blind:
                versions = None
            if versions:
                _names[key] = versions[0].get("LaunchTemplateName") or template
        found[template] = _names.get(key, template)
    return found


def store_groups(pools: Iterable[Pool], groups: autoscaling.Groups, at: datetime) -> None:
    """Bring those of a place's pools that stand on a group up to what the group is now."""
    rows = {pool.pk: pool for pool in pools if pool.group_name}
    told = {
        pk: autoscaling.columns(groups.by_name[pool.group_name]) | {"rolling_out": groups.rolling.get(pool.group_name)}
        for pk, pool in rows.items()
        if pool.group_name in groups.by_name
    }
    store.upsert(Pool, rows, told, {})
    store.mark_seen(Pool, told, at)


@dataclass(slots=True)
class Book:
    """The pools of one place, to find an instance's own in."""

    account: Account
    region: str
    templates: dict[str, str]
    by_group: dict[str, list[Pool]] = field(default_factory=dict)
    by_template: dict[str, list[Pool]] = field(default_factory=dict)
    by_name: dict[tuple[int, str], Pool] = field(default_factory=dict)

    @classmethod
    def of(cls, pools: Iterable[Pool], account: Account, region: str, templates: dict[str, str]) -> Book:
        book = cls(account, region, templates)
        for pool in pools:
            book._add(pool)
        return book

    def _add(self, pool: Pool) -> None:
        self.by_name[pool.cluster_id, pool.name] = pool
        if pool.group_name:
            self.by_group.setdefault(pool.group_name, []).append(pool)
        elif pool.template_id:
            self.by_template.setdefault(pool.template_id, []).append(pool)

    def pool_for(self, tags: dict[str, str], group: str) -> Pool | None:
        """The pool of a machine that is in no cluster yet, where its group or template leaves no choice."""
        found = self.by_group.get(group, []) if group else self.by_template.get(tags.get(TEMPLATE_TAG, ""), [])
        return found[0] if len(found) == 1 else None

    def columns(self, row: Instance | None, tags: dict[str, str], group: str) -> dict[str, Any]:
        """Column `pool`, where this round can tell it; a capacity provider's word (told by ECS) stands above."""
        if row is not None and row.pool is not None and (row.pool.provider_arn or row.cluster is None):
            return {}
        if row is None or row.cluster is None:
            pool = self.pool_for(tags, group)
            return {"pool": pool} if pool is not None else {}
        if row.state in ("terminated", "shutting-down") and row.pool is not None:
            return {}
        return {"pool": self._own(row.cluster, tags.get(TEMPLATE_TAG, ""), group)}

    def _own(self, cluster: Cluster, template: str, group: str) -> Pool:
        name = (self.templates.get(template, template) or group or NO_TEMPLATE)[:255]
        kind = Pool.Kind.GROUP if group else Pool.Kind.TEMPLATE if template else Pool.Kind.NONE
        pool = self.by_name.get((cluster.pk, name))
        if pool is not None and (pool.provider_arn or pool.template_id != template or pool.group_name != group):
            # the name is another pool's already: a provider's, or a template's or group's of the same name
            name = f"{name[:180]} {template or group}".strip()
            pool = self.by_name.get((cluster.pk, name))
        if pool is None:
            place = {"account": self.account, "region": self.region, "cluster": cluster, "name": name}
            values = {"kind": kind, "template_id": template, "group_name": group}
            pool, _ = Pool.objects.get_or_create(**place, defaults=values)
            self._add(pool)
        return pool
