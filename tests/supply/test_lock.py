"""What is installed is what was locked: the locks hold every pin, everything that these need, and a hash of each."""

from __future__ import annotations

import re
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.lock import PINS, ROOT, RUNTIME, TEST_PINS, TESTS, locked, pins

BOTH = [(RUNTIME, pins(PINS)), (TESTS, {**pins(PINS), **pins(TEST_PINS)})]
EVERY = ("3.11", "3.12", "3.13")


@pytest.mark.parametrize("path, chosen", BOTH, ids=["runtime", "tests"])
def test_each_pin_is_locked_as_it_is_written(path, chosen):
    lock = locked(path)
    assert {name: lock[name].version for name in chosen if name in lock} == chosen, "make lock"


@pytest.mark.parametrize("path, chosen", BOTH, ids=["runtime", "tests"])
def test_everything_that_the_pins_need_is_locked_too(path, chosen):
    """pip refuses a lock of hashes in which one is missing, and only there where it is missed."""
    lock = locked(path)
    extras = {name: set() for name in lock}
    for line in (PINS.read_text() + TEST_PINS.read_text()).splitlines():
        if match := re.match(r"([\w.-]+)\[([\w,-]+)\]", line):
            extras[canonicalize_name(match[1])] |= set(match[2].split(","))
    seen, left = set(), [(name, extra) for name in chosen for extra in ("", *extras[name])]
    while left:
        name, extra = left.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another Python or platform than this one
            continue
        for text in needs:
            need = Requirement(text)
            for python in EVERY:
                environment = {"python_version": python, "python_full_version": f"{python}.9", "extra": extra}
                if need.marker is None or need.marker.evaluate(environment):
                    told = canonicalize_name(need.name)
                    assert told in lock, f"{told}, for {name} on Python {python}: make lock"
                    assert lock[told].version in need.specifier or lock[told].requirement.marker is not None
                    left += [(told, one) for one in ("", *need.extras)]
    assert len(seen) > len(chosen)


@pytest.mark.parametrize("path", [RUNTIME, TESTS], ids=["runtime", "tests"])
def test_each_release_is_locked_by_its_files_and_by_no_address(path):
    for name, entry in locked(path).items():
        assert entry.hashes and all(re.fullmatch(r"[0-9a-f]{64}", one) for one in entry.hashes), name
        assert len(set(entry.hashes)) == len(entry.hashes)
    text = path.read_text()
    assert "://" not in text and "--index-url" not in text and "--find-links" not in text and " @ " not in text


def test_the_tests_run_on_what_is_shipped():
    runtime, tests = locked(RUNTIME), locked(TESTS)
    for name, entry in runtime.items():
        assert (tests[name].version, tests[name].hashes) == (entry.version, entry.hashes), name
        # tools may bring on Linux what a library wants on Windows only
        assert tests[name].wanted() or not entry.wanted(), name
    assert len(tests) > len(runtime) > 50


def test_what_is_installed_here_is_the_lock():
    """`make install` goes by hashes: what else was put into the environment is not what is tested."""
    wrong = {
        name: (entry.version, metadata.version(name))
        for name, entry in locked(TESTS).items()
        if entry.wanted() and name != "pip" and metadata.version(name) != entry.version
    }
    assert wrong == {} and sys.version_info >= (3, 11)


def test_make_installs_by_hashes_alone():
    text = (ROOT / "Makefile").read_text()
    assert re.findall(r"pip install.*", text) == [
        "pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.lock"
    ]


def test_a_line_without_a_version_is_refused(tmp_path):
    for line in ("requests", "requests>=2", "git+https://example.com/x.git", "-e ."):
        path = tmp_path / "pins.txt"
        path.write_text(f"# what we chose\nDjango==5.2.19\n{line}\n")
        with pytest.raises(ValueError, match="names no single version"):
            pins(path)
