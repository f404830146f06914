"""A GPU node's first boot: the documented archive, the user-data script as root in a jail, the reporter without rights."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.install.jail import Jail, needed
from tests.install.shipped import FOLDER, ROOT
from tests.install.test_units import block

SCRIPT = FOLDER / "node-user-data.sh"
UNITS = ["healthboard-gate.service", "healthboard-metadata.service", "healthboard-node.service"]


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_a_script_passes_shellcheck(script):
    done = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_user_data_fits_into_what_ec2_takes():
    assert len(SCRIPT.read_bytes()) < 16 * 1024 and SCRIPT.read_text().startswith("#!/bin/bash\n")


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """Made by the documented command; its sum is what that prints."""
    made = tmp_path_factory.mktemp("archive") / "healthboard-node.tar.gz"
    command = (
        block("GPU nodes")
        .replace("tar czf healthboard-node.tar.gz", f"tar czf {made}")
        .replace("sum healthboard", f"sum {made.parent}/healthboard")
    )
    command = command.replace(".venv/bin/python", sys.executable)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == hashlib.sha256(made.read_bytes()).hexdigest()
    return made


def test_the_archive_holds_the_reporter_what_it_needs_and_its_units(archive):
    with tarfile.open(archive) as files:
        names = files.getnames()
    assert sorted(names) == sorted([*UNITS, "healthboard-node.conf", "healthboard_node.py", "pynvml.py"])
    shipped = {path.name for path in (ROOT / "workers/node").iterdir() if path.suffix in (".service", ".conf")}
    assert shipped == {*UNITS, "healthboard-node.conf"}


class Boot:
    """The script with its three lines filled in, on a machine whose /etc and /opt are its own; `said`: what it called."""

    def __init__(self, folder: Path, archive: Path, sum_: str) -> None:
        self.etc, self.opt, bin_ = folder / "etc", folder / "opt", folder / "bin"
        for at in (self.etc / "ecs", self.opt, bin_):
            at.mkdir(parents=True)
        (self.etc / "ecs/ecs.config").write_text("ECS_CLUSTER=train\nECS_AWSVPC_BLOCK_IMDS=false\n")
        for name in ("passwd", "group", "nsswitch.conf"):
            (self.etc / name).write_bytes(Path("/etc", name).read_bytes())
        self.calls = folder / "calls"
        self.calls.touch()
        for name in ("systemctl", "systemd-sysusers"):
            (bin_ / name).write_text(f'#!/bin/sh\necho {name} "$@" >> /run/calls\n')
            (bin_ / name).chmod(0o755)
        handler = partial(SimpleHTTPRequestHandler, directory=str(archive.parent))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        text = SCRIPT.read_text()
        for name, value in (
            ("HEALTHBOARD_URL", "https://hb.test"),
            ("ARCHIVE", f"http://127.0.0.1:{self.server.server_port}/{archive.name}"),
            ("ARCHIVE_SHA256", sum_),
        ):
            text, count = re.subn(f"^{name}=.*$", f"{name}={value}", text, count=1, flags=re.M)
            assert count == 1, name
        (folder / "user-data").write_text(text)
        self.jail = Jail(folder, empty=["/run"], writable=["/tmp"])
        self.jail.inside = {
            "/etc": (self.etc, "rw"), "/opt": (self.opt, "rw"), "/run/calls": (self.calls, "rw"),
            "/run/bin": (bin_, "ro"), "/run/user-data": (folder / "user-data", "ro"),
        }  # fmt: skip

    def run(self) -> subprocess.CompletedProcess:
        command = self.jail.command(["bash", "/run/user-data"], {"PATH": "/run/bin:/usr/bin:/bin", "no_proxy": "*"})
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def boot(tmp_path, archive):
    needed()
    made = []

    def machine(sum_: str | None = None) -> Boot:
        made.append(Boot(tmp_path, archive, sum_ or hashlib.sha256(archive.read_bytes()).hexdigest()))
        return made[-1]

    yield machine
    for one in made:
        one.close()


def test_the_first_boot_closes_metadata_and_installs_the_reporter(boot):
    machine = boot()
    done = machine.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert (machine.etc / "ecs/ecs.config").read_text() == "ECS_CLUSTER=train\nECS_AWSVPC_BLOCK_IMDS=true\n"
    assert (machine.etc / "healthboard/node.env").read_text() == "HEALTHBOARD_URL=https://hb.test\n"
    assert sorted(path.name for path in (machine.opt / "healthboard").iterdir()) == ["healthboard_node.py", "pynvml.py"]
    assert sorted(path.name for path in (machine.etc / "systemd/system").iterdir()) == UNITS
    for file in [*(machine.opt / "healthboard").iterdir(), *(machine.etc / "systemd/system").iterdir()]:
        assert (file.stat().st_mode & 0o777, file.stat().st_uid) == (0o644, 0), file
    assert machine.calls.read_text().splitlines() == [
        "systemd-sysusers healthboard-node.conf",
        "systemctl daemon-reload",
        "systemctl enable --now healthboard-metadata.service",
        "systemctl enable healthboard-gate.service",
        "systemctl start --no-block healthboard-gate.service",
        "systemctl enable --now healthboard-node.service",
    ]
    again = machine.run()
    assert again.returncode == 0 and (machine.etc / "ecs/ecs.config").read_text().count("BLOCK_IMDS") == 1


def test_another_archive_than_the_one_that_was_made_is_not_installed_and_metadata_is_closed_all_the_same(boot):
    machine = boot("0" * 64)
    done = machine.run()
    assert done.returncode != 0 and "did NOT match" in done.stderr
    assert (
        not list(machine.opt.iterdir()) and not (machine.etc / "systemd").exists() and machine.calls.read_text() == ""
    )
    assert "ECS_AWSVPC_BLOCK_IMDS=true" in (machine.etc / "ecs/ecs.config").read_text()


def limits(unit: str) -> dict[str, str]:
    lines = (ROOT / "workers/node" / unit).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match("(User|Ambient|Capability|NoNew)", line))


def test_reporter_and_gate_are_the_same_user_without_rights():
    """They share the state directory: what one writes, the other must be able to read."""
    assert limits("healthboard-node.service") == limits("healthboard-gate.service") == {
        "User": "healthboard-node", "AmbientCapabilities": "CAP_SYSLOG", "CapabilityBoundingSet": "CAP_SYSLOG",
        "NoNewPrivileges": "yes",
    }  # fmt: skip
    assert (ROOT / "workers/node/healthboard-node.conf").read_text().splitlines()[1].startswith("u healthboard-node - ")


@pytest.mark.parametrize(("right", "blind"), [("+syslog", False), ("-all", True)])
def test_with_that_one_right_it_reads_the_kernel_log(tmp_path, right, blind):
    needed()
    closed = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    if not closed or not os.access("/dev/kmsg", os.R_OK):
        assert not os.environ.get("WANT_KERNEL_LOG"), "wants /dev/kmsg, and `sysctl kernel.dmesg_restrict=1`"
        pytest.skip("wants a kernel log that is closed to others: sysctl kernel.dmesg_restrict=1")
    (tmp_path / "n.py").write_bytes((ROOT / "workers/node/healthboard_node.py").read_bytes())
    drop = ["setpriv", "--reuid=10002", "--regid=10002", "--clear-groups", "--no-new-privs"]
    drop += [f"--inh-caps={right}", f"--ambient-caps={right}", f"--bounding-set=-all{',' + right if not blind else ''}"]
    jail = Jail(tmp_path, empty=["/opt"], inside={"/opt/n.py": (tmp_path / "n.py", "ro")})
    env = {"PATH": "/usr/bin:/bin", "HEALTHBOARD_URL": "https://hb.test", "HEALTHBOARD_STATE_DIR": "/nowhere"}
    python = str(Path(sys.executable).resolve())
    done = subprocess.run(
        jail.command([*drop, python, "-E", "-s", "/opt/n.py", "--once"], env),
        capture_output=True,
        text=True,
        timeout=60,
    )
    report = json.loads(done.stdout)
    assert report["kernel_overrun"] is blind, done.stderr
    assert ("can't be read" in done.stderr) is blind
