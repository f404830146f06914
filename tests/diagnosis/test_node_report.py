"""A node's report: what it gives, and what is refused."""

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.node_report import BadReport, read
from healthboard.diagnosis.signals import Context, Event, Reading, Verdict
from tests.diagnosis.build import GPU

NOW = datetime(2026, 11, 30, 17, 0, tzinfo=UTC)
REPORT = {
    "schema": 1, "reporter": "1.0.0", "boot_id": "0c6fb7c4-0000-4000-8000-000000000001", "seq": 17,
    "sent_at": "2026-11-30T17:00:00.000Z", "uptime_s": 1234.5, "driver": "580.95.05",
    "nvml": {"state": "ok", "code": 0, "detail": ""}, "gpu_count": 1,
    "gpus": [
        {
            "index": 0, "uuid": GPU, "serial": "165", "name": "NVIDIA H100 80GB HBM3", "pci": "00000000:3B:00.0",
            "status": "ok", "code": 0, "temperature_c": 45, "power_w": 310.2, "utilization_pct": None,
            "ecc": {"volatile_corrected": 0, "volatile_uncorrected": 0, "sram_threshold": False},
            "row_remap": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
            "recovery_action": 0, "clock_event_reasons": 0, "fabric_state": 3, "fabric_health": None,
        }
    ],
    "kernel": [],
}  # fmt: skip
LINE = {
    "seq": 9,
    "at": "2026-11-30T16:59:59.100Z",
    "facility": 0,
    "text": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen",
}


def report(**changed):
    return {**copy.deepcopy(REPORT), **changed}


def gpu(**changed):
    return [{**copy.deepcopy(REPORT["gpus"][0]), **changed}]


def judged(told, expected=1):
    found = read(told, received_at=NOW)
    return evaluate(found.events, found.readings, now=NOW, context=Context(expected_gpus=expected))


def test_a_healthy_report_is_healthy():
    found = read(report(), received_at=NOW)
    assert found.booted_at == NOW - timedelta(seconds=1234.5) and found.gpus[0].pci == "0000:3b:00"
    assert judged(report()).verdict is Verdict.HEALTHY


def test_kernel_lines_are_named_by_uuid_and_keep_boot_and_sequence():
    (event,) = read(report(kernel=[LINE]), received_at=NOW).events
    assert (event.code, event.gpu, event.seq, event.boot_id) == ("XID_79", GPU, 9, REPORT["boot_id"])


@pytest.mark.parametrize("facility", [1, 3, None])
def test_a_line_that_the_kernel_did_not_write_is_suspected(facility):
    (event,) = read(report(kernel=[{**LINE, "facility": facility}]), received_at=NOW).events
    assert event.code == "LOG_INJECTION_SUSPECTED"


def test_a_lost_gpu_is_two_witnesses_with_its_line():
    got = judged(report(gpus=gpu(status="lost", code=15), kernel=[LINE]))
    assert got.may_act and got.primary.code == "XID_79" and got.primary.gpu == GPU


@pytest.mark.parametrize(
    ("state", "verdict"),
    [("hung", "UNKNOWN"), ("crashed", "UNKNOWN"), ("driver_not_loaded", "UNKNOWN"), ("version_mismatch", "AMBIGUOUS"),
     ("library_not_found", "UNKNOWN"), ("something new", "AMBIGUOUS")],
)  # fmt: skip
def test_a_library_that_does_not_answer_tells_nothing_about_gpus(state, verdict):
    told = report(nvml={"state": state, "code": None}, gpus=gpu(status="lost"))
    assert not [r for r in read(told, received_at=NOW).readings if r.gpu]
    assert judged(told).verdict == verdict


def test_null_measurements_stay_unknown():
    bare = gpu(
        row_remap=None, ecc=None, recovery_action=None, clock_event_reasons=None, temperature_c=None, fabric_state=None
    )
    names = {r.name for r in read(report(gpus=bare), received_at=NOW).readings}
    assert names == {"BOOT_ID", "NVML", "GPU_COUNT", "GPU_STATUS"}


def test_a_flag_that_is_null_is_neither_set_nor_clear():
    remap = {"correctable": None, "uncorrectable": None, "pending": None, "failure": None}
    assert judged(report(gpus=gpu(row_remap=remap))).verdict is Verdict.HEALTHY


@pytest.mark.parametrize(
    ("changed", "code", "verdict"),
    [
        ({"row_remap": {"failure": True, "pending": False}}, "ROW_REMAP_FAILURE", "HARDWARE"),
        ({"row_remap": {"failure": False, "pending": True}}, "ROW_REMAP_PENDING", "WATCH"),
        ({"ecc": {"sram_threshold": True}}, "SRAM_THRESHOLD", "HARDWARE"),
        ({"recovery_action": 2}, "GPU_RECOVERY_ACTION", "HARDWARE"),
        ({"recovery_action": 3}, "GPU_RECOVERY_ACTION", "AMBIGUOUS"),
        ({"status": "reset_required", "code": 16}, "GPU_RESET_REQUIRED", "HARDWARE"),
        ({"status": "error", "code": 999}, "NVML_UNKNOWN_ERROR", "AMBIGUOUS"),
        ({"clock_event_reasons": 0x40}, "GPU_HW_THERMAL_SLOWDOWN", "WATCH"),
        ({"clock_event_reasons": 0x80}, "GPU_POWER_BRAKE", "WATCH"),
        ({"temperature_c": 96}, "GPU_OVERTEMP", "WATCH"),
        ({"fabric_health": 0x1259}, "FABRIC_UNHEALTHY", "AMBIGUOUS"),
        ({"fabric_status": 999}, "FABRIC_UNHEALTHY", "AMBIGUOUS"),
    ],
)
def test_each_nvml_reading_has_its_code(changed, code, verdict):
    got = judged(report(gpus=gpu(**changed)))
    assert (got.codes, str(got.verdict)) == ((code,), verdict)


@pytest.mark.parametrize(
    "hot, seen, verdict", [(575, 0, "WATCH"), (599, 0, "WATCH"), (600, 0, "AMBIGUOUS"), (700, 120, "WATCH")]
)
def test_heat_that_lasts_ten_minutes_is_for_a_person_and_looked_at_again_when_it_may(hot, seen, verdict):
    """Only what was seen counts: after a silence of minutes it is looked at again, not judged."""
    found = read(report(gpus=gpu(temperature_c=96)), received_at=NOW)
    since, last = NOW - timedelta(seconds=hot), NOW - timedelta(seconds=seen)
    rows = [replace(r, since=since, last=last) if r.name == "TEMPERATURE" else r for r in found.readings]
    got = evaluate(found.events, rows, now=NOW, context=Context(expected_gpus=1))
    assert (got.codes, str(got.verdict), got.may_act) == (("GPU_OVERTEMP",), verdict, False)
    again = NOW + timedelta(seconds=30)
    assert got.next_at == again if verdict == "WATCH" else got.next_at > again


def of_eight(answering: int, code: int = 28) -> dict:
    """A report of eight GPUs that a node knows, of which NVML lists so many; the others it can only name."""
    ok, gone = gpu()[0], gpu(status="lost", code=code)[0]
    rows = [{**(ok if n < answering else gone), "index": n, "uuid": f"{GPU[:-1]}{n}"} for n in range(8)]
    return report(gpu_count=answering if code == 28 else 8, gpus=rows)


def lasting(told: dict, **more):
    """What is made of it once it was told the same at five collection times."""
    found = read(told, received_at=NOW)
    rows = [replace(r, since=NOW - timedelta(minutes=2), observations=5) for r in found.readings]
    return evaluate(found.events, rows, now=NOW, context=Context(expected_gpus=8), **more)


@pytest.mark.parametrize("answering", [0, 4, 7])
def test_what_nvml_does_not_list_is_missing_and_for_a_person(answering):
    """Only that: no line and no handle says that one is lost. None at all is most often a broken driver."""
    got = lasting(of_eight(answering))
    assert (got.codes, str(got.verdict), str(got.primary.action)) == (("GPU_MISSING",), "AMBIGUOUS", "DIAGNOSE")
    assert not got.may_act and f"{answering} of 8 GPUs answer" in got.primary.why
    if answering == 7:
        assert got.primary.gpu == f"{GPU[:-1]}7", "the one that the node remembers"
    lost = lasting(of_eight(answering, code=15))
    assert (lost.primary.code, lost.may_act) == ("NVML_GPU_IS_LOST", True), (
        "a handle that says so is a fault of the GPU"
    )


def test_what_nvml_does_not_list_bears_out_a_line_that_it_was_lost():
    told = of_eight(7)
    told["kernel"] = [LINE]
    told["gpus"][7]["pci"], told["gpus"][0]["pci"] = told["gpus"][0]["pci"], "00000000:4B:00.0"
    got = judged(told, expected=8)
    assert (got.primary.code, got.primary.gpu, got.may_act) == ("XID_79", f"{GPU[:-1]}7", True)


@pytest.mark.parametrize("gone, certain", [(7, {7}), (6, {7})])
def test_one_loss_before_a_reboot_says_nothing_of_the_others_that_are_missing(gone, certain):
    """Of one that is missing after it there is no doubt which it is; of several only the one that was lost is broken."""
    told = of_eight(gone)
    before = Event(source="kernel", code="XID_79", at=NOW - timedelta(hours=1), gpu=f"{GPU[:-1]}7", boot_id="before")
    found = read(told, received_at=NOW)
    got = evaluate([before, *found.events], found.readings, now=NOW, context=Context(expected_gpus=8))
    lost = {f.gpu for f in got.findings if f.code == "GPU_MISSING" and f.verdict == "HARDWARE"}
    assert lost == {f"{GPU[:-1]}{n}" for n in certain}
    assert len([f for f in got.findings if f.code == "GPU_MISSING"]) == 8 - gone


def test_a_type_that_nobody_knows_misses_what_the_node_knows():
    got = judged(of_eight(7), expected=None)
    assert got.codes == ("GPU_MISSING",) and not got.may_act


@pytest.mark.parametrize("harmless", [{"clock_event_reasons": 0x17}, {"fabric_health": 0x80}, {"fabric_state": 0},
                                      {"fabric_status": 0}, {"fabric_state": 2}])  # fmt: skip
def test_normal_readings_are_no_fault(harmless):
    assert judged(report(gpus=gpu(**harmless))).verdict is Verdict.HEALTHY


@pytest.mark.parametrize("state", [1, 2])
@pytest.mark.parametrize(
    "started, booted, told",
    [(599, 7200, ()), (600, 7200, ("FABRIC_UNHEALTHY",)), (7200, 599, ()), (7200, 600, ("FABRIC_UNHEALTHY",))],
)
def test_a_fabric_that_does_not_come_up_in_ten_minutes_of_a_boot_is_for_a_person(state, started, booted, told):
    found = read(report(gpus=gpu(fabric_state=state), uptime_s=booted), received_at=NOW)
    rows = [replace(r, since=NOW - timedelta(seconds=started)) if r.name == "FABRIC" else r for r in found.readings]
    got = evaluate(found.events, rows, now=NOW, context=Context(expected_gpus=1))
    assert got.codes == told and not got.may_act
    assert got.verdict is (Verdict.AMBIGUOUS if told else Verdict.HEALTHY)
    assert told or got.next_at == NOW + timedelta(seconds=30), "it is looked at again when the time is over"


def test_where_the_fabric_manager_is_down_that_alone_is_told():
    found = read(report(gpus=gpu(fabric_state=2), uptime_s=3600), received_at=NOW)
    rows = [replace(r, since=NOW - timedelta(seconds=3000)) if r.name == "FABRIC" else r for r in found.readings]
    rows.append(Reading("FABRIC_MANAGER", "down", "dcgm", NOW, NOW))
    assert evaluate([], rows, now=NOW, context=Context(expected_gpus=1)).codes == ("FABRIC_MANAGER_DOWN",)


@pytest.mark.parametrize(
    "bad",
    [
        {"schema": 2}, {"schema": True}, {"boot_id": ""}, {"boot_id": 7}, {"seq": "1"}, {"seq": -1}, {"sent_at": "yesterday"},
        {"sent_at": None}, {"uptime_s": "1"}, {"uptime_s": -5}, {"uptime_s": float("nan")}, {"gpus": {}}, {"gpus": ["x"]},
        {"gpus": gpu(status="fine")}, {"gpus": gpu(temperature_c="hot")}, {"gpus": gpu(row_remap=[1])},
        {"gpus": gpu(row_remap={"failure": "no"})}, {"gpus": gpu(index=None)}, {"kernel": [{"text": 5}]},
        {"kernel": [{"text": "x", "seq": 1, "at": "?"}]}, {"gpu_count": 1.5}, {"nvml": "ok"}, {"gpus": gpu() * 65},
    ],
)  # fmt: skip
def test_a_malformed_report_is_refused_with_a_reason(bad):
    with pytest.raises(BadReport) as error:
        read(report(**bad), received_at=NOW)
    assert next(iter(bad)) in str(error.value)


@pytest.mark.parametrize("other", [None, [], "x", 5])
def test_what_is_no_object_is_refused(other):
    with pytest.raises(BadReport):
        read(other, received_at=NOW)


def test_unknown_fields_are_ignored():
    assert read(report(new_field={"a": 1}), received_at=NOW).seq == 17


def test_a_clock_that_runs_ahead_is_not_believed():
    found = read(
        report(sent_at="2026-12-02T17:00:00Z", kernel=[{**LINE, "at": "2026-12-02T16:59:50Z"}]), received_at=NOW
    )
    assert found.at == NOW and found.events[0].at == NOW - timedelta(seconds=10)
