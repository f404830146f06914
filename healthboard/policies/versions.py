"""The one way to save a policy: checked in words, a new immutable version, an audit row, in one transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people import access
from healthboard.people.actors import Actor, system
from healthboard.policies import check, conflicts, matching, words
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.refusals import Closed, Invalid

DEFAULT_NAME = "Fleet default"
ACCOUNT = re.compile(r"^\d{12}$")


def data_of(policy: Policy) -> dict[str, Any]:
    """What a version keeps."""
    return {
        "name": policy.name,
        "enabled": policy.enabled,
        "is_default": policy.is_default,
        "account": policy.account,
        "region": policy.region,
        "cluster": policy.cluster,
        "pool": policy.pool,
        "workload": policy.workload,
        "tags": dict(policy.tags or {}),
        "settings": dict(policy.settings or {}),
    }


def problems(policy: Policy) -> dict[str, list[str]]:
    """Everything that stands against saving it, by field or setting name; empty if it can be saved."""
    found = problems_alone(policy)
    if not found:
        for name, sentence in conflicts.contradictions(policy, resolved(policy)):
            found.setdefault(name, []).append(sentence)
    return found


def problems_alone(policy: Policy) -> dict[str, list[str]]:
    """What stands against it whatever it inherits."""
    found = check.problems(policy.settings or {}, clock.now())
    if not policy.name.strip():
        found.setdefault("name", []).append("A policy needs a name.")
    if Policy.objects.filter(name=policy.name).exclude(pk=policy.pk).exists():
        found.setdefault("name", []).append(f"There is a policy called {policy.name} already.")
    wide = not any(getattr(policy, key) for key in matching.MATCH_KEYS)
    if policy.is_default:
        if not wide:
            found.setdefault("name", []).append("The fleet default matches everything.")
        if not policy.enabled:
            found.setdefault("enabled", []).append("The fleet default is always on.")
    elif wide:
        found.setdefault("workload", []).append("Say whom it matches: this would match everything, like the default.")
    if policy.account and not ACCOUNT.match(policy.account):
        found.setdefault("account", []).append("An account is a number of twelve digits.")
    if not _tags(policy.tags):
        found.setdefault("tags", []).append("Tags must be names with text values.")
    for name, sentence in [*conflicts.missing(policy.settings or {}), *([] if found else conflicts.impossible(policy))]:
        if sentence not in found.get(name, ()):
            found.setdefault(name, []).append(sentence)
    return found


def resolved(policy: Policy) -> dict[str, Any]:
    """All settings of a policy, saved or not, with what it inherits."""
    own = matching.Snapshot(policy.name, data_of(policy), policy.settings or {}, policy.is_default)
    values, _ = matching.inherit([*parents(policy), own])
    return values


def inherited(policy: Policy) -> tuple[dict[str, Any], dict[str, str]]:
    """Values and origins that it would have if it set nothing itself."""
    return matching.inherit(parents(policy))


def parents(policy: Policy) -> list[matching.Snapshot]:
    """Enabled policies, less specific than this one, that match all that it matches."""
    me = matching.Snapshot(policy.name, data_of(policy), {}, policy.is_default)
    target = matching.target_of_match(data_of(policy))
    others = [s for s in matching.snapshots() if s.version.policy_id != policy.pk]
    return [s for s in others if s.rank < me.rank and s.matches(target)]


@transaction.atomic
def save(policy: Policy, *, actor: Actor, reason: str) -> PolicyVersion:
    """Save it as a new version. Raises Invalid (`details["fields"]`) or NotAllowed; an unchanged policy keeps its version."""
    _allow(policy, actor)
    before = None
    if policy.pk:
        # two admins at once take turns, so that numbers never collide
        stored = Policy.objects.select_for_update(of=("self",)).select_related("current").get(pk=policy.pk)
        policy.is_default = stored.is_default
        before = stored.current.data if stored.current else None
        if before is not None:
            _allow(Policy(**{k: before.get(k, "") for k in ("account", "region", "pool")}), actor)
    policy.settings = {k: v for k, v in (policy.settings or {}).items() if not (k == "codes" and not v)}
    found = problems(policy)
    if found:
        text = " ".join(sentence for sentences in found.values() for sentence in sentences)
        raise Invalid(text, fields=found)
    data = data_of(policy)
    if before == data:
        return stored.current
    if not reason.strip():
        raise Invalid("Say why you change it.", fields={"reason": ["Say why you change it."]})
    policy.save()
    version = PolicyVersion.objects.create(
        policy=policy,
        number=(policy.versions.order_by("-number").values_list("number", flat=True).first() or 0) + 1,
        data=data,
        reason=reason.strip()[:255],
        saved_at=clock.now(),
        saved_by=actor.user,
        saved_by_name=actor.name[:150],
    )
    policy.current = version
    policy.save(update_fields=["current"])
    diff = words.changes(before or {}, data)
    record(
        "policy.saved",
        f"policy:{policy.pk}",
        f"{policy.name} v{version.number}: {reason.strip()}",
        actor=actor,
        payload={"version": version.number, "changes": diff, "before": before, "after": data},
    )
    return version


@transaction.atomic
def delete(policy: Policy, *, actor: Actor) -> bool:
    """Delete one that nothing ever used; one whose versions are in use is disabled instead. True if it is gone."""
    _allow(policy, actor)
    if policy.is_default:
        raise Closed("The fleet default cannot be deleted.")
    policy = Policy.objects.select_for_update().get(pk=policy.pk)
    if used(policy):
        if policy.enabled:
            policy.enabled = False
            save(policy, actor=actor, reason="disabled instead of deleted, since decisions rest on it")
        return False
    record("policy.deleted", f"policy:{policy.pk}", f"{policy.name} deleted", actor=actor, payload=data_of(policy))
    Policy.objects.filter(pk=policy.pk).update(current=None)
    policy.versions.all().delete()
    Policy.objects.filter(pk=policy.pk).delete()
    return True


def copy(policy: Policy, *, actor: Actor) -> Policy:
    """The same settings and matching under a new name, switched off."""
    taken = set(Policy.objects.filter(name__startswith="Copy").values_list("name", flat=True))
    stem = f"Copy of {policy.name}"[:90]
    name = next(n for n in (stem, *(f"{stem} {i}" for i in range(2, 1000))) if n not in taken)
    copied = Policy(**{**data_of(policy), "name": name, "enabled": False, "is_default": False})
    save(copied, actor=actor, reason=f"copied from {policy.name}")
    return copied


def used(policy: Policy) -> bool:
    """True if a case, decision or repair rests on one of its versions. Asked through the reverse relations, since
    policies know nothing of what is built on them."""
    relations = [r for r in PolicyVersion._meta.related_objects if r.related_model is not Policy]
    return any(r.related_model.objects.filter(**{f"{r.field.name}__policy": policy}).exists() for r in relations)


def ensure_default() -> Policy:
    """The fleet default, made at the first start with every setting spelled out as nothing: the built-in defaults."""
    found = Policy.objects.filter(is_default=True).first()
    if found is not None and found.current_id:
        return found
    policy = found or Policy(name=DEFAULT_NAME, is_default=True)
    save(policy, actor=system("setup"), reason="first start")
    return policy


def _allow(policy: Policy, actor: Actor) -> None:
    if actor.is_person:
        access.require(actor, "policy", account=policy.account or None, region=policy.region, pool=policy.pool)


def _tags(tags: Mapping[str, Any] | None) -> bool:
    if not isinstance(tags or {}, dict):
        return False
    return all(isinstance(k, str) and k and len(k) <= 128 and isinstance(v, str) for k, v in (tags or {}).items())
