"""The fixtures of releases themselves."""

from __future__ import annotations

import gzip
import re
import tempfile

import pytest

from tests.upgrade.make_release import USER, _nameless
from tests.upgrade.released import releases

LARGEST = 500_000  # bytes of one release


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.tag)
def test_it_is_small_and_tells_nothing_of_where_it_was_made(release, tmp_path):
    assert sum(path.stat().st_size for path in release.folder.iterdir()) < LARGEST
    home = release.unpack(tmp_path)
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    dump = gzip.decompress((release.folder / "database.sql.gz").read_bytes())
    for data in (dump, (release.folder / "release.json").read_bytes(), *kept):
        assert re.findall(rb"/(?:home|root|tmp|Users|work|var/folders)/[^\s\"']*", data) == []
    assert set(re.findall(rb"shell:([\w-]+)", dump)) <= {USER.encode()}
    assert (home / "sandbox" / "state.sqlite3").exists() and (home / "secrets" / "django").exists()


@pytest.mark.parametrize("name", [f"{tempfile.gettempdir()}/release-x/home", "log in " + tempfile.gettempdir()])
def test_what_would_tell_of_it_is_not_written(name):
    _nameless(b"INSERT INTO audit_auditrow VALUES ('worker-1')")
    with pytest.raises(RuntimeError, match="of this machine"):
        _nameless(f"INSERT INTO audit_auditrow VALUES ('{name}')".encode())
