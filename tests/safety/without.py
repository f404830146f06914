"""A pytest plugin, `-p tests.safety.without`: this process runs without the guard that SAFETY_WITHOUT names."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from types import CodeType

import pytest

from tests.safety.guards import GUARDS, ROOT, Cut

_guard = GUARDS[os.environ["SAFETY_WITHOUT"]]
_modules: dict[str, list[Cut]] = {}
for _cut in _guard.cuts:
    _modules.setdefault(_cut.path.removesuffix(".py").replace("/", "."), []).append(_cut)


class _Finder:
    """Before every other: the modules that hold the guard."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _modules:
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(name, str(ROOT / _modules[name][0].path)), origin=name)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Never from, and never into, the cache of compiled files."""
        source = self.get_data(self.path).decode()
        for cut in _modules[fullname]:
            source = cut.made(source)
        return compile(source, self.path, "exec", dont_inherit=True)


sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]


@pytest.fixture(scope="session", autouse=True)
def _taken_out(request):
    if not _guard.sql:
        return
    request.getfixturevalue("django_db_setup")
    with request.getfixturevalue("django_db_blocker").unblock():
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(_guard.sql)
