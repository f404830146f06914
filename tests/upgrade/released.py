"""The releases before: what each left behind, as `make_release` kept it. Oldest first."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

RELEASES = Path(__file__).resolve().parent / "releases"


@dataclass(frozen=True)
class Release:
    folder: Path

    @property
    def tag(self) -> str:
        return self.folder.name

    @cached_property
    def told(self) -> dict[str, Any]:
        """release.json: pools, machines under repair (`broken`, by pool), a node with its token …"""
        return json.loads((self.folder / "release.json").read_text())

    @property
    def at(self) -> datetime:
        """When its last word was written."""
        return datetime.fromisoformat(self.told["at"])

    def restore(self, url: str) -> None:
        """Into an empty database. The dump is statements only, so that no client program is needed."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(gzip.decompress((self.folder / "database.sql.gz").read_bytes()))

    def unpack(self, home: Path) -> Path:
        """The installation's home, with AWS as its sandbox had it."""
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress((self.folder / "home.tar.gz").read_bytes()))) as packed:
            # unknown to Debian's 3.11.2; the archive is ours
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall(home)
        return home

    def reporter(self, folder: Path) -> Path:
        """The node's file of that release."""
        path = folder / f"healthboard_node_{self.tag}.py"
        path.write_bytes(gzip.decompress((self.folder / "healthboard_node.py.gz").read_bytes()))
        return path


def releases() -> list[Release]:
    found = [Release(path.parent) for path in RELEASES.glob("*/release.json")]
    return sorted(found, key=lambda release: [int(part) for part in release.tag.removeprefix("v").split(".")])
