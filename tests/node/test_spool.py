"""The spool: in order, bounded, and what tells something goes last."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.node import healthboard_node as node


def _report(seq, news=False, pad=0, recorder=(), results=(), overrun=False):
    return {
        "seq": seq,
        "boot_id": "b",
        "kernel": ["x"] if news else [],
        "kernel_overrun": overrun,
        "results": list(results),
        "recorder": list(recorder),
        "pad": "." * pad,
    }


def _left(spool):
    """The reports that wait, whole."""
    out = []
    while (item := spool.peek()) is not None:
        out.append(json.loads(item[0]))
        spool.done(item[1])
    return out


def _drain(spool):
    return [report["seq"] for report in _left(spool)]


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


def test_a_flight_recording_goes_before_a_report_with_news(tmp_path):
    spool = node.Spool(str(tmp_path), 4000)
    for seq in range(1, 11):
        spool.append(_report(seq, news=True, recorder=["." * 400]))
    left = _left(spool)
    assert [r["seq"] for r in left] == list(range(1, 11)) and spool.dropped == 0
    bare = [r["seq"] for r in left if not r["recorder"]]
    assert 0 < len(bare) < 10 and bare == list(range(1, len(bare) + 1))  # of the oldest
    assert all(r["kernel"] == ["x"] for r in left) and not spool.take_kernel_lost()


def test_kernel_lines_that_a_full_spool_drops_are_told_as_lost(tmp_path):
    spool = node.Spool(str(tmp_path), 3000)
    for seq in range(1, 60):
        spool.append(_report(seq))
    assert spool.dropped and not spool.take_kernel_lost()  # those told nothing of the kernel log
    for seq in range(60, 120):
        spool.append(_report(seq, news=True))
    assert (spool.take_kernel_lost(), spool.take_kernel_lost()) == (True, False)
    assert 60 not in _drain(spool)
    for seq in range(120, 180):
        spool.append(_report(seq, overrun=seq == 120))  # the word that some were lost is lost with its report
    assert 120 not in _drain(spool) and spool.take_kernel_lost()


def test_kernel_lines_that_the_memory_or_the_server_does_not_take_are_told_as_lost(tmp_path):
    spool = node.Spool(str(tmp_path), 9000)
    spool.path = str(tmp_path / "no/such/folder/spool.jsonl")
    for seq in range(1, 101):
        spool.append(_report(seq, news=seq == 1))
    assert not spool.take_kernel_lost()
    spool.append(_report(101))
    assert spool.take_kernel_lost()
    spool.refused(node._packed(_report(102)))
    assert not spool.take_kernel_lost()
    spool.refused(node._packed(_report(103, news=True)))
    assert spool.take_kernel_lost()


def test_what_waited_in_memory_goes_before_what_came_after_it(tmp_path):
    spool = node.Spool(str(tmp_path), 9000)
    here = spool.path
    spool.append(_report(1))
    spool.path = str(tmp_path / "no/such/folder/spool.jsonl")
    for seq in (2, 3):
        spool.append(_report(seq))
    spool.path = here
    item = spool.peek()
    spool.done(item[1])
    in_memory = spool.peek()  # under way while the disk takes again
    spool.append(_report(4))
    spool.done(in_memory[1])
    assert [json.loads(x[0])["seq"] for x in (item, in_memory)] == [1, 2]
    assert _drain(spool) == [2, 3, 4] and not spool.memory  # 2 twice, which the server takes for a duplicate


def test_thinned_it_keeps_what_is_new_and_the_newest(tmp_path):
    spool = node.Spool(str(tmp_path), 99000)
    for seq in range(1, 41):
        spool.append(
            _report(seq, news=seq in (3, 30), results=["r"] if seq == 7 else (), recorder=["x"] * (10 < seq < 30))
        )
    spool.thin()
    assert _drain(spool) == [3, 7, 11, 27, 28, 29, 30, 40]
    assert spool.dropped == 32 and not spool.take_kernel_lost()
    spool.thin()
    assert _drain(spool) == []


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
