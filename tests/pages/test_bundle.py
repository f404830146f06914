"""The support bundle: whole, bounded, and without process names where that is asked."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from healthboard.audit.models import AuditRow
from healthboard.cases import bundle as bundles
from healthboard.diagnosis.process_names import plain_without, text_without
from healthboard.people.actors import WORKER
from tests import factories as make

SECRET = "secret_train"
LINE = f"NVRM: Xid (PCI:0000:3d:00): 119, pid=4711, name={SECRET}, Timeout after 6s of waiting"


@pytest.fixture
def on(home):
    found = make.instance(home, verdict="AMBIGUOUS", verdict_code="XID_119")
    cards = make.gpus(found, 8, bad={3: "error"})
    make.event(found, "XID_119", gpu=cards[3].uuid, text=LINE, attrs={"pid": 4711, "name": SECRET})
    make.recording(found, cards)
    make.reading(found, "EC2_SYSTEM", "OK")
    make.case(found, gpu=cards[3].uuid)
    repair = make.repair(found, state="FAILED")
    make.call(make.steps(repair, "recheck", "drain")[1])
    make.request(found, "bug-report", output=f"Killed process 4711 ({SECRET})\n{LINE}")
    console = f"[12.0] {SECRET}[4711]: segfault\n[12.1] CPU: 3 PID: 4711 Comm: {SECRET} Tainted\n{LINE}"
    make.audit(
        "repair.evidence_kept", "kept", by=WORKER, instance=found, repair_id=repair.pk,
        payload={"console": console, "evidence": {"events": [{"text": LINE}]}},
    )  # fmt: skip
    return found


def _zip(answer) -> dict[str, str]:
    packed = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    assert packed.testzip() is None
    return {name: packed.read(name).decode() for name in packed.namelist()}


def test_it_holds_all_that_a_support_case_asks_for(on, log_in):
    answer = log_in("viewer", "vic").post(f"/instances/{on.pk}/bundle/")
    assert answer["Content-Type"] == "application/zip"
    assert f'filename="healthboard-{on.instance_id}-' in answer["Content-Disposition"]
    files = _zip(answer)
    summary = files["SUMMARY.txt"]
    for said in (on.instance_id, "111122223333", "XID_119", "by vic", *on.gpus.values_list("serial", flat=True)):
        assert said in summary, said
    assert "Not in it" not in summary
    assert [json.loads(line)["text"] for line in files["events.jsonl"].splitlines()] == [LINE]
    assert json.loads(files["repairs.json"])[0]["calls"][0]["operation"] == "UpdateContainerInstancesState"
    assert {name.split("/")[0] for name in files} == {
        "SUMMARY.txt", "instance.json", "gpus.json", "checks.json", "events.jsonl", "readings.jsonl", "recorder", "cases",
        "repairs.json", "audit.jsonl", "console", "node",
    }  # fmt: skip
    assert "private_ip" not in files["instance.json"]
    row = AuditRow.objects.get(verb="instance.bundle")
    assert (row.actor, row.payload["names"]) == ("vic", True)


def test_process_names_are_left_out_of_every_file_where_asked(on, log_in):
    files = _zip(log_in("viewer").post(f"/instances/{on.pk}/bundle/", {"names": "out"}))
    assert {name for name, text in files.items() if SECRET in text} == set()
    assert "pid=4711, name=[left out], Timeout after 6s of waiting" in files["events.jsonl"]
    assert "NVIDIA H100" in files["gpus.json"], "the names of GPUs stay"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (LINE, "NVRM: Xid (PCI:0000:3d:00): 119, pid=4711, name=[left out], Timeout after 6s of waiting"),
        ("NVRM: Xid (PCI:0000:3d:00): 31, pid=9, name=a, b c, Ch 1", "NVRM: Xid (PCI:0000:3d:00): 31, pid=9, name=[left out], Ch 1"),
        ("NVRM: Xid (PCI:0000:3d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen", None),
        ("NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus.", None),
        ("|    0   N/A  N/A      4711      C   /opt/x y/python3        345MiB |", "|    0   N/A  N/A      4711      C   [left out]        345MiB |"),
        ("GPU 0: NVIDIA H100 (UUID: GPU-1)", None),
    ],
)  # fmt: skip
def test_only_the_name_goes(line, left):
    assert text_without(line) == (left or line)


def test_in_json_too():
    told = {"attrs": {"name": "x", "pid": 1}, "events": [{"pid": 2, "name": "y", "comm": "z"}], "name": "NVIDIA H100"}
    assert plain_without(told) == {
        "attrs": {"name": "[left out]", "pid": 1}, "events": [{"pid": 2, "name": "[left out]", "comm": "[left out]"}],
        "name": "NVIDIA H100",
    }  # fmt: skip


def test_it_is_bounded_and_says_what_is_missing(on, log_in, monkeypatch):
    for n in range(3):
        make.event(on, f"XID_{n}")
    monkeypatch.setattr(bundles, "EVENTS", 2)
    monkeypatch.setattr(bundles, "MOST_BYTES", 12_000)
    files = _zip(log_in("viewer").post(f"/instances/{on.pk}/bundle/"))
    assert len(files["events.jsonl"].splitlines()) == 2
    assert "events.jsonl: older rows than the newest 2" in files["SUMMARY.txt"]
    assert "did not fit into the bundle" in files["SUMMARY.txt"]


def test_who_sees_the_instance_takes_it_and_nobody_else(on, log_in):
    assert log_in("viewer", pool="infer").post(f"/instances/{on.pk}/bundle/").status_code == 404
    assert log_in("").post(f"/instances/{on.pk}/bundle/").status_code == 403
    assert log_in("viewer").get(f"/instances/{on.pk}/bundle/").status_code == 405
