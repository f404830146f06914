"""How sure a share is that was counted in a few cases: Wilson's interval, which is honest about small numbers."""

from __future__ import annotations

import math

#: of the normal distribution, for 95 %
Z = 1.96
#: what must be so, with that certainty, before a machine should do alone what people did
GOOD = 0.8


def interval(good: int, of: int) -> tuple[float, float]:
    """The share that `good` of `of` may stand for: lower and upper bound at 95 %. (0, 1) of none."""
    if not of:
        return 0.0, 1.0
    share, spread = good / of, Z * Z / of
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / of + spread / (4 * of)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def missing(good: int, of: int) -> int:
    """How many more good ones in a row would make it sure that at least `GOOD` are good; 0 where it is already."""
    more = 0
    while interval(good + more, of + more)[0] < GOOD and more < 1000:
        more += 1
    return more
