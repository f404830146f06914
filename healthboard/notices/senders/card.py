"""What every message says, before it is put into a receiver's form."""

from __future__ import annotations

from django.conf import settings

from healthboard.notices.kinds import KINDS
from healthboard.notices.models import Notice


def link(notice: Notice) -> str:
    """The page's address; empty where nobody said under which name the pages are reached."""
    return f"{settings.URL}{notice.link}" if settings.URL and notice.link else ""


def facts(notice: Notice) -> dict[str, str]:
    shown = dict(notice.facts)
    if notice.tally:
        rows = sorted(notice.tally.items(), key=lambda row: (-row[1], row[0]))
        words = ", ".join(f"{name} {count}×" for name, count in rows[:10])
        shown["Counted"] = words + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")
    return shown


def headline(notice: Notice) -> str:
    return f"{KINDS[notice.kind].title}: {notice.subject}" if notice.kind in KINDS else notice.subject


def where(notice: Notice) -> str:
    return " ".join(part for part in (notice.account, notice.region, notice.pool) if part)
