"""What stands against a policy in this installation: groups and targets that are not there, repairs that its machines'
owners do not allow, and settings that contradict each other only with what is inherited from it or by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.contrib.auth.models import Group

from healthboard import clock, words
from healthboard.diagnosis.signals import Action
from healthboard.fleet.models import Instance, Owner
from healthboard.notices.models import Target
from healthboard.policies import check, matching
from healthboard.policies.matching import Snapshot
from healthboard.policies.models import Policy

Found = Iterator[tuple[str, str]]  # name of a setting, sentence

#: repairs that nothing can do for machines of these owners, as the recipes say
IMPOSSIBLE: dict[str, tuple[str, ...]] = {
    Action.RELOCATE: (Owner.GROUP,),
    Action.REPLACE: (Owner.PLAIN,),
}
TOUCHABLE = (Owner.GROUP, Owner.TEMPLATE, Owner.PLAIN)


def missing(settings: Mapping[str, Any]) -> Found:
    """Names in the settings that nothing here answers to."""
    group = settings.get("approver_group")
    if isinstance(group, str) and group and not Group.objects.filter(name=group).exists():
        yield "approver_group", f"There is no group {group}, so nobody could approve."
    named = settings.get("checkpoint")
    if isinstance(named, list):
        hooks = set(Target.objects.filter(kind=Target.Kind.WEBHOOK, enabled=True).values_list("name", flat=True))
        for name in [name for name in named if isinstance(name, str) and name not in hooks]:
            yield "checkpoint", f"There is no webhook called {name} among the targets that is switched on."


def impossible(policy: Policy) -> Found:
    """Repairs that it names although no machine that it matches now can have them."""
    settings = policy.settings or {}
    named = {f"{code}: {entry['action']}": entry["action"] for code, entry in (settings.get("codes") or {}).items()
             if entry.get("action") in IMPOSSIBLE and entry.get("mode") != "observe"}  # fmt: skip
    ladder = settings.get("ladder") or []
    if not named and not set(ladder) & set(IMPOSSIBLE):
        return
    owners = _owners(policy)
    if not owners:
        return
    whose = " or ".join(sorted(words.OWNERS.get(owner, owner) for owner in owners))
    for text, action in named.items():
        if owners <= set(IMPOSSIBLE[action]):
            yield "codes", f"{text} is not possible: the owner of its machines is {whose}."
    if ladder and all(owners <= set(IMPOSSIBLE.get(rung, ())) for rung in ladder):
        yield "ladder", f"No rung of the ladder is possible: the owner of its machines is {whose}."


def contradictions(policy: Policy, values: Mapping[str, Any]) -> Found:
    """With what it inherits, and in what others inherit from it. Of the latter only what this change brings about."""
    own = policy.settings or {}
    for names, sentence in [*check.contradictions(values, clock.now()), *_too_few(values)]:
        yield _where(names, own), f"With what it inherits: {sentence}"
    mine, stored = _now(policy), matching.snapshots()
    others = [s for s in stored if s.version.policy_id != policy.pk]
    for child in _children(mine, others) if policy.enabled else ():
        before, _ = matching.inherit([*_above(child, stored), child])
        after, _ = matching.inherit([*_above(child, [*others, mine]), child])
        known = {sentence for _, sentence in check.contradictions(before, clock.now())}
        for names, sentence in check.contradictions(after, clock.now()):
            if sentence not in known:
                yield _where(names, own), f"The policy {child.name} inherits this: {sentence}"


def _too_few(values: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """More people are wanted than the group has."""
    group, needed = values["approver_group"], values["approvals"]
    if not group:
        return []
    found = Group.objects.filter(name=group).first()
    members = found.user_set.filter(is_active=True).count() if found else 0
    if found is None or members >= needed:
        return []
    has = words.count(members, "member")
    return [(("approvals", "approver_group"), f"{words.count(needed, 'person', 'people')} must agree, and the group "
             f"{group} has {has}.")]  # fmt: skip


def _where(names: tuple[str, ...], own: Mapping[str, Any]) -> str:
    """The setting at which it is said: of those that contradict each other the first that this policy sets."""
    return next((name for name in names if name in own), names[0])


def _children(mine: Snapshot, others: list[Snapshot]) -> list[Snapshot]:
    """Enabled policies that inherit from this one."""
    return [s for s in others if s.rank > mine.rank and mine.matches(matching.target_of_match(s.match))]


def _above(child: Snapshot, snapshots: list[Snapshot]) -> list[Snapshot]:
    target = matching.target_of_match(child.match)
    return [s for s in snapshots if s.rank < child.rank and s.matches(target)]


def _now(policy: Policy) -> Snapshot:
    match = {key: getattr(policy, key) for key in matching.MATCH_KEYS}
    return Snapshot(policy.name, match, policy.settings or {}, policy.is_default)


def _owners(policy: Policy) -> set[str]:
    """Owners of the machines that it matches now and that may be repaired at all; none where that is not known."""
    if policy.tags:
        return set()
    rows = Instance.objects.filter(gone_at=None, owner__in=TOUCHABLE)
    for name, column in (
        ("account", "account__account_id"), ("region", "region"), ("cluster", "cluster__name"), ("pool", "pool__name"),
        ("workload", "tasks__workload__name"),
    ):  # fmt: skip
        if getattr(policy, name):
            rows = rows.filter(**{column: getattr(policy, name)})
    return set(rows.order_by().values_list("owner", flat=True).distinct())
