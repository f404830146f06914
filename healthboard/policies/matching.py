"""Which policies match an instance and its workloads, and the settings that follow. Reads current versions only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from healthboard.policies import careful, fields
from healthboard.policies.models import PolicyVersion

DEFAULTS = "built-in default"
SEVERAL = "several policies"
MATCH_KEYS = ("account", "region", "cluster", "pool", "workload", "tags")


@dataclass(frozen=True, slots=True)
class Target:
    """What policies are matched against: one workload on one instance, or an idle instance (workload empty)."""

    account: str = ""
    region: str = ""
    cluster: str = ""
    pool: str = ""
    workload: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy as one version of it says. `version` is carried through untouched."""

    name: str
    match: Mapping[str, Any]
    settings: Mapping[str, Any]
    default: bool = False
    version: Any = None

    @property
    def rank(self) -> tuple[int, ...]:
        """Larger is more specific."""
        if self.default:
            return (-1,)
        m = self.match
        names = ("workload", "pool", "cluster", "region", "account")
        bits = [1 if m.get(name) else 0 for name in names]
        return (bits[0], len(m.get("tags") or {}), *bits[1:])

    def matches(self, target: Target) -> bool:
        if self.default:
            return True
        for key in ("account", "region", "cluster", "pool", "workload"):
            wanted = self.match.get(key)
            if wanted and wanted != getattr(target, key):
                return False
        # a tag without a value only has to be there
        return all(
            k in target.tags and (v in ("", None) or str(target.tags[k]) == str(v))
            for k, v in (self.match.get("tags") or {}).items()
        )


@dataclass(frozen=True, slots=True)
class Resolved:
    """`values` by setting name; `origin` names the policy that each value comes from; `version` is the most specific."""

    values: dict[str, Any]
    origin: dict[str, str]
    versions: list[PolicyVersion]
    version: PolicyVersion | None
    targets: tuple[Target, ...] = field(default=(), compare=False)


def settings_for(instance: Any, workloads: Iterable[Any], at: datetime | None = None) -> Resolved:
    """Settings of a fleet Instance that runs these Workloads (none: idle), as they are now or were at a time."""
    targets = [target_of(instance, w) for w in workloads] or [target_of(instance, None)]
    return combine(snapshots(at), targets)


def target_of(instance: Any, workload: Any | None) -> Target:
    return Target(
        account=instance.account.account_id,
        region=instance.region,
        cluster=instance.cluster.name if instance.cluster else "",
        pool=instance.pool.name if instance.pool else "",
        workload=workload.name if workload is not None else "",
        tags={**(instance.tags or {}), **((workload.tags if workload is not None else None) or {})},
    )


def target_of_match(match: Mapping[str, Any]) -> Target:
    """What a policy that matches this is matched against by less specific ones."""
    named = {key: match.get(key) or "" for key in ("account", "region", "cluster", "pool", "workload")}
    return Target(**named, tags=match.get("tags") or {})


def snapshots(at: datetime | None = None) -> list[Snapshot]:
    """Every enabled policy, by its current version, or by the version that was current at a time."""
    if at is None:
        versions = list(PolicyVersion.objects.filter(current_of__isnull=False))
    else:
        latest: dict[int, PolicyVersion] = {}
        for v in PolicyVersion.objects.filter(saved_at__lte=at).select_related("policy").order_by("number"):
            latest[v.policy_id] = v
        versions = list(latest.values())
    return [snapshot(v) for v in versions if v.data.get("enabled", True)]


def snapshot(version: PolicyVersion) -> Snapshot:
    return snapshot_of(version.data, version)


def snapshot_of(data: Mapping[str, Any], version: Any = None) -> Snapshot:
    """`data` as a version keeps it."""
    return Snapshot(
        name=data["name"],
        match={k: data.get(k) for k in MATCH_KEYS},
        settings=data.get("settings") or {},
        default=bool(data.get("is_default")),
        version=version,
    )


def combine(policies: Sequence[Snapshot], targets: Sequence[Target]) -> Resolved:
    """Pure. Per target by inheritance, then the most careful over the targets, setting by setting."""
    chosen = [_matching(policies, target) for target in targets]
    resolved = [inherit(matching) for matching in chosen]
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    unordered = []
    for setting in fields.SETTINGS:
        name = setting.name
        if name == "codes":
            continue
        given = [v[name] for v, _ in resolved]
        try:
            values[name] = careful.most_careful(setting, given)
        except careful.NoOrder:
            values[name] = setting.default
            unordered.append(name)
        origin[name] = min((o[name] for v, o in resolved if v[name] == values[name]), default=SEVERAL)
    values["codes"] = careful.merge_codes([v for v, _ in resolved])
    origin["codes"] = ", ".join(sorted({o["codes"] for _, o in resolved}))
    if unordered:
        _ask(values, origin, unordered)
    used = _unique([s for matching in chosen for s in matching])
    versions = [s.version for s in used if s.version is not None]
    return Resolved(values, origin, versions, versions[0] if versions else None, tuple(targets))


def _matching(policies: Sequence[Snapshot], target: Target) -> list[Snapshot]:
    """Most specific first; equal ones by name, which decides nothing (see `inherit`)."""
    return sorted((p for p in policies if p.matches(target)), key=lambda p: (tuple(-r for r in p.rank), p.name))


def inherit(matching: Sequence[Snapshot]) -> tuple[dict[str, Any], dict[str, str]]:
    """The specific overrides the general, setting by setting; of equally specific ones the most careful."""
    values, origin = fields.defaults(), {s.name: DEFAULTS for s in fields.SETTINGS}
    unordered: list[str] = []
    ranks = sorted({p.rank for p in matching})
    for rank in ranks:  # least specific first
        level = [p for p in matching if p.rank == rank]
        for setting in fields.SETTINGS:
            name = setting.name
            setters = [p for p in level if name in p.settings]
            if not setters:
                continue
            if name == "codes":
                values[name] = _inherit_codes(values, [p.settings[name] or {} for p in setters])
                names = sorted({p.name for p in setters if p.settings[name]})
                origin[name] = ", ".join(names) or origin[name]
                continue
            if setting.adds:
                values[name] = careful.most_careful(setting, [values[name], *(p.settings[name] for p in setters)])
                names = {origin[name]} if origin[name] != DEFAULTS else set()
                origin[name] = ", ".join(sorted(names | {p.name for p in setters}))
                continue
            try:
                values[name] = careful.most_careful(setting, [p.settings[name] for p in setters])
                origin[name] = min((p.name for p in setters if p.settings[name] == values[name]), default=SEVERAL)
                if name in unordered:
                    unordered.remove(name)
            except careful.NoOrder:
                values[name], origin[name] = setting.default, SEVERAL
                unordered.append(name)
    if unordered:
        _ask(values, origin, unordered)
    return values, origin


def _inherit_codes(values: Mapping[str, Any], given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Exceptions of one level over those of the levels below, key by key."""
    layered = []
    for codes in given:
        merged = {code: dict(entry) for code, entry in values["codes"].items()}
        for code, entry in codes.items():
            merged[code] = careful.override(merged.get(code, {}), entry)
        layered.append({**values, "codes": merged})
    return careful.merge_codes(layered)


def _ask(values: dict[str, Any], origin: dict[str, str], why: Sequence[str]) -> None:
    """Values differ for which no order is declared: nothing is done alone."""
    for name in fields.MODE_NAMES:
        if values[name] == "auto":
            values[name] = "ask"
            origin[name] = "policies that differ in " + ", ".join(why)
    for entry in values["codes"].values():
        for key in ("mode", *fields.MODE_NAMES):
            if entry.get(key) == "auto":
                entry[key] = "ask"


def _unique(found: Sequence[Snapshot]) -> list[Snapshot]:
    """Each policy once, most specific first."""
    by_name = {s.name: s for s in found}
    return sorted(by_name.values(), key=lambda p: (tuple(-r for r in p.rank), p.name))
