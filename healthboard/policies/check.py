"""Whether the settings of a policy make sense, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from healthboard.diagnosis import catalogue
from healthboard.diagnosis.signals import Action, Verdict
from healthboard.policies import fields, windows
from healthboard.policies.codes import known, may_be_own
from healthboard.policies.fields import BY_NAME, Setting
from healthboard.policies.words import show

CHANGING = (Action.DRAIN, Action.REBOOT, Action.RELOCATE, Action.REPLACE)


def problems(settings: Mapping[str, Any], now: datetime | None = None) -> dict[str, list[str]]:
    """Sentences by setting name; empty if the settings can be saved. Only what is set is checked. `now`: see
    `contradictions`."""
    found: dict[str, list[str]] = {}

    def say(name: str, sentence: str) -> None:
        found.setdefault(name, []).append(sentence)

    for name, value in settings.items():
        setting = BY_NAME.get(name)
        if setting is None:
            say(name, f"There is no setting called {name}.")
            continue
        for sentence in _wrong(setting, value):
            say(name, sentence)
    if not found:
        for names, sentence in contradictions(settings, now):
            say(next(name for name in names if name in settings), sentence)
    return found


def _wrong(setting: Setting, value: Any) -> list[str]:
    title = setting.title
    if value is None:
        return [] if setting.optional else [f"{title} needs a value."]
    match setting.kind:
        case "choice":
            return [] if value in setting.choices else [f"{title} must be one of {', '.join(setting.choices)}."]
        case "yes_no":
            return [] if isinstance(value, bool) else [f"{title} must be yes or no."]
        case "count" | "seconds":
            if isinstance(value, bool) or not isinstance(value, int):
                return [f"{title} must be a whole number{' of seconds' if setting.kind == 'seconds' else ''}."]
            return _bounds(setting, value)
        case "share":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return [f"{title} must be a number."]
            return _bounds(setting, value)
        case "text":
            return [] if isinstance(value, str) and len(value) <= 150 else [f"{title} must be a short text."]
        case "names":
            fine = isinstance(value, list) and all(isinstance(n, str) and 0 < len(n) <= 150 for n in value)
            return [] if fine else [f"{title} must be a list of names."]
        case "ladder":
            if not isinstance(value, list) or not all(rung in setting.choices for rung in value):
                return [f"{title} may hold {', '.join(setting.choices)}."]
            if len(set(value)) != len(value):
                return [f"{title} names a repair twice."]
            return [] if value == sorted(value, key=fields.ACTIONS.index) else [f"{title} must go from light to heavy."]
        case "codes":
            return _codes(value)
        case "windows":
            return _lines(value, title, windows.parse_window, windows.MOST_WINDOWS)
        case "blackouts":
            return _lines(value, title, windows.parse_blackout, windows.MOST_BLACKOUTS)
    raise AssertionError(setting.kind)


def _lines(value: Any, title: str, parse: Callable[[str], object], most: int) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        return [f"{title} must be a list of lines."]
    if len(value) > most:
        return [f"{title}: at most {most} lines."]
    found, seen = [], set()
    for line in value:
        try:
            parsed = parse(line)
        except ValueError as error:
            found.append(str(error))
            continue
        if parsed in seen:
            found.append(f"“{line}” is there twice.")
        seen.add(parsed)
    return found


def _bounds(setting: Setting, value: float) -> list[str]:
    if setting.least <= value <= setting.most:
        return []
    low, high = (show(setting, bound) for bound in (setting.least, setting.most))
    return [f"{setting.title} must be between {low} and {high}."]


def _codes(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return ["Exceptions must be given per code."]
    found = []
    for code, entry in value.items():
        if not isinstance(entry, dict) or not entry:
            found.append(f"{code}: says nothing; give a mode, an action or both.")
            continue
        sentences = _entry(entry)
        if "of" in entry:
            sentences += _own(code, entry)
        elif not known(code):
            sentences.append("there is no such code; a code of your own says which it counts, as in of=XID_63,XID_94.")
        elif not sentences:
            sentences += _raised(code, entry)
        found += [f"{code}: {text}" for text in sentences]
    return found


def _own(code: Any, entry: Mapping[str, Any]) -> list[str]:
    """A code of the policy's own."""
    if known(code):
        return ["is a code that there is already; of= is for a code of your own."]
    found, of = [], entry["of"]
    if not may_be_own(code):
        found.append("a code of your own is named in capitals, in at least two words, as in MEMORY_WEARS.")
    if not isinstance(of, list) or not 1 <= len(of) <= 20:
        return [*found, "of= names from 1 to 20 codes that it counts."]
    found += [f"of={other}: there is no such code." for other in of if not known(other)]
    if len(set(map(str, of))) != len(of):
        found.append("of= names a code twice.")
    if entry.get("count") is None:
        found.append("a code of your own needs a number of times, such as 3x in 24h.")
    if entry.get("verdict") not in (None, Verdict.AMBIGUOUS, Verdict.WATCH):
        found.append("a code of your own is AMBIGUOUS or WATCH: what counts other codes is no witness of a failure.")
    if entry.get("mode") == "auto":
        found.append("a code of your own is asked about or observed, never repaired alone.")
    return found


def _raised(code: str, entry: Mapping[str, Any]) -> list[str]:
    """Raised to AMBIGUOUS by nothing but the policy, it is asked about whatever the mode."""
    natural = catalogue.get(code).verdict
    to = entry.get("verdict") or (Verdict.AMBIGUOUS if entry.get("count") else natural)
    if entry.get("mode") == "auto" and to == Verdict.AMBIGUOUS and natural not in (Verdict.AMBIGUOUS, Verdict.HARDWARE):
        return [
            f"is {natural} by the catalogue, so that as AMBIGUOUS it is always asked about; leave out auto, or say "
            "verdict=HARDWARE, which repairs alone once it has its witnesses."
        ]
    return []


def _entry(entry: Mapping[str, Any]) -> list[str]:
    found = [f"there is no {key}; use {', '.join(fields.CODE_KEYS)}." for key in entry if key not in fields.CODE_KEYS]
    mode, action, verdict = entry.get("mode"), entry.get("action"), entry.get("verdict")
    if mode is not None and mode not in fields.MODES:
        found.append(f"the mode {mode} does not exist; use auto, ask or observe.")
    if action is not None and action not in fields.POLICY_ACTIONS:
        found.append(f"the action {action} cannot be set; use one of {', '.join(fields.POLICY_ACTIONS)}.")
    if verdict is not None and verdict not in fields.POLICY_VERDICTS:
        found.append(f"the verdict {verdict} cannot be set; use one of {', '.join(fields.POLICY_VERDICTS)}.")
    count, window = entry.get("count"), entry.get("window_s")
    if (count is None) != (window is None):
        found.append("a number of times and a window belong together, such as 3x in 24h.")
    elif count is not None and not (_whole(count, 2, 1000) and _whole(window, 60, 3 * fields.DAY)):
        found.append("repetition must be from 2 to 1000 times within 1 minute to 3 days: so far back events are read.")
    if mode == "observe" and action in CHANGING:
        found.append(f"observe and {action} contradict each other: what is only observed is never repaired.")
    if mode in ("auto", "ask") and action in (Action.NONE, Action.WATCH):
        found.append(f"{mode} and {action} contradict each other: {action} repairs nothing. Use observe.")
    if verdict in ("WORKLOAD", "WATCH") and (mode in ("auto", "ask") or action in CHANGING):
        found.append(f"the verdict {verdict} never leads to a repair, so it takes neither auto nor ask nor a repair.")
    if count is not None and mode == "observe" and "of" not in entry:
        found.append("raising it on repetition has no effect, since it is only observed.")
    if count is not None and verdict in ("WORKLOAD", "WATCH") and "of" not in entry:
        found.append(f"repetition raises a code, so it leads to AMBIGUOUS or HARDWARE, not to {verdict}.")
    return found


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def contradictions(s: Mapping[str, Any], now: datetime | None = None) -> list[tuple[tuple[str, ...], str]]:
    """Between settings, as a policy sets them or as they are with what it inherits: which, and in words.

    `now`: windows are looked at from then on; without it they are not.
    """
    found: list[tuple[tuple[str, ...], str]] = []
    alone = [name for name in fields.MODE_NAMES if s.get(name) == "auto"]
    if any("auto" in (e.get("mode"), *(e.get(n) for n in fields.MODE_NAMES)) for e in (s.get("codes") or {}).values()):
        alone.append("codes")
    if s.get("mode_hardware") in ("ask", "observe") and s.get("mode_ambiguous") == "auto":
        words = {"ask": "asked about", "observe": "only observed"}[s["mode_hardware"]]
        found.append((("mode_ambiguous", "mode_hardware"),
                      f"Ambiguous findings cannot be repaired alone while clear failures are {words}."))  # fmt: skip
    for name, nothing, sentence in (
        ("tries_24h", 0, "at least one try in 24 hours"),
        ("budget_absolute", 0, "room for at least one instance"),
        ("repairs_per_hour", 0, "at least one repair per hour"),
        ("ladder", [], "at least one repair on the ladder"),
    ):  # fmt: skip
        if alone and name in s and s[name] == nothing:
            found.append(((name, *alone), f"Repairing without a person needs {sentence}."))
    if s.get("undo_s", 0) and s.get("expiry_s") and s["undo_s"] >= s["expiry_s"]:
        sentence = "The undo time must be shorter than the time after which a question expires."
        found.append((("undo_s", "expiry_s"), sentence))
    if now is not None and (shut := windows.closed(s, now)) is not None and shut.opens is None:
        names = ("windows", "blackouts") if s.get("windows") else ("blackouts", "windows")
        found.append(
            (names, "No repair could ever begin: the windows do not open within a year outside the blackouts.")
        )
    return found
