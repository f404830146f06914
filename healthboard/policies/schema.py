"""The JSON schema of policies as YAML, made from the table of settings; `policies.schema.json` beside it is what is
shipped, for editors and for checks before a file is applied. What only words can say is said when it is applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from healthboard.policies import fields, windows
from healthboard.policies.fields import Setting

FILE = Path(__file__).with_name("policies.schema.json")
_DURATION = r"^\s*\d{1,9}(\.\d{1,3})?\s*[A-Za-z]*\s*$"


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    texts = {key: _text(most) for key, most in (("region", 32), ("cluster", 255), ("pool", 255), ("workload", 255))}
    policy = _closed(
        {
            "name": {**_text(100), "minLength": 1},
            "default": {"type": "boolean", "description": "The fleet default: it matches everything and is always on."},
            "enabled": {"type": "boolean", "default": True},
            "match": {
                **_closed(
                    {
                        "account": {"type": ["string", "integer"], "description": "Twelve digits."},
                        **texts,
                        "tags": {
                            "type": "object",
                            "description": "All of them must be there; an empty value matches any.",
                            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
                        },
                    }
                ),
                "description": "Everything that is given must match; nothing is given for the fleet default.",
            },
            "settings": {
                **_closed({setting.name: _setting(setting) for setting in fields.SETTINGS}),
                "description": "What is left out is inherited from less specific policies.",
            },
        },
        ["name"],
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "healthboard policies",
        "description": "As `manage.py policies export` prints and `manage.py policies apply` takes them.",
        **_closed({"version": {"const": 1}, "policies": {"type": "array", "items": policy}}, ["version", "policies"]),
    }


def _setting(setting: Setting) -> dict[str, Any]:
    found = _kind(setting)
    if setting.optional:
        found = {"anyOf": [found, {"type": "null"}]}
    return {"title": setting.title, "description": setting.help, "default": setting.default, **found}


def _kind(setting: Setting) -> dict[str, Any]:
    bounds = {"minimum": setting.least, "maximum": setting.most}
    match setting.kind:
        case "choice":
            return {"enum": list(setting.choices)}
        case "yes_no":
            return {"type": "boolean"}
        case "count":
            return {"type": "integer", **bounds}
        case "seconds":
            return _span(bounds)
        case "share":
            return {"type": "number", **bounds}
        case "text":
            return _text(150)
        case "names":
            return {"type": "array", "items": {**_text(150), "minLength": 1}}
        case "ladder":
            return {"type": "array", "items": {"enum": list(setting.choices)}, "uniqueItems": True}
        case "windows" | "blackouts":
            most = windows.MOST_WINDOWS if setting.kind == "windows" else windows.MOST_BLACKOUTS
            like = windows.WINDOW_LIKE if setting.kind == "windows" else windows.BLACKOUT_LIKE
            return {"type": "array", "items": _text(windows.LONGEST_LINE), "maxItems": most, "examples": [[like]]}
        case "codes":
            return {"type": "object", "additionalProperties": {**_code(), "minProperties": 1}}
    raise AssertionError(setting.kind)


def _code() -> dict[str, Any]:
    return _closed(
        {
            "mode": {"enum": list(fields.MODES)},
            "action": {"enum": [str(action) for action in fields.POLICY_ACTIONS]},
            "verdict": {"enum": list(fields.POLICY_VERDICTS)},
            "of": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20, "uniqueItems": True},
            "count": {"type": "integer", "minimum": 2, "maximum": 1000},
            "window_s": _span({"minimum": 60, "maximum": 3 * fields.DAY}),
        }
    )


def _span(bounds: dict[str, Any]) -> dict[str, Any]:
    """Seconds, or a text such as 5 min."""
    return {"anyOf": [{"type": "integer", **bounds}, {"type": "string", "pattern": _DURATION}]}


def _text(most: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": most}


def _closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found
