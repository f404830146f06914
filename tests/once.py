"""What each new test client would read again: the static files, which WhiteNoise looks up one by one, and which no test
changes."""

from __future__ import annotations

from whitenoise.middleware import WhiteNoiseMiddleware


def allow() -> None:
    """From now on static files are read from their folders once in a process; for another prefix, again."""
    read, found = WhiteNoiseMiddleware.add_files_from_finders, {}

    def once(self: WhiteNoiseMiddleware) -> None:
        if self.static_prefix not in found:
            before = dict(self.files)
            read(self)
            found[self.static_prefix] = {url: file for url, file in self.files.items() if url not in before}
        self.files.update(found[self.static_prefix])

    WhiteNoiseMiddleware.add_files_from_finders = once
