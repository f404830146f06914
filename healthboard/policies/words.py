"""Settings in words: one value, one exception, whom a policy matches, and what two versions differ in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthboard.policies import fields, windows
from healthboard.policies.fields import BY_NAME, Setting
from healthboard.words import listing


def show(setting: Setting, value: Any) -> str:
    """A value as people write it: 5 min, 20 %, yes, no limit."""
    if value is None:
        return "no limit"
    match setting.kind:
        case "seconds":
            return duration(value)
        case "share":
            return f"{value * 100:g} %"
        case "yes_no":
            return "yes" if value else "no"
        case "names":
            return ", ".join(value) or "nobody"
        case "ladder":
            return ", then ".join([*value, "a person"])
        case "codes":
            return f"{len(value)} {'exception' if len(value) == 1 else 'exceptions'}"
        case "windows":
            return windows.show(value)
        case "blackouts":
            return "; ".join(value) or "none"
        case "text":
            return value or "nothing"
    return str(value)


def duration(seconds: float) -> str:
    for unit, name in ((fields.DAY, "d"), (fields.HOUR, "h"), (fields.MINUTE, "min")):
        if seconds and seconds % unit == 0:
            return f"{seconds // unit:g} {name}"
    return f"{seconds:g} s"


def code_line(code: str, entry: Mapping[str, Any]) -> str:
    """``XID_119: ask REPLACE 3x in 24h``, as the form takes it."""
    parts = [str(entry[key]) for key in ("mode", "action") if entry.get(key)]
    if entry.get("verdict"):
        parts.append(f"verdict={entry['verdict']}")
    if entry.get("of"):
        parts.append(f"of={','.join(entry['of'])}")
    if entry.get("count"):
        parts.append(f"{entry['count']}x in {duration(entry['window_s']).replace(' ', '')}")
    return f"{code}: {' '.join(parts)}"


def matches(data: Mapping[str, Any]) -> str:
    """Whom a policy (a version's data) applies to."""
    if data.get("is_default"):
        return "every instance that no other policy says more about"
    places = [f"the {key} {data[key]}" for key in ("workload", "pool", "cluster", "region", "account") if data.get(key)]
    where = " in ".join(places) or "every workload"
    tags = [f"{k}={v}" if v else k for k, v in sorted((data.get("tags") or {}).items())]
    return f"{where} with the {'tag' if len(tags) == 1 else 'tags'} {listing(tags, most=len(tags))}" if tags else where


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Differences between two versions' data, a sentence each."""
    out = []
    for key, word in (
        ("name", "name"), ("enabled", "enabled"), ("account", "account"), ("region", "region"), ("cluster", "cluster"),
        ("pool", "pool"), ("workload", "workload"), ("tags", "tags"),
    ):  # fmt: skip
        old, new = before.get(key), after.get(key)
        if old != new and (old or new):
            said = key in ("name", "enabled") and key not in before  # the first version: there was nothing before
            out.append(f"{word}: {_flat(new)}" if said else f"{word}: {_flat(old)} → {_flat(new)}")
    old_set, new_set = before.get("settings") or {}, after.get("settings") or {}
    for name in [n for n in BY_NAME if n in old_set or n in new_set]:
        if name == "codes":
            out += _code_changes(old_set.get(name) or {}, new_set.get(name) or {})
        elif old_set.get(name, ...) != new_set.get(name, ...):
            old, new = (show(BY_NAME[name], s[name]) if name in s else "inherited" for s in (old_set, new_set))
            out.append(f"{BY_NAME[name].title}: {old} → {new}")
    return out


def _code_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    out = []
    for code in sorted({*before, *after}):
        old, new = before.get(code), after.get(code)
        if old != new:
            texts = [code_line(code, e).split(": ", 1)[1] if e else "no exception" for e in (old, new)]
            out.append(f"{code}: {texts[0]} → {texts[1]}")
    return out


def _flat(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in sorted(value.items())) or "any"
    return str(value) if value else "any"
