"""The systemd units, installed by the documented commands into a folder: valid, and closed to what they do not need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.install.shipped import FOLDER, OPTIONAL, PROCESSES, ROOT, WITHOUT_AWS, block, documented, read_by_the_server

PURGE = "healthboard-purge.service"
SERVER = [f"healthboard@{name}.service" for name in PROCESSES if name != "prepare"]
SERVER += ["healthboard-prepare.service", PURGE]
NODE = ["healthboard-node.service", "healthboard-gate.service", "healthboard-metadata.service"]
#: systemd's exposure level in tenths (0 closed to 100 open) that a unit may have at most
AT_MOST = dict.fromkeys(SERVER, 16) | {
    "healthboard-node.service": 25,
    "healthboard-gate.service": 25,
    "healthboard-metadata.service": 38,
}


@pytest.fixture(scope="module")
def analyze():
    found = shutil.which("systemd-analyze")
    if not found:
        assert not os.environ.get("WANT_SYSTEMD"), "systemd-analyze is missing: apt-get install systemd"
        pytest.skip("systemd-analyze is not here: apt-get install systemd")
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A machine's root as the commands leave it, with systemd's own units and the programs that are named."""
    root = tmp_path_factory.mktemp("machine")
    shutil.copytree("/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    units = root / "etc/systemd/system"
    for heading in ("systemd", "Secrets that only some need"):
        subprocess.run(
            ["sh", "-eu", "-c", block(heading)], cwd=ROOT, env={**os.environ, "DESTDIR": str(root)}, check=True
        )
    for name in NODE:
        shutil.copy(ROOT / "workers/node" / name, units)
    for program in (
        "usr/bin/python3",
        "usr/bin/timeout",
        "usr/sbin/iptables",
        "usr/sbin/ip6tables",
        "opt/healthboard/.venv/bin/python",
    ):
        (root / program).parent.mkdir(parents=True, exist_ok=True)
        (root / program).write_text("#!/bin/sh\n")
        (root / program).chmod(0o755)
    return root


def verified(analyze: str, root: Path, unit: str) -> tuple[int, str]:
    done = subprocess.run(
        [analyze, f"--root={root}", "--recursive-errors=yes", "--man=no", "verify", unit],
        capture_output=True, text=True, timeout=60, cwd=root,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("unit", [*SERVER, *NODE, "healthboard.target", "healthboard-purge.timer"])
def test_a_unit_is_valid(analyze, root, unit):
    assert verified(analyze, root, unit) == (0, "")


def test_a_mistake_in_a_unit_would_be_seen(analyze, root):
    unit = root / "etc/systemd/system/healthboard-typo.service"
    unit.write_text((FOLDER / "systemd/healthboard-prepare.service").read_text() + "ProtectHomme=yes\n")
    status, said = verified(analyze, root, unit.name)
    assert status and "ProtectHomme" in said


@pytest.mark.parametrize("unit", AT_MOST)
def test_a_unit_is_closed(analyze, root, unit):
    done = subprocess.run(
        [analyze, f"--root={root}", "--offline=yes", "--no-pager", f"--threshold={AT_MOST[unit]}", "security", unit],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def settings(root: Path, unit: str) -> list[str]:
    """Lines of a unit with its drop-ins, in systemd's order."""
    units = root / "etc/systemd/system"
    name = unit if (units / unit).exists() else re.sub("@.*", "@.service", unit)
    files = [
        units / name,
        *sorted({*(units / f"{name}.d").glob("*"), *(units / f"{unit}.d").glob("*")}, key=lambda p: p.name),
    ]
    return [line for file in files for line in file.read_text().splitlines() if line and not line.startswith("#")]


def _process(unit: str) -> str:
    return re.split("[@-]", unit)[1].removesuffix(".service")


@pytest.mark.parametrize("unit", SERVER)
def test_only_reader_and_actor_reach_instance_metadata_and_only_prepare_and_purge_the_owner(root, unit):
    lines = settings(root, unit)
    process = "prepare" if unit in ("healthboard-prepare.service", PURGE) else _process(unit)
    last = [line for line in lines if line.startswith("IPAddressDeny=")]
    hidden = ["IPAddressDeny=169.254.169.254 169.254.170.2 169.254.170.23 fd00:ec2::254 fd00:ec2::23"]
    # drop-ins go by name: the one that opens must come after the one that closes
    assert last == (hidden if process in WITHOUT_AWS else [*hidden, "IPAddressDeny="])
    assert any("owner.url" in line for line in lines) == (process == "prepare")
    assert any("external-id" in line for line in lines) == (process not in WITHOUT_AWS)


@pytest.mark.parametrize("unit", SERVER)
def test_prepare_and_reader_keep_the_heads_of_the_audit_record_together_and_each_other_has_a_place_of_its_own(
    root, unit
):
    lines = settings(root, unit)
    homes = [
        home
        for line in lines
        if line.startswith("Environment=")
        for home in re.findall(r"HEALTHBOARD_HOME=(\S+)", line)
    ]
    states = "\n".join(lines).rpartition("StateDirectory=\n")[2]
    (state,) = re.findall(r"^StateDirectory=(\S+)$", states, re.M)
    together = unit in ("healthboard-prepare.service", "healthboard@reader.service")
    own = "healthboard-%i" if "@" in unit else unit.removesuffix(".service")
    assert state == ("healthboard" if together else own) and homes[-1] == f"%S/{state}"


@pytest.mark.parametrize("unit", SERVER)
def test_each_secret_that_is_named_is_loaded_and_the_command_is_a_process(root, unit):
    lines = settings(root, unit)
    loaded = [
        line.removeprefix("LoadCredential=").split(":", 1) for line in lines if line.startswith("LoadCredential=")
    ]
    named = {name for line in lines if line.startswith("Environment=") for name in re.findall(r"=%d/(\S+)", line)}
    assert {name for name, _ in loaded} - {"ca.pem"} == named - {"ca.pem"} and named <= {name for name, _ in loaded}
    assert all(re.fullmatch(r"/etc/healthboard/secrets/(%i\.url|[a-z.-]+)", path) for _, path in loaded)
    (command,) = [line.partition("=")[2].split() for line in lines if line.startswith("ExecStart=")]
    assert command[:3] == ["/opt/healthboard/.venv/bin/python", "-m", "healthboard.processes"]
    assert command[3:] == {"healthboard-prepare.service": ["prepare"], PURGE: ["manage", "purge"]}.get(unit, ["%i"])


@pytest.mark.parametrize("unit", SERVER)
def test_a_secret_that_only_some_need_is_its_processes_alone(root, unit):
    named = re.findall(r"(\w+)_FILE=", "\n".join(x for x in settings(root, unit) if x.startswith("Environment=")))
    assert set(named) & set(OPTIONAL) == {name for name, whose in OPTIONAL.items() if whose == _process(unit)}


@pytest.mark.parametrize("unit", SERVER)
def test_the_authority_can_be_read_where_the_databases_url_says_and_nothing_else_there_can(root, unit):
    """/etc/healthboard and its secrets are root's alone, and no unit runs as root."""
    guide = (ROOT / "docs/install.md").read_text()
    (named,) = set(re.findall(r"sslrootcert=([\w/.-]+)", guide))
    lines = settings(root, unit)
    assert [line for line in lines if line.startswith("BindReadOnlyPaths=")] == [f"BindReadOnlyPaths={named}"]
    (over,) = [line.partition("=")[2] for line in lines if line.startswith("TemporaryFileSystem=")]
    place, _, how = over.partition(":")
    assert Path(named).is_relative_to(place) and how == "mode=0755" and "User=root" not in lines
    assert f"chmod 644 {named}" in guide


def test_every_variable_of_the_units_is_one_that_is_read():
    text = "".join(path.read_text() for path in (FOLDER / "systemd").iterdir())
    names = {
        n.removesuffix("_FILE")
        for line in re.findall(r"^Environment=(.*)$", text, re.M)
        for n in re.findall(r"(\w+)=", line)
    }
    assert names - {"HOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"} <= read_by_the_server() & documented()


def test_metadata_is_closed_to_every_bridge_by_both_of_its_addresses_and_opened_as_it_was_closed():
    lines = [
        line
        for line in (ROOT / "workers/node/healthboard-metadata.service").read_text().splitlines()
        if "-t raw" in line
    ]
    shut = {line.partition("=")[2].replace(" -I ", " -D ") for line in lines if line.startswith("ExecStart=")}
    opened = {line.partition("=")[2] for line in lines if line.startswith("ExecStop=")}
    assert shut == opened == {
        f"{program} -w -t raw -D PREROUTING -i {bridge} -d {address} -j DROP"
        for program, address in (("/usr/sbin/iptables", "169.254.169.254"), ("-/usr/sbin/ip6tables", "fd00:ec2::254"))
        for bridge in ("docker+", "br-+")
    }  # fmt: skip


def test_the_target_wants_every_process_and_that_the_database_is_prepared():
    wanted = re.search("^Wants=(.*)$", (FOLDER / "systemd/healthboard.target").read_text(), re.M)[1].split()
    assert sorted(wanted) == sorted({*SERVER} - {PURGE})


@pytest.mark.parametrize("unit", [unit for unit in SERVER if "@" in unit])
def test_one_process_that_is_started_again_prepares_nothing(root, unit):
    """`prepare` begins to watch every source anew, and no repair goes on until each has told two rounds: a process that
    ends and is started again, every few seconds, would hold all of them for ever."""
    lines = settings(root, unit)
    assert "Restart=always" in lines
    drawn = [line for line in lines if re.match("(Requires|Requisite|Wants|BindsTo|Upholds|ExecStartPre)=", line)]
    assert not [line for line in drawn if "prepare" in line]
    assert any("healthboard-prepare.service" in line for line in lines if line.startswith("After="))
    assert "Restart=on-failure" in settings(root, "healthboard-prepare.service"), "nobody else starts it again at boot"
