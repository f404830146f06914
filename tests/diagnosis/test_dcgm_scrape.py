"""One scrape, whatever it says: a reading of GPUs, or a reason why it is none; never a crash, never a made-up number."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthboard.diagnosis import dcgm_scrape
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet import heads
from tests.diagnosis.build import GPU, NOW, assess, fine, reading

NAMES = [
    "DCGM_FI_DEV_" + name
    for name in (
        "XID_ERRORS", "GPU_TEMP", "MEMORY_TEMP", "GPU_TEMP_LIMIT", "POWER_USAGE", "GPU_UTIL", "ECC_DBE_VOL_TOTAL",
        "ECC_DBE_AGG_TOTAL", "ECC_SBE_VOL_TOTAL", "ROW_REMAP_FAILURE", "ROW_REMAP_PENDING", "THRESHOLD_SRM",
        "UNCORRECTABLE_REMAPPED_ROWS", "RETIRED_PENDING", "GET_GPU_RECOVERY_ACTION", "CLOCK_THROTTLE_REASONS",
        "FABRIC_MANAGER_STATUS", "FABRIC_HEALTH_MASK", "FABRIC_HEALTH_SUMMARY", "SOMETHING_NEW",
    )
] + ["DCGM_EXP_XID_ERRORS_COUNT", "DCGM_"]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 79, 95, 2147483632, 2147483634, 9223372036854775794, 140737488355329.0, 2.0**63, 999]),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True, allow_infinity=True),
)
LABELS = st.dictionaries(
    st.sampled_from(["UUID", "uuid", "gpu", "pci_bus_id", "GPU_I_ID", "xid", "Hostname"]),
    st.sampled_from([GPU, GPU.replace("3", "4"), "00000000:3B:00.0", "3", "79", "-1", "<<<NULL>>>", "", "x" * 200]),
    max_size=4,
)
ROWS = st.lists(st.tuples(st.sampled_from(NAMES), LABELS, VALUES), max_size=12)


def written(rows) -> bytes:
    lines = []
    for name, labels, value in rows:
        block = ",".join(f'{key}="{text}"' for key, text in labels.items())
        lines.append(f"{name}{{{block}}} {value!r}\n")
    return "".join(lines).encode()


@settings(max_examples=150, deadline=None)
@given(ROWS, st.binary(max_size=20), st.integers(0, 400))
def test_whatever_an_exporter_says_is_a_reading_or_a_reason(rows, noise, where):
    body = written(rows)
    for answer in (body, body[:where] + noise + body[where:]):
        try:
            told = dcgm_scrape.read(answer, at=NOW)
        except dcgm_scrape.Unusable:
            continue
        events = dcgm_scrape.new_xids(told, {}, at=NOW)
        for r in told.readings:  # any database takes it
            json.loads(heads.canonical([r.value, heads.steady(r.attrs)]))
        got = assess(events, [*fine(), *told.readings])
        assert got.verdict in set(Verdict)
        assert not got.may_act or len(got.primary.sources) > 1  # one scrape alone is one word


@pytest.mark.parametrize(
    "value", [2147483632, 2147483635, 9223372036854775792, 2.0**63, "NaN", "+Inf", 140737488355328.0]
)
def test_a_sentinel_is_no_measurement_and_no_xid(value):
    """A GPU of which there is nothing else is not counted as seen."""
    rows = [f'DCGM_FI_DEV_{name}{{UUID="{GPU}"}} {value}' for name in ("XID_ERRORS", "GPU_TEMP", "ECC_DBE_VOL_TOTAL")]
    told = dcgm_scrape.read("\n".join(rows).encode(), at=NOW)
    assert [r.name for r in told.readings] == ["EXPORTER"]


def test_a_series_that_names_no_gpu_is_nobodys():
    told = dcgm_scrape.read(
        f'DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="1"}} 1\nDCGM_FI_DEV_GPU_TEMP{{UUID="{GPU}"}} 40'.encode(), at=NOW
    )
    assert {r.gpu for r in told.readings if r.name not in ("EXPORTER", "GPU_COUNT")} == {GPU}
    assert assess(readings=fine(a=reading("ROW_REMAP", {"failure": True}, "dcgm", gpu=None))).codes  # it would be read


def test_an_xid_that_is_counted_again_and_again_is_told_once():
    row = f'DCGM_EXP_XID_ERRORS_COUNT{{UUID="{GPU}",xid="31",window_size_in_ms="300000"}} '
    told = [dcgm_scrape.read((row + str(n)).encode(), at=NOW) for n in (1, 1, 3, 0)]
    counts = [
        sum(e.count for e in dcgm_scrape.new_xids(now, before, at=NOW))
        for now, before in zip(told, [{}, *(t.xids for t in told)], strict=False)
    ]
    assert counts == [1, 0, 2, 0]
