"""What must hold for any input: no crash, no invented number, no dependence on order or repetition."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from healthboard.diagnosis import aws_events, dcgm, ec2, ecs, kernel_log, node_report, nvidia_smi, nvml
from healthboard.diagnosis.explain import Unreadable, explain
from healthboard.diagnosis.exporter_text import samples as exporter_samples
from healthboard.diagnosis.formats import FORMATS
from healthboard.diagnosis.names import pci
from healthboard.diagnosis.signals import Verdict
from tests.diagnosis.build import GPU, NOW, assess, fine, kernel, reading
from tests.diagnosis.score import samples

EXAMINED = Path(__file__).parent / "data/examined.jsonl"
TEXTS = [s["text"] for s in (*samples(), *map(json.loads, EXAMINED.read_text().splitlines()))]
OTHER = "GPU-00000000-0000-4000-8000-000000000004"
FEW = settings(max_examples=150, deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def mangled(draw):
    """A recorded text that was cut, doubled, joined with another, or had some characters replaced."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(text) - 1)))
        what = draw(st.sampled_from(["cut", "tail", "put", "join", "drop"]))
        if what == "cut":
            text = text[:at]
        elif what == "tail":
            text = text[at:]
        elif what == "put":
            text = text[:at] + draw(st.text(max_size=8)) + text[at:]
        elif what == "join":
            text = text[:at] + draw(st.sampled_from(TEXTS))[:500] + text[at:]
        else:
            text = text[:at] + text[at + draw(st.integers(1, 30)) :]
    return text


@FEW
@given(mangled(), st.sampled_from(FORMATS))
def test_no_mangled_text_crashes_the_reading(text, format_):
    try:
        found = explain(text, format_)
    except Unreadable:
        return
    assert json.loads(json.dumps(found))["verdict"] in set(Verdict)
    assert len(found["ignored"]) <= 50


@FEW
@given(JSON)
def test_no_odd_answer_crashes_a_reader(value):
    for item in (
        value,
        {"InstanceStatuses": [value]},
        {"detail-type": "ECS Container Instance Health Change", "detail": value},
    ):
        ec2.read_status(item, at=NOW)
        ecs.read_container_instance(item, at=NOW)
        ecs.read_event(item)
        aws_events.read(item)
        try:
            node_report.read(item, received_at=NOW)
        except node_report.BadReport as error:
            assert str(error)


KEYS = [
    "SystemStatus",
    "InstanceStatus",
    "AttachedEbsStatus",
    "PerformanceStatus",
    "Events",
    "InstanceState",
    "InstanceId",
]


@FEW
@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_an_answer_with_odd_members_is_never_ok_and_never_impaired(item):
    _, readings = ec2.read_status(item, at=NOW)
    for r in readings:
        if r.name in ec2.CHECKS:
            member = item.get(ec2.CHECKS[r.name])
            told = member.get("Status") if isinstance(member, dict) else None
            assert r.value == "INSUFFICIENT_DATA" or str(told).lower() in (
                "ok",
                "impaired",
                "initializing",
                "failed",
                "passed",
            )


@FEW
@given(st.text(alphabet="0123456789abcdefx., \n():[]'<>=NVRMXid PCI-GPU", max_size=80), st.integers(0, 99_999))
def test_no_input_is_read_as_a_number_that_it_is_not(noise, n):
    """A number counts only right after the device group, alone, in a line that begins with the driver's words."""
    for line in (
        f"NVRM: Xid (PCI:0000:3b:00): {n}{''.join(c for c in noise[:3] if c.isalnum())}y",
        f"app says {noise.replace(chr(10), ' ')} NVRM: Xid (PCI:0000:3b:00): {n}, x",
        f"NVRM: Xid (PCI:0000:3b:00): -{n}, x",
        f"NVRM: Xid (PCI:0000:3b:00): {n}.5, x",
    ):
        assert f"XID_{n}" not in {e.code for e in kernel_log.parse(line).events}


@FEW
@given(
    st.text(
        alphabet=st.characters(blacklist_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1, max_size=15
    )
)
def test_a_process_name_is_never_evidence(name):
    line = f"NVRM: Xid (PCI:0000:3b:00): 43, pid=12, name={name}, Ch 00000005"
    assert {e.code for e in kernel_log.parse(line).events} <= {"XID_43"}


EVENTS = st.builds(
    lambda code, seconds, seq, boot, gpu: kernel(code, seconds, seq=seq, boot=boot, gpu=gpu),
    st.sampled_from([f"XID_{n}" for n in (13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 143, 149)]),
    st.integers(0, 90_000),
    st.integers(0, 10_000),
    st.sampled_from(["b0", "b1"]),
    st.sampled_from([GPU, OTHER, None]),
)


@FEW
@given(st.lists(EVENTS, max_size=8, unique_by=lambda e: (e.boot_id, e.seq)), st.randoms())
def test_order_and_redelivery_change_nothing(events, random):
    first = assess(events)
    again = [*events, *random.sample(events, len(events) // 2)]
    random.shuffle(again)
    assert assess(again) == first


@FEW
@given(st.lists(EVENTS, max_size=6))
def test_lines_of_one_source_are_never_a_second_witness(events):
    lines = [replace(e, boot_id="b1", seq=n) for n, e in enumerate(events)]
    got = assess([*lines, *(replace(e, seq=e.seq + 1000, at=e.at + timedelta(seconds=1)) for e in lines)])
    assert not got.may_act


@FEW
@given(st.sampled_from(["EC2_SYSTEM", "EC2_INSTANCE", "AGENT_CONNECTIVITY", "NVML", "GPU_COUNT"]), st.data())
def test_an_unknown_is_neither_healthy_nor_sick(name, data):
    """Any reading that turns unknown or old: the verdict is UNKNOWN, whatever it was before."""
    source = {"NVML": "nvml", "GPU_COUNT": "nvml", "AGENT_CONNECTIVITY": "ecs"}.get(name, "ec2")
    value = data.draw(st.sampled_from(["OK", "IMPAIRED", "ok", "hung", 7, 8]))
    old = [replace(r, last=NOW - timedelta(minutes=10)) for r in fine().copy() if r.source == source]
    rest = [r for r in fine() if r.source != source]
    got = assess([], [*rest, *old, reading(name, value, source, since=9000, last=600)])
    assert got.verdict is Verdict.UNKNOWN and not got.may_act


@FEW
@given(st.integers(0, 10**6))
def test_the_same_evidence_at_the_same_clock_gives_the_same_answer(seconds):
    events = [kernel("XID_95", 30), kernel("XID_119", 40, seq=2)]
    now = NOW + timedelta(seconds=seconds)
    assert assess(events, now=now) == assess(list(reversed(events)), now=now)


LABEL = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), max_size=12)
SERIES = st.tuples(
    st.sampled_from(["DCGM_FI_DEV_GPU_TEMP", "up", "a:b_c"]),
    st.dictionaries(st.sampled_from(["gpu", "UUID", "Hostname", "_x", "err_msg"]), LABEL, max_size=4),
    st.floats(allow_nan=False) | st.integers(-(10**18), 10**18),
    st.sampled_from(["", " 1712345678901"]),
)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@FEW
@given(st.lists(SERIES, max_size=6))
def test_the_exporter_parser_equals_prometheus_clients(rows):
    lines = []
    for name, labels, value, stamp in rows:
        block = ",".join(f'{k}="{escaped(v)}"' for k, v in labels.items())
        lines.append(f"{name}{{{block}}} {value!r}{stamp}" if labels else f"{name} {value!r}{stamp}")
    text = "\n".join(lines) + "\n"
    theirs = [(s.name, s.labels, float(s.value)) for f in text_string_to_metric_families(text) for s in f.samples]
    assert sorted(map(repr, theirs)) == sorted(repr(tuple(s)) for s in exporter_samples(text))


@FEW
@given(st.floats(min_value=2.0**63 - 2**11) | st.sampled_from([2147483632, 2147483635, 140737488355328.0]))
def test_a_sentinel_is_no_value(value):
    assert dcgm.clean(float(value)) is None


@FEW
@given(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31))
def test_all_spellings_of_an_address_are_one(domain, bus, device):
    spellings = [
        f"{domain:04x}:{bus:02x}:{device:02x}", f"{domain:08X}:{bus:02X}:{device:02X}.0", f"{domain:04x}:{bus:02x}:{device:02x}.0",
    ]  # fmt: skip
    assert len({pci(s) for s in spellings}) == 1


@FEW
@given(st.text(max_size=200))
def test_no_text_crashes_a_line_reader(text):
    for read in (kernel_log.parse, nvml.parse, nvidia_smi.parse, dcgm.parse):
        read(text)


READINGS = st.builds(
    lambda row, source, since, held, gpu: reading(
        row[0], row[1], source, since=since + held, last=since, seen=2, gpu=gpu, pci="0000:3b:00"
    ),
    st.sampled_from(
        [("GPU_STATUS", "ok"), ("GPU_STATUS", "lost"), ("RECOVERY_ACTION", 1), ("RECOVERY_ACTION", 0), ("XID_LAST", 95)]
    ),
    st.sampled_from(["nvml", "dcgm"]),
    st.integers(0, 400),
    st.integers(0, 400),
    st.sampled_from([GPU, OTHER, None]),
)


@FEW
@given(st.lists(READINGS, max_size=6), st.lists(EVENTS, max_size=3), st.randoms())
def test_the_order_of_readings_changes_nothing(rows, events, random):
    events = [replace(e, gpu="0000:3b:00") for e in events]
    first = assess(events, [*fine(), *rows])
    shuffled = [*fine(), *rows]
    random.shuffle(shuffled)
    assert assess(events, shuffled) == first


def test_two_that_tell_one_address_at_one_moment_are_told_apart_alike():
    named = set()
    for gpus in ((GPU, OTHER), (OTHER, GPU)):
        rows = [reading("GPU_STATUS", "ok", since=60, last=0, seen=2, gpu=gpu, pci="0000:3b:00") for gpu in gpus]
        [finding] = assess([kernel("XID_13", 30, gpu="0000:3b:00")], [*fine(), *rows]).findings
        named.add(finding.gpu)
    assert named == {OTHER}
