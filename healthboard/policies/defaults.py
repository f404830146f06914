"""The fleet default policy."""

from healthboard.policies.versions import ensure_default

__all__ = ["ensure_default"]
