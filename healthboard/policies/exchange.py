"""Policies as YAML, so that they can live in git: export, and apply under a person's name.

``{"version": 1, "policies": [{"name", "default"?, "enabled"?, "match"?: {account, region, cluster, pool, workload,
tags}, "settings"?: {…}}]}``, without YAML's aliases. Durations are seconds or texts such as ``5 min``; shares are
fractions. Policies that the file does not name are left alone.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import yaml
from django.db import transaction
from django.db.models import QuerySet

from healthboard.people import access
from healthboard.people.actors import Actor
from healthboard.policies import strict_yaml, versions, words
from healthboard.policies.fields import BY_NAME
from healthboard.policies.form_fields import parse_duration, parse_lines
from healthboard.policies.matching import MATCH_KEYS
from healthboard.policies.models import Policy
from healthboard.refusals import Invalid, Refusal

KEYS = ("name", "default", "enabled", "match", "settings")
MOST = 1024 * 1024


class _Undo(Exception):
    """Ends a dry run's transaction."""


def export(policies: QuerySet[Policy] | None = None) -> str:
    """All policies, or those, the default first."""
    rows = (Policy.objects.all() if policies is None else policies).order_by("-is_default", "name")
    return yaml.safe_dump({"version": 1, "policies": [_row(p) for p in rows]}, sort_keys=False, allow_unicode=True)


def _row(policy: Policy) -> dict[str, Any]:
    row: dict[str, Any] = {"name": policy.name}
    if policy.is_default:
        row["default"] = True
    if not policy.enabled:
        row["enabled"] = False
    match = {key: getattr(policy, key) for key in MATCH_KEYS if getattr(policy, key)}
    if match:
        row["match"] = match
    settings = {name: policy.settings[name] for name in BY_NAME if name in (policy.settings or {})}
    if settings:
        row["settings"] = settings
    return row


def apply(
    text: str, *, actor: Actor, reason: str, dry_run: bool = False, seconds: float = math.inf
) -> list[str]:  # fmt: skip
    """Save every policy of the file that differs; all or none. Returns a sentence per change.

    `seconds` of wall time that this may take, where others wait for the thread: each policy is compared with all others.
    Raises Invalid with one line that names the policy and what is wrong, or NotAllowed: for who may edit no policy at
    all before the file is read. A dry run changes nothing, so it wants nobody's presence: a pipeline may check a file.
    """
    if dry_run:
        actor = replace(actor, recent=True)
    if actor.is_person:
        access.require_somewhere(actor, "policy")
    until = time.monotonic() + seconds
    rows = _read(text)
    said: list[str] = []
    try:
        with transaction.atomic():
            for number, row in enumerate(rows):
                if time.monotonic() > until:
                    raise Invalid(
                        f"Only {number} of {len(rows)} policies could be looked at in {seconds:g} s, and nothing was saved: "
                        "send fewer at once, or use manage.py policies apply."
                    )
                said += _apply(row, actor, reason)
            if dry_run:
                raise _Undo
    except _Undo:
        pass
    return said


def read(text: str) -> list[dict[str, Any]]:
    """The policies of the file as a saved version would keep each, nothing being saved. Raises Invalid with one line."""
    found = []
    for row in _read(text):
        policy = _filled(row)
        for sentences in versions.problems_alone(policy).values():
            raise Invalid(f"{policy.name}: {sentences[0]}")
        found.append(versions.data_of(policy))
    return found


def _read(text: str) -> list[dict[str, Any]]:
    if len(text) > MOST:
        raise Invalid("The file is larger than 1 MiB.")
    data = strict_yaml.load(text)
    if not isinstance(data, dict) or data.get("version") != 1 or not isinstance(data.get("policies"), list):
        raise Invalid("The file must hold version: 1 and a list of policies.")
    if unknown := sorted(map(str, set(data) - {"version", "policies"})):
        raise Invalid(f"There is no {unknown[0]} at the top of the file.")
    seen = set()
    for number, row in enumerate(data["policies"], 1):
        if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"].strip():
            raise Invalid(f"Policy {number} has no name.")
        name = row["name"]
        if len(name) > _longest("name"):
            raise Invalid(f"Policy {number}: the name is longer than {_longest('name')} characters.")
        if unknown := sorted(map(str, set(row) - set(KEYS))):
            raise Invalid(f"{name}: there is no {unknown[0]}; use {', '.join(KEYS)}.")
        for key, kind in (("match", dict), ("settings", dict), ("enabled", bool), ("default", bool)):
            if key in row and not isinstance(row[key], kind):
                raise Invalid(f"{name}: {key} is not a {'list of names and values' if kind is dict else 'yes or no'}.")
        if unknown := sorted(map(str, set(row.get("match", {})) - set(MATCH_KEYS))):
            raise Invalid(f"{name}: it cannot match by {unknown[0]}; use {', '.join(MATCH_KEYS)}.")
        if name in seen:
            raise Invalid(f"{name} is there twice.")
        seen.add(name)
    return data["policies"]


def _apply(row: dict[str, Any], actor: Actor, reason: str) -> list[str]:
    policy, name = _filled(row), row["name"]
    stored = Policy.objects.filter(pk=policy.pk).first() if policy.pk else None
    before = versions.data_of(stored) if stored else {}
    try:
        versions.save(policy, actor=actor, reason=reason)
    except Refusal as refusal:
        raise type(refusal)(f"{name}: {refusal.message}", **refusal.details) from None
    changed = words.changes(before, versions.data_of(policy))  # only now is it known to be made of what words take
    if not changed:
        return []
    return [f"{name}: {change}" for change in (changed if before else ["made", *changed])]


def _filled(row: dict[str, Any]) -> Policy:
    """The stored policy of that name, or a new one, with all that the file says of it; not saved."""
    name = row["name"]
    if row.get("default"):
        policy = Policy.objects.filter(is_default=True).first() or Policy(is_default=True)
    else:
        policy = Policy.objects.filter(name=name).first() or Policy()
        if policy.is_default:
            raise Invalid(f"{name} is the fleet default: say default: true.")
    policy.name, policy.enabled = name, row.get("enabled", True)
    match = row.get("match", {})
    for key in MATCH_KEYS[:-1]:
        setattr(policy, key, _text(name, key, match.get(key, "")))
    tags = match.get("tags") or {}
    if not isinstance(tags, dict):
        raise Invalid(f"{name}: tags are not a list of names and values.")
    policy.tags = {key: _tag(name, key, value) for key, value in tags.items()}
    policy.settings = {key: _setting(name, key, value) for key, value in row.get("settings", {}).items()}
    return policy


def _text(name: str, key: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and key == "account":
        value = f"{value:012d}"  # YAML reads an account without quotes as a number
    if not isinstance(value, str):
        raise Invalid(f"{name}: {key} is not a text.")
    if len(value) > _longest(key):
        raise Invalid(f"{name}: {key} is longer than {_longest(key)} characters.")
    return value


def _longest(column: str) -> int:
    return Policy._meta.get_field(column).max_length


def _tag(name: str, key: str, value: Any) -> str:
    if isinstance(value, (dict, list)):
        raise Invalid(f"{name}: the tag {key[:128]} takes one text.")
    return "" if value is None else str(value)


def _setting(name: str, key: str, value: Any) -> Any:
    setting = BY_NAME.get(key)
    try:
        if setting is not None and setting.kind == "seconds" and isinstance(value, str):
            return parse_duration(value)
        if setting is not None and setting.kind in ("windows", "blackouts") and _texts(value):
            return parse_lines(setting.kind, value)
        if setting is not None and setting.kind == "codes" and isinstance(value, dict):
            return {str(code): _code(entry) for code, entry in value.items()}
    except ValueError as error:
        raise Invalid(f"{name}: {error}") from None
    return value


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


def _code(entry: Any) -> Any:
    window = entry.get("window_s") if isinstance(entry, dict) else None
    return {**entry, "window_s": parse_duration(window)} if isinstance(window, str) else entry
