"""A real NVML library to load, a real server to report to, and a machine's files, all made by the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.node.machine import Machine, Server
from workers.node import healthboard_node as node

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory):
    """Directory of the double, built once as libnvidia-ml.so.1; a missing compiler is a failure, not a skip."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.fail("gcc is needed to build the NVML double (tests/node/nvml_double.c): install it", pytrace=False)
    directory = tmp_path_factory.mktemp("nvml")
    built = subprocess.run(
        [compiler, "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", directory / "libnvidia-ml.so.1",
         HERE / "nvml_double.c"],
        capture_output=True, text=True,
    )  # fmt: skip
    if built.returncode:
        pytest.fail(f"the NVML double doesn't build:\n{built.stderr}", pytrace=False)
    return directory


@pytest.fixture
def machine(tmp_path, nvml_library, monkeypatch):
    """A p5.48xlarge with eight well GPUs; its settings are in the environment of this process."""
    made = Machine(tmp_path, nvml_library)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(node, "_logged", set())
    return made


@pytest.fixture
def server():
    made = Server()
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def reporter(machine):
    """Starts the reporter as the process it is; every one is ended with the test."""
    running = []

    def start(server_or_url, **env):
        url = server_or_url if isinstance(server_or_url, str) else server_or_url.url
        settings = {"HEALTHBOARD_URL": url, "HEALTHBOARD_NODE_TOKEN": "node-token-1", **env}
        errors = open(machine.path / f"stderr-{len(running)}.txt", "w+")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, node.__file__], env={**os.environ, **machine.env, **settings}, stderr=errors
        )
        process.errors = Path(errors.name)
        errors.close()
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 5
    for process in running:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


@pytest.fixture
def probe(machine):
    """The keeper of an NVML child, with short limits."""
    made = []

    def make(**settings):
        for name, value in settings.items():
            machine.env[name] = value
        made.append(node.NvmlProbe(node.Settings({**os.environ, **machine.env})))
        return made[-1]

    yield make
    for each in made:
        each.close()
