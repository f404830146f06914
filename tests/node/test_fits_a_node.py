"""What a node asks of the file: an old Python, the standard library, little memory, units that say the right thing."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
import time
from pathlib import Path

from workers.node import healthboard_node as node

HERE = Path(node.__file__).parent


def test_it_runs_on_python_3_9():
    done = subprocess.run(
        [Path(sys.executable).with_name("vermin"), "-t=3.9-", "--no-tips", "--eval-annotations", node.__file__],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "Minimum required versions: 3." in done.stdout


def test_it_imports_the_standard_library_and_pynvml_alone():
    tree = ast.parse(Path(node.__file__).read_text())
    names = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            names |= {a.name.split(".")[0] for a in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0
            names.add(item.module.split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"pynvml"}


def _children(pid):
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _memory_mb(pid):
    """Proportional set size: what the process adds to the machine."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no Pss")


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_it_stays_under_60_mb_with_its_child(machine, server, reporter, capsys):
    for seq in range(4000):
        machine.say(f"NVRM: Xid (PCI:0000:3b:00): 31, pid={seq}, name=t, " + "x" * 200, seq)
    process = reporter(server)
    server.wait(lambda r: len(server.reports) >= 30, 20)
    pids = [process.pid, *_children(process.pid)]
    assert len(pids) == 2
    memory = sum(_memory_mb(p) for p in pids)
    before, began, reports = sum(_cpu_s(p) for p in pids), time.monotonic(), len(server.reports)
    time.sleep(2)
    used, rounds = sum(_cpu_s(p) for p in pids) - before, len(server.reports) - reports
    with capsys.disabled():
        print(f"\nreporter and child: {memory:.1f} MB; {used / (time.monotonic() - began):.1%} of a core at "
              f"{rounds / 2:g} reports a second, {used / max(rounds, 1) / 15:.2%} at one in 15 s")  # fmt: skip
    assert memory < 60
    assert used / max(rounds, 1) / 15 < 0.01, "processor time of a round, of which there is one in 15 s"


def _unit(name):
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(HERE / name)
    return unit


def test_the_gate_stands_before_the_agent_and_the_reporter_hangs_on_nothing_of_ecs():
    gate, service = _unit("healthboard-gate.service"), _unit("healthboard-node.service")
    assert (gate["Unit"]["Before"], gate["Install"]["RequiredBy"]) == ("ecs.service", "ecs.service")
    assert gate["Service"]["ExecStart"].split()[-3:] == ["--gate", "--wait", "120"]
    assert service["Service"]["Restart"] == "always"
    for key in ("After", "Requires", "PartOf", "BindsTo", "Wants"):
        value = service["Unit"].get(key, "")
        assert "ecs" not in value and "docker" not in value


def test_version_help_and_schema_are_printed(machine):
    assert machine.run("--version")[1] == f"healthboard-node {node.VERSION}\n"
    assert "--gate" in machine.run("--help")[1]
    assert '"recovery_action"' in machine.run("--schema")[1]


def test_once_changes_nothing(machine):
    machine.say("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 5)
    assert [x["seq"] for x in machine.once()["kernel"]] == [5]
    assert not (machine.path / "state").exists()
