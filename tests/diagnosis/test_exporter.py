"""dcgm-exporter and DCGM texts."""

import pytest

from healthboard.diagnosis import dcgm, dcgm_api, exporter_text
from healthboard.diagnosis.explain import explain
from healthboard.diagnosis.exporter_text import samples
from tests.diagnosis.bench import exporter_ratio, kernel_rate
from tests.diagnosis.build import assess, fine, kernel, reading

UUID = "GPU-11111111-2222-4333-8444-555555555555"


def line(metric, value, gpu=0, uuid=UUID, **labels):
    more = "".join(f',{k}="{v}"' for k, v in labels.items())
    return f'DCGM_FI_DEV_{metric}{{gpu="{gpu}",UUID="{uuid}"{more}}} {value}'


def judge(*lines, format_="dcgm"):
    found = explain("\n".join(lines), format_)
    return found["verdict"], found["action"], found["codes"]


@pytest.mark.parametrize(
    ("metric", "value", "verdict", "codes"),
    [
        ("XID_ERRORS", 0, "HEALTHY", []),
        ("XID_ERRORS", 31, "HEALTHY", ["XID_31"]),
        ("XID_ERRORS", 79, "HARDWARE", ["XID_79"]),
        ("XID_ERRORS", 119, "AMBIGUOUS", ["XID_119"]),
        ("ROW_REMAP_FAILURE", 1, "HARDWARE", ["ROW_REMAP_FAILURE"]),
        ("ROW_REMAP_PENDING", 1, "WATCH", ["ROW_REMAP_PENDING"]),
        ("UNCORRECTABLE_REMAPPED_ROWS", 11, "HEALTHY", []),
        ("ECC_DBE_AGG_TOTAL", 7, "HEALTHY", []),
        ("ECC_DBE_VOL_TOTAL", 2, "AMBIGUOUS", ["ECC_UNCORRECTED"]),
        ("THRESHOLD_SRM", 1, "HARDWARE", ["SRAM_THRESHOLD"]),
        ("GPU_TEMP", 97, "WATCH", ["GPU_OVERTEMP"]),
        ("GPU_TEMP_LIMIT", -3, "WATCH", ["GPU_OVERTEMP"]),
        ("GPU_TEMP_LIMIT", 30, "HEALTHY", []),
        ("CLOCK_THROTTLE_REASONS", 0x40, "WATCH", ["GPU_HW_THERMAL_SLOWDOWN"]),
        ("CLOCK_THROTTLE_REASONS", 0x5, "HEALTHY", []),
        ("GET_GPU_RECOVERY_ACTION", 1, "HARDWARE", ["GPU_RECOVERY_ACTION"]),
        ("FABRIC_MANAGER_STATUS", 4, "AMBIGUOUS", ["FABRIC_MANAGER_DOWN"]),
        ("FABRIC_HEALTH_MASK", 0x80, "HEALTHY", []),
        ("GPU_TEMP", 9223372036854775794, "HEALTHY", []),
        ("XID_ERRORS", 2147483632, "HEALTHY", []),
    ],
)
def test_each_series_has_its_reading(metric, value, verdict, codes):
    got = judge(line(metric, value))
    assert (got[0], got[2]) == (verdict, codes)


def test_an_aggregate_that_grows_is_evidence_and_one_that_falls_is_a_restart():
    assert judge(line("ECC_DBE_AGG_TOTAL", 7), line("ECC_DBE_AGG_TOTAL", 9))[2] == ["ECC_UNCORRECTED"]
    assert judge(line("ECC_DBE_AGG_TOTAL", 7), line("ECC_DBE_AGG_TOTAL", 0))[2] == []


def test_a_rate_of_corrected_errors_is_judged_by_its_height():
    watch = judge("(scrapes at 30 s intervals)", line("ECC_SBE_VOL_TOTAL", 0), line("ECC_SBE_VOL_TOTAL", 900))
    assert watch[0] == "WATCH" and watch[2] == ["ECC_SBE_RATE_HIGH"]
    person = judge("(scrapes at 30 s intervals)", line("ECC_SBE_VOL_TOTAL", 0), line("ECC_SBE_VOL_TOTAL", 500_000))
    assert person[:2] == ("AMBIGUOUS", "DIAGNOSE")


def test_a_gpu_whose_series_end_is_missing():
    other = "GPU-11111111-2222-4333-8444-555555555556"
    got = judge(line("POWER_USAGE", 300.5), line("POWER_USAGE", 310.5, 1, other), line("POWER_USAGE", 301.25))
    assert got == ("AMBIGUOUS", "DIAGNOSE", ["GPU_MISSING"])


def test_power_that_stands_still_is_a_frozen_exporter_and_power_that_moves_is_not():
    assert judge(*[line("POWER_USAGE", "300.125")] * 3)[2] == ["DCGM_METRICS_STALE"]
    assert judge(*[line("POWER_USAGE", f"300.{n}") for n in (1, 2, 1)])[2] == []


def test_mig_series_of_one_gpu_are_no_second_scrape():
    rows = [line("FB_USED", 5, GPU_I_ID=str(n), GPU_I_PROFILE="1g.10gb") for n in range(7)]
    assert judge(*rows) == ("HEALTHY", "NONE", [])


def test_a_renamed_label_is_the_same_gpu():
    old, new = (next(samples(line("GPU_TEMP", 40, **{k: "h"}))) for k in ("Hostname", "hostname"))
    assert dcgm.gpu_of(old.labels) == dcgm.gpu_of(new.labels) == UUID


@pytest.mark.parametrize(
    "text",
    [
        "Error: unable to establish a connection to the specified host: localhost",
        'level=fatal msg="The connection to the host engine is not valid any longer"',
        "nv-hostengine: connection refused",
        "DCGM_ST_CONNECTION_NOT_VALID",
    ],
)
def test_a_lost_monitor_is_not_a_failed_gpu(text):
    assert judge(text, format_="dcgm-api") == ("UNKNOWN", "DIAGNOSE", ["DCGM_UNREACHABLE"])
    assert judge(text + "\nhost engine reconnected", format_="dcgm-api")[0] == "HEALTHY"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("GPU 3 has a row remapping failure", "ROW_REMAP_FAILURE"),
        ("Detected 2 volatile double-bit ECC error(s) in GPU 3.", "ECC_UNCORRECTED"),
        ("GPU 1's NvLink link 4 is currently down", "FABRIC_UNHEALTHY"),
        ("A corrupt infoROM has been detected: infoROM corrupt", "INFOROM_CORRUPT"),
        ("GPU 2: XID 95 detected", "XID_95"),
    ],
)
def test_health_messages_have_codes(text, code):
    assert [e.code for e in dcgm_api.parse(text).events] == [code]


def test_a_last_value_gauge_breaks_no_rule_and_is_no_second_witness_of_itself():
    """It never clears: seen at twenty collection times it still tells of one event of unknown age."""
    for xid in range(1, 1000):
        got = assess(readings=fine(gauge=reading("XID_LAST", xid, "dcgm", since=600, gpu=UUID, seen=20)))
        assert not got.may_act, xid
    alone = reading("XID_LAST", 95, "dcgm", since=60, gpu=UUID, seen=4)
    seconded = assess(readings=[*fine(gauge=alone), reading("RECOVERY_ACTION", 2, gpu=UUID)])
    assert (seconded.verdict, seconded.may_act) == ("HARDWARE", True)


def test_a_gauge_does_not_keep_an_applications_fault_alive():
    gauge = reading("XID_LAST", 31, "dcgm", since=7000, gpu=UUID, seen=200)
    fresh = assess([kernel("XID_31", 60, gpu=UUID)], fine(gauge=gauge))
    past = assess([kernel("XID_31", 3700, gpu=UUID)], fine(gauge=gauge))
    assert (fresh.verdict, past.verdict) == ("WORKLOAD", "HEALTHY")


def test_what_is_kept_of_series_is_bounded_however_many_and_long_they_are(monkeypatch):
    monkeypatch.setattr(exporter_text, "MAX_KEPT", 10_000)
    for n in range(100):
        assert len(list(samples(f'new{{a="{n:0900d}"}} 1'))) == 1
    assert sum(map(len, exporter_text._series)) < 12_000


def test_malformed_series_are_skipped():
    text = 'x{a="1} 5\nok{a="b"} 1\n{} 3\nok 2 3 4\nok{a="b"} zz\n1x 5\nbad{a=b} 1'
    assert [tuple(s) for s in samples(text)] == [("ok", {"a": "b"}, 1.0)]


def test_it_is_fast_enough():
    """Far below the bench's figures, so that a busy machine does not fail it."""
    assert kernel_rate(100_000)[0] > 150_000
    assert exporter_ratio(5)[0] > 8
