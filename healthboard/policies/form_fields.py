"""Form fields generated from the table of settings. Empty always means inherited; None is given as "no limit"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from django import forms

from healthboard.policies import fields, windows
from healthboard.policies.fields import Setting
from healthboard.policies.words import code_line, duration, show

INHERITED = ""
PREFIX = "s_"
NO_LIMIT = "no limit"
NOBODY = "none"
#: kinds that are several lines
LINES = ("codes", "windows", "blackouts")

_UNITS = {
    "s": 1, "sec": 1, "second": 1, "seconds": 1, "min": 60, "m": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_DURATION = re.compile(r"^\s*(\d{1,9}(?:\.\d{1,3})?)\s*([a-z]*)\s*$", re.I)
_TIMES = re.compile(r"^(\d{1,4})x$", re.I)


def parse_duration(text: str) -> int:
    """Seconds of ``90``, ``90 s``, ``5 min``, ``4 h`` or ``1 d``. Raises ValueError with a sentence."""
    match = _DURATION.match(text)
    unit = _UNITS.get(match[2].lower() or "s") if match else None
    if not match or not unit:
        raise ValueError(f"“{text}” is not a duration; write for example 90 s, 5 min, 4 h or 1 d.")
    return round(float(match[1]) * unit)


def parse_codes(text: str) -> dict[str, dict[str, Any]]:
    """Exceptions, one ``CODE: words`` a line. Raises ValueError with a sentence that names the line."""
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        code, colon, rest = line.partition(":")
        code = code.strip().upper()
        if not colon or not rest.strip():
            raise ValueError(f"Line {number}: write a code, a colon and what holds for it, as in XID_119: ask REPLACE")
        if code in found:
            raise ValueError(f"Line {number}: {code} is there twice.")
        try:
            found[code] = _entry(rest.split())
        except ValueError as error:
            raise ValueError(f"Line {number}: {error}") from None
    return found


def parse_lines(kind: str, lines: Sequence[str]) -> list[str]:
    """Windows or blackouts, one a line, as they are kept. Raises ValueError with a sentence that names the line."""
    parse = windows.parse_window if kind == "windows" else windows.parse_blackout
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip() and line.strip().lower() != NOBODY:
            try:
                found.append(str(parse(line)))
            except ValueError as error:
                raise ValueError(f"Line {number}: {error}") from None
    return found


def _entry(parts: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {}

    def put(key: str, value: Any) -> None:
        if key in entry:
            raise ValueError(f"says two things about the {key}.")
        entry[key] = value

    i = 0
    while i < len(parts):
        part = parts[i].strip(",")
        times = _TIMES.match(part)
        if part.lower() in fields.MODES:
            put("mode", part.lower())
        elif part.upper() in fields.ACTIONS:
            put("action", part.upper())
        elif part.lower().startswith("verdict="):
            put("verdict", part.partition("=")[2].upper())
        elif part.lower().startswith("of="):
            put("of", [code for code in part.partition("=")[2].upper().split(",") if code])
        elif times:
            if i + 2 >= len(parts) or parts[i + 1].lower() != "in":
                raise ValueError(f"after {part} a window must follow, as in {part} in 24h.")
            window = parts[i + 2]
            if i + 3 < len(parts) and parts[i + 3].lower() in _UNITS:
                window, i = window + parts[i + 3], i + 1
            put("count", int(times[1]))
            put("window_s", parse_duration(window))
            i += 2
        else:
            raise ValueError(
                f"“{part}” is neither a mode, an action, verdict=…, of=… nor a number of times such as 3x in 24h."
            )
        i += 1
    return entry


def show_codes(codes: dict[str, dict[str, Any]]) -> str:
    return "\n".join(code_line(code, entry) for code, entry in sorted(codes.items()))


class SettingField(forms.CharField):
    """Text that stands for a setting; `clean` gives the setting's value, or `INHERITED`."""

    def __init__(self, setting: Setting, **kwargs: Any) -> None:
        self.setting = setting
        if setting.kind in LINES:
            kwargs["widget"] = forms.Textarea(attrs={"rows": 4, "cols": 70, "spellcheck": "false"})
        super().__init__(required=False, label=setting.title, help_text=_help(setting), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        match self.setting.kind:
            case "seconds" if isinstance(value, int):
                return duration(value)
            case "share" if isinstance(value, (int, float)):
                return f"{value * 100:g} %"
            case "names" if isinstance(value, list):
                return ", ".join(value) or NOBODY
            case "codes" if isinstance(value, dict):
                return show_codes(value)
            case "windows" | "blackouts" if isinstance(value, list):
                return "\n".join(value) or NOBODY
        return value

    def clean(self, value: Any) -> Any:
        text = super().clean(value).strip()
        if text == "":
            return INHERITED
        try:
            return self._parse(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None

    def _parse(self, text: str) -> Any:
        if self.setting.optional and text.lower() == NO_LIMIT:
            return None
        match self.setting.kind:
            case "seconds":
                return parse_duration(text)
            case "share":
                return _number(text.removesuffix("%"), "a percentage such as 20 %") / 100
            case "count":
                number = _number(text, "a whole number" + (f", or {NO_LIMIT}" if self.setting.optional else ""))
                if number != int(number):
                    raise ValueError(f"“{text}” is not a whole number.")
                return int(number)
            case "names":
                return [] if text.lower() == NOBODY else [n.strip() for n in text.split(",") if n.strip()]
            case "codes":
                return parse_codes(text)
            case "windows" | "blackouts":
                return parse_lines(self.setting.kind, text.splitlines())
        return text


class SettingChoice(forms.ChoiceField):
    """A choice of values, given as text; the empty one is inherited."""

    def __init__(self, setting: Setting, **kwargs: Any) -> None:
        self.setting = setting
        self.values = {INHERITED: INHERITED}
        if setting.kind == "yes_no":
            self.values |= {"yes": True, "no": False}
        elif setting.kind == "ladder":
            self.values |= {",".join(rungs) or NOBODY: list(rungs) for rungs in _ladders(setting.choices)}
        else:
            self.values |= {choice: choice for choice in setting.choices}
        choices = [(k, show(setting, v) if k else "inherited") for k, v in self.values.items()]
        super().__init__(choices=choices, required=False, label=setting.title, help_text=_help(setting), **kwargs)

    def inherit(self, words: str) -> None:
        self.choices = [(k, words if k == INHERITED else shown) for k, shown in self.choices]

    def prepare_value(self, value: Any) -> Any:
        if value is True or value is False:
            return "yes" if value else "no"
        if isinstance(value, list):
            return ",".join(value) or NOBODY
        return value

    def clean(self, value: Any) -> Any:
        return self.values[super().clean(value)]


def field_for(setting: Setting) -> forms.Field:
    chosen = setting.kind in ("choice", "yes_no", "ladder")
    return SettingChoice(setting) if chosen else SettingField(setting)


def _ladders(rungs: tuple[str, ...]) -> list[tuple[str, ...]]:
    ordered = sorted(rungs, key=fields.ACTIONS.index)
    return [c for n in range(len(ordered), -1, -1) for c in combinations(ordered, n)]


def _number(text: str, what: str) -> float:
    try:
        number = float(text.strip())
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e12:
        raise ValueError(f"“{text.strip()}” is not {what}.")
    return number


def _help(setting: Setting) -> str:
    unit = {
        "seconds": " Write 90 s, 5 min, 4 h or 1 d.",
        "share": " In percent.",
        "count": f" A number, or “{NO_LIMIT}”." if setting.optional else " A number.",
    }.get(setting.kind, "")
    bounds = ""
    if setting.most:
        bounds = f" From {show(setting, setting.least)} to {show(setting, setting.most)}."
    return f"{setting.help}{unit}{bounds} Default: {show(setting, setting.default)}."
