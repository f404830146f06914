"""The spool: in order, bounded, and what tells something goes last."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.node import healthboard_node as node


def _report(seq, news=False, pad=0):
    return {
        "seq": seq,
        "boot_id": "b",
        "kernel": ["x"] if news else [],
        "results": [],
        "recorder": [],
        "pad": "." * pad,
    }


def _drain(spool):
    out = []
    while (item := spool.peek()) is not None:
        out.append(json.loads(item[0])["seq"])
        spool.done(item[1])
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 300)), max_size=60))
def test_it_keeps_order_stays_within_its_bound_and_survives_a_restart(tmp_path_factory, steps):
    directory = tmp_path_factory.mktemp("spool")
    spool, sent, seq = node.Spool(str(directory), 4000), [], 0
    for deliver, restart, pad in steps:
        seq += 1
        spool.append(_report(seq, pad=pad))
        assert (directory / "spool.jsonl").stat().st_size <= 4000
        if restart:
            spool = node.Spool(str(directory), 4000)
        assert spool.last_seq("b") in (seq, 0)
        if deliver and (item := spool.peek()):
            sent.append(json.loads(item[0])["seq"])
            spool.done(item[1])
    sent += _drain(spool)
    assert sent == sorted(set(sent))
    assert not steps or sent[-1] == seq


def test_when_it_is_full_reports_without_news_go_first(tmp_path):
    spool = node.Spool(str(tmp_path), 3000)
    for seq in range(1, 101):
        spool.append(_report(seq, news=seq in (3, 7, 50)))
    left = _drain(spool)
    assert {3, 7, 50} <= set(left)
    assert spool.dropped > 50


def test_a_line_that_a_crash_cut_short_is_left_out(tmp_path):
    spool = node.Spool(str(tmp_path), 9000)
    spool.append(_report(1))
    with open(spool.path, "ab") as f:
        f.write(b'{"seq": 2, "boo')
    again = node.Spool(str(tmp_path), 9000)
    again.append(_report(3))
    assert _drain(again) == [1, 3]


def test_a_disk_that_takes_nothing_leaves_the_newest_in_memory(tmp_path):
    spool = node.Spool(str(tmp_path), 9000)
    spool.path = str(tmp_path / "no/such/folder/spool.jsonl")
    for seq in range(1, 151):
        spool.append(_report(seq))
    assert _drain(spool) == list(range(51, 151))


def test_a_spool_that_somebody_removed_begins_anew(tmp_path):
    spool = node.Spool(str(tmp_path), 9000)
    spool.append(_report(1))
    (tmp_path / "spool.jsonl").unlink()
    assert spool.peek() is None
    spool.append(_report(2))
    (tmp_path / "spool.jsonl").write_bytes(b"")
    assert spool.peek() is None
    spool.append(_report(3))
    assert _drain(spool) == [3]
