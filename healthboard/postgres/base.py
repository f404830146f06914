"""PostgreSQL as Django speaks with it; only whether a kept connection still stands is seen without asking the server."""

from __future__ import annotations

import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    def is_usable(self) -> bool:
        """A connection on which nothing is under way has nothing to read, until the server ends it or says something: then
        it is asked, as Django does each time. Of one that broke without a sign both would learn by waiting."""
        if self.connection is None or self.connection.closed:
            return False
        line = select.poll()
        line.register(self.connection.fileno(), select.POLLIN)
        return not line.poll(0) or bool(super().is_usable())
