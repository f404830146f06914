"""What a case shows beside its words: the machine's picture, the flight recording, the jobs, what was done before."""

from __future__ import annotations

import csv
import io
import json
import math
from html import unescape

import pytest

from healthboard.approve import machine
from healthboard.cases import plan, readings
from healthboard.cases.judge import judge
from healthboard.fleet import recorder
from healthboard.policies.defaults import ensure_default
from healthboard.policies.reading import reread
from healthboard.repairs import history
from healthboard.repairs.models import Launch
from tests import factories as make


@pytest.fixture
def case(home):
    on = make.instance(home, verdict="AMBIGUOUS", verdict_code="XID_119", zone="us-east-1a")
    gpus = make.gpus(on, 8, bad={3: "error"})
    make.event(on, "XID_119", gpu=gpus[3].uuid, at=make.ago(172))
    make.recording(on, gpus)
    return make.case(on, gpu=gpus[3].uuid)


def _text(client, address: str) -> str:
    return unescape(client.get(address).content.decode())


def test_a_recording_is_drawn_told_in_a_table_and_given_as_json_and_csv(case, log_in):
    client = log_in("viewer")
    text = _text(client, f"/cases/{case.pk}/")
    assert f'data-plots="/cases/{case.pk}/recorder/?"' in text and "plots.js" in text
    for said in ("58 to 77", "SW thermal slowdown, HW thermal slowdown", "GPU 3 and the other 7 GPUs"):
        assert said in text, said
    told = client.get(f"/cases/{case.pk}/recorder/").json()
    assert told["gpus"][0] == "GPU 3" and len(told["times"]) == 60
    names = [metric["name"] for metric in told["metrics"]]
    assert "temperature_c" in names and "row_remap_uncorrectable" not in names, "what nobody told is not drawn"
    assert told["metrics"][0]["values"][0][-1] == 77
    assert told["clocks"]["names"] == ["SW thermal slowdown", "HW thermal slowdown"]
    assert [mark["code"] for mark in told["marks"]] == ["XID_119"]
    rows = list(csv.DictReader(io.StringIO(client.get(f"/cases/{case.pk}/recorder/?format=csv").content.decode())))
    assert len(rows) == 8 * 60 and rows[0]["index"] == "3"
    instance = f"/instances/{case.instance_id}/"
    assert client.get(f"{instance}recorder/?gpu={case.gpu}").json()["gpus"][0] == "GPU 3"
    assert "Last flight recording" in _text(client, instance)


def test_raw_evidence_is_given_as_it_is_kept(home, log_in):
    ensure_default()
    on = make.instance(home)
    make.event(on, "XID_79", gpu=make.gpus(on, 8)[3].uuid, at=make.ago(5), seq=7)
    case = readings.apply_reading(on, reread(on))
    client = log_in("viewer", pool="train")
    (kept,) = client.get(f"/cases/{case.pk}/evidence/").json()["items"]
    now = client.get(f"/instances/{on.pk}/evidence/").json()
    assert kept["hash"] == now["hash"] == case.evidence_hash
    for told in (kept, now):
        assert told["assessment"]["verdict"] == case.verdict and "fallen off the bus" in str(told["inputs"]["events"])
    assert kept["answer"]["mode"] == case.mode
    other = log_in("viewer", pool="infer")
    assert other.get(f"/cases/{case.pk}/evidence/").status_code == 404
    assert other.get(f"/instances/{on.pk}/evidence/").status_code == 404


def test_raw_evidence_counts_the_machines_that_the_person_may_not_see(home, log_in):
    ensure_default()
    on, other = make.instance(home), make.instance(make.pool("infer"))
    text = f"NCCL: no answer of {other.instance_id}"
    make.event(on, "XID_79", gpu=make.gpus(on, 8)[3].uuid, at=make.ago(5), seq=7, text=text)
    case = readings.apply_reading(on, reread(on))
    part, whole = log_in("viewer", pool="train"), log_in("viewer")
    for address in (f"/cases/{case.pk}/evidence/", f"/instances/{on.pk}/evidence/"):
        seen, every = (client.get(address).content.decode() for client in (part, whole))
        assert other.instance_id in every and other.instance_id not in seen
        assert "no answer of an instance outside your scope" in seen and case.evidence_hash in seen


def test_without_a_recording_nothing_is_loaded_and_the_page_says_why(home, log_in):
    case = make.case(make.instance(home))
    client = log_in("viewer")
    text = _text(client, f"/cases/{case.pk}/")
    assert "No flight recording is kept" in text and "uplot" not in text
    assert client.get(f"/cases/{case.pk}/recorder/").status_code == 404
    assert log_in("viewer", pool="infer").get(f"/instances/{case.instance_id}/recorder/").status_code == 404


@pytest.mark.parametrize(
    "samples",
    [
        None, "x", {}, [None, 7, "x", {"at": "soon", "gpus": {}}, {"at": "2026-11-30T17:00:00Z", "gpus": []}],
        [{"at": "2026-11-30T17:00:00Z", "gpus": {"<b>": {"temperature_c": "<script>", "power_w": True}}}],
        [{"at": "2026-11-30T17:00:00Z", "gpus": {"g": {"temperature_c": 1e308, "clock_event_reasons": 2**52 + 0.5}}}],
        [{"at": f"2026-11-30T17:00:00.{n:06}Z", "gpus": {f"g{m}": {} for m in range(40)}} for n in range(300)],
    ],
    ids=["none", "text", "object", "no samples", "no numbers", "odd numbers", "far too many"],
)  # fmt: skip
def test_whatever_a_node_recorded_the_page_stands(home, log_in, samples):
    case = make.case(make.instance(home))
    make.event(case.instance, "FLIGHT_RECORDER", attrs={"samples": samples}, backlog=True)
    client = log_in("viewer")
    page = client.get(f"/cases/{case.pk}/")
    assert page.status_code == 200
    assert "<b>" not in page.content.decode() and "<script>" not in page.content.decode()
    answer = client.get(f"/cases/{case.pk}/recorder/")
    assert answer.status_code in (200, 404)
    if answer.status_code == 200:
        told = json.loads(answer.content, parse_constant=lambda word: pytest.fail(word))
        assert len(told["gpus"]) <= recorder.GPUS and len(told["times"]) <= recorder.SAMPLES
        assert all(v is None or math.isfinite(v) for m in told["metrics"] for row in m["values"] for v in row)


def test_the_picture_shows_which_gpu_its_links_and_the_neighbours(case, home, log_in):
    down = case.instance.gpus.get(index=5)
    down.measurements = {**down.measurements, "nvlink_down": 2}
    down.save()
    alike = make.instance(home, verdict="AMBIGUOUS", verdict_code="XID_119", zone="us-east-1a")
    make.instance(home, verdict="AMBIGUOUS", verdict_code="XID_119", zone="us-east-1b")
    text = _text(log_in("viewer"), f"/cases/{case.pk}/")
    for said in (
        "GPU 3 of 8 is the one in question", "NVLink down: 2 on GPU 5.", "Links unknown: GPU 3.",
        "1 of 1 other instance show", alike.instance_id, 'class="link down"', 'class="cell bad this"',
    ):  # fmt: skip
        assert said in text, said
    assert text.count('class="cell ') == 8


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 16])
def test_any_number_of_gpus_is_drawn_inside_its_frame(home, count):
    on = make.instance(home, gpus_expected=count)
    made = machine.picture(make.gpus(on, count), count)
    assert len({(cell.x, cell.y) for cell in made.cells}) == count
    for cell in made.cells:
        assert 0 < cell.x <= made.width - machine.WIDE and 0 < cell.y <= made.height - machine.HIGH


def test_what_is_wrong_is_said_in_terms_of_the_job(case, home, log_in):
    mate = make.instance(home)
    for on in (case.instance, mate):
        make.task(on, make.workload("pretrain", "FAMILY"), job="pretrain/7", started_at=make.ago(9000))
    case.victims = [mate.instance_id]
    case.save()
    text = _text(log_in("viewer"), f"/cases/{case.pk}/")
    assert "Job pretrain/7 stands still: 2 nodes with 16 GPUs are idle; 1 victim shows only what followed." in text
    assert "First fault: Xid 119: GPU system processor did not answer a driver call" in text


def test_precedent_says_what_each_action_came_to_and_who_overrode(case, home, log_in):
    ona = make.person("operator", "ona")
    for resolution, kind, action, codes in (
        ("REPAIRED", "approve", "REBOOT", ["XID_119"]), ("DISMISSED", "approve", "REBOOT", ["XID_119", "XID_45"]),
        ("REPAIRED", "override", "REPLACE", ["XID_119"]),
    ):  # fmt: skip
        old = make.case(make.instance(home), state="CLOSED", resolution=resolution, codes=codes)
        repair = make.repair(old.instance, state="SUCCEEDED", action=action)
        make.decision(
            old, ona, kind, action=action, repair=repair, reason="it never helps" if kind == "override" else ""
        )
    client = log_in("viewer")
    found = client.get(f"/cases/{case.pk}/").context["precedent"]
    assert (found["total"], found["exact"]) == (3, 2)
    assert [(row["action"], row["times"], row["helped"]) for row in found["actions"]] == [
        ("REBOOT", 2, 1), ("REPLACE", 1, 1),
    ]  # fmt: skip
    assert [row.exact for row in found["rows"]] == [True, True, False]
    text = _text(client, f"/cases/{case.pk}/")
    assert "ona overrode in" in text and "it never helps" in text


def test_expected_minutes_and_room_come_from_what_happened_before(case, home, log_in):
    for seconds in (300, 900, 600):
        old = make.repair(make.instance(home), state="SUCCEEDED", action="REBOOT", opened_at=make.ago(5000))
        make.steps(old, "recheck", "drain", last="DONE")
        old.closed_at = old.steps.first().started_at + history.timedelta(seconds=seconds)
        old.save()
    took = history.took("REBOOT", "GROUP", home.pk, home.name)
    assert (took.seconds, took.longest, took.count, took.where) == (600, 900, 3, "train")
    assert "10 min: the median of 3 such repairs in train" in _text(log_in("viewer"), f"/cases/{case.pk}/")
    assert history.took("REPLACE", "GROUP", home.pk) is None
    lost = make.case(make.instance(home), action="REPLACE")
    repair = make.repair(make.instance(home), state="FAILED")
    Launch.objects.create(
        repair=repair, pool=home, instance_type="p5.48xlarge", zone="us-east-1c", outcome="NO_CAPACITY", at=make.ago(60)
    )
    assert "no capacity in that zone in us-east-1c" in _text(log_in("viewer"), f"/cases/{lost.pk}/")


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("GROUP", {}, "its group sees no GPU and keeps it"),
        ("TEMPLATE", {}, "it stays in service as it is"),
        ("MANAGED", {"auto_repair": True}, "ECS Managed Instances replaces it by itself"),
        ("MANAGED", {"auto_repair": False}, "healthboard does nothing here"),
    ],
    ids=["group", "template", "ecs", "ecs, switched off"],
)
def test_what_happens_if_nobody_answers_depends_on_the_owner(db, kind, fields, said):
    ensure_default()
    on = make.instance(make.pool(f"a-{kind}", kind, **fields))
    assert said in plan.if_nobody_answers(on, judge(on, reread(on)))
