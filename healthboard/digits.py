"""A number that a form or an address names, such as a row's: read, or nothing."""

from __future__ import annotations


def number(text: str, longest: int = 18) -> int | None:
    """A whole number of at most so many ASCII digits, which fits its column; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= longest else None
