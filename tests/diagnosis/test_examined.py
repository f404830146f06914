"""Texts of our own, of other machines, tools and forms than the recorded samples; and what may change in any of them
without a change of the reading."""

import json
import random
import re
from pathlib import Path

import pytest

from healthboard.diagnosis.explain import Unreadable, explain, explain_lines
from healthboard.diagnosis.formats import KINDS
from tests.diagnosis.score import HARMLESS, samples

DATA = Path(__file__).parent / "data"
EXAMINED, JUDGED_FIRST = (
    [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    for name in ("examined.jsonl", "judged_first.jsonl")
)
ALL = EXAMINED + samples()
KERNEL = [s for s in ALL if s["kind"].startswith("kernel")]
BARE = [s for s in KERNEL if all(re.match(r"NVRM|nvidia-nv", line) for line in s["text"].split("\n"))]


def judged(text, kind):
    try:
        found = explain(text, KINDS.get(kind, "auto"))
    except Unreadable:
        return None
    return found["verdict"], found["action"], tuple(sorted(found["codes"]))


WHOLE = {s["id"]: judged(s["text"], s["kind"]) for s in ALL}


def wrong(rows):
    found = []
    for sample, (got, _) in zip(rows, explain_lines(map(json.dumps, rows)), strict=True):
        want = sample["expect"]
        told = (got.get("verdict"), got.get("action"), sorted(got.get("codes", ())))
        if told != (want["verdict"], want["action"], sorted(want["codes"])):
            found.append((sample["id"], sample["why"], want, told))
    return found


def test_each_is_read_as_a_person_would_read_it():
    assert wrong(EXAMINED) == [] and len(EXAMINED) > 450


def test_those_that_were_judged_before_they_were_read_are_read_so():
    """Written from the facts about drivers, exporters and AWS, and judged before anything read them."""
    assert wrong(JUDGED_FIRST) == []
    assert len(JUDGED_FIRST) > 190 and len({row["kind"] for row in JUDGED_FIRST}) > 12


def test_a_text_without_a_format_is_read_as_with_it_or_not_at_all():
    """What is not recognised is said to be so; it is never read as worse, or as another thing, than it is."""
    rows = [s for s in [*ALL, *JUDGED_FIRST] if KINDS.get(s["kind"], "auto") != "auto"]
    other = [s for s in rows if judged(s["text"], "auto") not in (None, judged(s["text"], s["kind"]))]
    lost = [s for s in rows if judged(s["text"], "auto") is None and s["expect"]["verdict"] != "HEALTHY"]
    assert (other, lost, len(rows) > 600) == ([], [], True)


def _address(match):
    domain, bus, device = match[0].split(":")
    return f"{domain}:{int(bus, 16) ^ 0x5A:02x}:{device}"


NOISE = (
    "[   77.123] systemd[1]: Started Session 4 of user ec2-user.",
    'audit: type=1400 apparmor="ALLOWED"',
    "eth0: renamed from veth12",
    "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  570.1",
    "[  9.1] nvidia: loading out-of-tree module taints kernel.",
)


def _noise(text):
    chance = random.Random(len(text))
    rows = [
        row
        for line in text.split("\n")
        for row in (line, *chance.sample(NOISE, 2 if chance.random() < 0.7 and not line.startswith("{") else 0))
    ]
    return "\n".join(rows if text.startswith("{") else [*NOISE, *rows, *NOISE])


CHANGES = {
    "addresses": lambda t: re.sub(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\b(?!:)", _address, t),
    "processes": lambda t: re.sub(r"pid=(\d+)", lambda m: f"pid={int(m[1]) * 3 + 17}", t),
    "hosts": lambda t: re.sub(r"\bip-\d+-\d+-\d+-\d+\b", "gpu-node-a7", t),
    "uptimes": lambda t: re.sub(r"\[ *(\d+)\.(\d{6})\]", lambda m: f"[{int(m[1]) + 777:5d}.{m[2]}]", t),
    "noise": _noise,
    "line ends": lambda t: t.replace("\n", "\r\n") + "\r\n\r\n",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_does_not_matter_changes_nothing(change):
    for sample in KERNEL:
        assert judged(CHANGES[change](sample["text"]), sample["kind"]) == WHOLE[sample["id"]], sample["id"]


PREFIXES = (
    lambda n: f"[{5000 + n * 0.01:.6f}] ",
    lambda n: f"Mar 10 22:41:{5 + n % 50:02d} host-1 kernel: ",
    lambda n: f"4,{900 + n},{5000000000 + n * 1000},-;",
    lambda n: f"[Tue Mar 10 22:41:{5 + n % 50:02d} 2026] ",
    lambda n: f"kern  :warn  : 2026-05-19T13:20:{7 + n % 50:02d},610338+00:00 ",
    lambda n: f"2026-03-10T22:41:{5 + n % 50:02d}.123456+00:00 host-1 kernel: [ 500.{n:06d}] ",
    lambda n: "<4>",
    lambda n: f"1767225600{100 + n}\tMar 10 22:41:{5 + n % 50:02d} host-1 kernel: ",
    lambda n: f"<4>1 2026-03-10T22:41:{5 + n % 50:02d}Z host-1 kernel - - - ",
)


def _journal(line, n):
    row = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "MESSAGE": line}
    return json.dumps({**row, "__REALTIME_TIMESTAMP": str(1767225600000000 + n)})


def test_the_form_of_the_log_changes_nothing():
    assert len(BARE) > 50
    for sample in BARE:
        rows = sample["text"].split("\n")
        forms = ["\n".join(prefix(n) + line for n, line in enumerate(rows)) for prefix in PREFIXES]
        forms.append("\n".join(_journal(line, n) for n, line in enumerate(rows)))
        events = [
            {"timestamp": 1767225600000 + n, "message": f"Mar 10 22:41:05 h kernel: {x}"} for n, x in enumerate(rows)
        ]
        forms.append(json.dumps({"events": events}))
        for form in forms:
            assert judged(form, sample["kind"]) == WHOLE[sample["id"]], (sample["id"], form[:200])


def test_no_cut_makes_a_harmless_text_a_broken_machine():
    """Unless the lines that are whole say so: a recovery may come last, and in a sentence the denial."""
    for sample in ALL:
        text, kind = sample["text"], sample["kind"]
        if WHOLE[sample["id"]] is None or WHOLE[sample["id"]][0] not in HARMLESS or len(text) > 4000:
            continue
        if kind == "dcgm_api" and not text.startswith("{"):
            continue
        ends = [n for n, char in enumerate(text) if char == "\n"]
        if any((judged(text[:n], kind) or "x")[0] == "HARDWARE" for n in ends):
            continue
        for cut in range(1, len(text), max(1, len(text) // 12)):
            assert (judged(text[:cut], kind) or "x")[0] != "HARDWARE", (sample["id"], text[:cut])
