"""NVSwitch messages: whether one is fatal. The line's own word is trusted first, the table where it has none."""

from __future__ import annotations

#: Fatal whatever the line calls them, from NVIDIA's Fabric Manager guide, and the switch controllers that stopped.
ALWAYS_FATAL = frozenset({10003, 12020, 22003, 22011, *range(23001, 23018), 26006, 26007, 26008})
#: Fatal unless the line says otherwise.
USUALLY_FATAL = frozenset({*range(24001, 24008), 20034, 22013})
_ENDED = ("deactivated", "thermal_event_end", "thermal event end", "cleared", "de-asserted", "recovered")
_HALT = ("minion halt", "soe halt", "controller halt", "soe watchdog", "halted")


def severity(number: int, word: str | None, text: str) -> str:
    """``ended``, ``fatal`` or ``nonfatal`` for a number, the line's Fatal/Non-fatal word if any, and its text."""
    lower = text.lower()
    if number == 10005 or any(words in lower for words in _ENDED):
        return "ended"
    if number in ALWAYS_FATAL or any(words in lower for words in _HALT):
        return "fatal"
    if word is not None:
        return "fatal" if word.lower() == "fatal" else "nonfatal"
    return "fatal" if number in USUALLY_FATAL else "nonfatal"
