"""What the register and status words of NVLink Xids say: 74 (before Blackwell) and 144 to 150 (Blackwell)."""

from __future__ import annotations

from collections.abc import Sequence

#: Register number -> class -> bits. A bit that no class names goes to a person.
_BITS_74: dict[int, dict[str, frozenset[int]]] = {
    0: {
        "ignore": frozenset({0, 23, 30}),
        "sympathetic": frozenset({1, 20}),
        "parity": frozenset({4, 5}),
        "hardware": frozenset({8, 9, 12, 16, 17, 24, 28}),
        "signal": frozenset({21, 22}),
        "repeat": frozenset({27, 29}),
    },
    2: {
        "parity": frozenset({0, 1, 2, 6}),
        "unexpected": frozenset({13}),
        "repeat": frozenset({16, 17, 18, 19}),
    },
    3: {"sympathetic": frozenset({16, 17}), "fabric": frozenset({18})},
    4: {
        "parity": frozenset({18, 19, 21, 22, 24, 25, 27, 28}),
        "threshold": frozenset({20, 23, 26, 29}),
    },
}
WORDS_74 = {
    "ignore": "a bit that can be ignored",
    "sympathetic": "a bit that echoes a fault elsewhere: look at the peer GPU and the switch",
    "parity": "an ECC or parity bit of the link",
    "hardware": "a bit that points at the hardware of the link",
    "signal": "a weak signal",
    "repeat": "a bit that counts only when it repeats",
    "unexpected": "a bit that should not occur",
    "fabric": "an echo after which the fabric needs a reset",
    "threshold": "a threshold count, work goes on",
    "unlisted": "a bit that no table names",
}


def classes_74(registers: Sequence[int]) -> frozenset[str]:
    """The classes of all set bits of the seven registers; empty if none is set."""
    found: set[str] = set()
    for index, word in enumerate(registers):
        table = _BITS_74.get(index, {})
        for bit in range(word.bit_length()):
            if word >> bit & 1:
                found.add(next((name for name, bits in table.items() if bit in bits), "unlisted"))
    return frozenset(found)


_PEER = frozenset({21, *range(32, 38)})
_SOFTWARE = frozenset({15, 17, 22})
_SIGNAL = frozenset({2, 4, 10, 42, 43})
_EITHER = frozenset({16, 18})
_IGNORE = frozenset({38, 40})


def link_down_reason(intr: int) -> tuple[str, int, str]:
    """(bucket ``ignore`` or ``reset``, reason number, words) of a 149 link-down's intrInfo."""
    reason = intr >> 20 & 0x3F
    if reason in _IGNORE:
        return "ignore", reason, "a reason that is ignored"
    for reasons, words in (
        (_PEER, "the peer device took the link down"),
        (_SOFTWARE, "software took the link down"),
        (_SIGNAL, "the signal or a cable"),
        (_EITHER, "software or the signal"),
    ):
        if reason in reasons:
            return "reset", reason, words
    return "reset", reason, "a reason that no table names"


def bucket_5(number: int, unit: str, fatal: bool, intr: int | None, status: int | None) -> tuple[str, str]:
    """(bucket, words) of a 144-150 line: ``ignore``, ``watch``, ``defer`` (154 decides) or ``reset``.

    The decoded reason comes before the word Fatal.
    """
    if number == 149 and "LINK" in unit and intr is not None:
        bucket, reason, words = link_down_reason(intr)
        return bucket, f"link down, reason {reason}: {words}"
    if not fatal:
        return "watch", f"{unit} calls itself non-fatal: count it per link"
    if number == 145 and "SRC_TRACK" in unit and status in (4, 8):
        return "defer", f"{unit}: NVIDIA leaves the step to Xid 154"
    return "reset", f"{unit} is fatal: NVIDIA's step is a reset, a peer may be the origin"
