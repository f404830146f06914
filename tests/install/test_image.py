"""The Containerfile: linted, and what it says about user, files and signals is what an installation relies on."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.install.shipped import FOLDER, ROOT, image, instructions

BIN = Path(sys.executable).parent
FILE = FOLDER / "Containerfile"


def test_the_containerfile_passes_hadolint():
    done = subprocess.run([BIN / "hadolint", "--format", "json", FILE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_it_runs_as_nobody_in_particular_and_writes_to_one_place():
    here = image()
    assert here.user == "10001:10001" and here.volumes == ["/var/lib/healthboard"]
    assert {here.env[name] for name in ("HOME", "TMPDIR", "HEALTHBOARD_HOME")} == {"/var/lib/healthboard"}
    assert here.entrypoint == ["python", "-m", "healthboard.processes"] and here.stop_signal == "SIGTERM"
    assert here.healthcheck == "NONE", "a worker answers nothing; the web server's check is where it is started"
    assert here.env["PATH"].startswith(f"{here.workdir}/.venv/bin:")


def test_no_secret_and_nothing_of_aws_is_in_the_image():
    words = {
        name for word, rest in instructions(FILE.read_text()) if word in ("ENV", "ARG") for name in [rest.split("=")[0]]
    }
    assert not [
        one for one in words | set(image().env) if any(x in one for x in ("SECRET", "PASSWORD", "TOKEN", "_URL", "AWS"))
    ]


def test_what_is_installed_is_locked_by_hash():
    (run,) = [
        rest for word, rest in instructions(FILE.read_text()) if word == "RUN" and "install --no-cache-dir" in rest
    ]
    assert "healthboard/requirements.lock" in image().copied
    assert run.endswith("--require-hashes -r requirements.lock")


def test_what_the_code_imports_is_installed():
    """A package that only the tests ask for would be missing in the image alone."""
    folders = [ROOT / name for name in image().copied if (ROOT / name).is_dir()]
    lines = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", lines, re.M)) - set(sys.stdlib_module_names)
    known = packages_distributions()
    wanted = {re.sub(r"[-_.]+", "-", known[name][0]).lower() for name in imported & set(known)}
    locked = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "healthboard/requirements.lock").read_text(), re.M))
    assert wanted - locked == set() and {"django", "celery", "boto3"} <= wanted


def test_it_says_what_it_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = {name.removeprefix("org.opencontainers.image."): value for name, value in image().labels.items()}
    assert said["version"] == project["version"] and said["licenses"] == project["license"]
    assert said["description"] == project["description"]


def admitted(path: str, patterns: list[str]) -> bool:
    """As a builder reads the file: the last pattern that fits the path, or a folder above it, decides."""
    let = True
    for pattern in patterns:
        glob = pattern.removeprefix("!")
        deep, glob = glob.startswith("**/"), glob.removeprefix("**/")
        for one in (path, *map(str, Path(path).parents))[:-1]:
            name = Path(one).name if deep else one
            if fnmatch.fnmatchcase(name, glob) and "/" not in name:  # our patterns name one part of a path alone
                let = pattern.startswith("!")
    return let


@pytest.fixture
def patterns() -> list[str]:
    lines = (FOLDER / "Containerfile.dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_only_what_is_copied_reaches_the_builder(patterns):
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    copied = set(image().copied)
    for path in filter(None, tracked):
        assert admitted(path, patterns) == any(Path(path).is_relative_to(one) for one in copied), path
    for path in ("secrets/owner.url", ".env", ".git/config", "var/secrets/django", "healthboard/__pycache__/x.pyc"):
        assert not admitted(path, patterns), path
