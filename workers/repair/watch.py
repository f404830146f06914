"""Before repairs are carried on: did we stand still, did the clock jump, is it still the same database?"""

from __future__ import annotations

from healthboard.fleet import gaps
from healthboard.repairs import lifecycle


def look() -> None:
    """Harmless when doubled: each gap is noticed once."""
    gaps.notice()
    gaps.notice_database()
    lifecycle.pull_in()
