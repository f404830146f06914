"""The faults that come by themselves."""

from __future__ import annotations

from tests.sandbox.conftest import Fleet


def played(fleet: Fleet, seconds: float) -> list[tuple[float, str, str]]:
    """(second, pool, code) of every fault that showed within so many seconds."""
    seen: dict[str, tuple[float, str, str]] = {}
    begun = fleet.clock.offset
    while fleet.clock.offset - begun < seconds:
        fleet.advance(1, 1)
        for i in fleet.world.instances.values():
            for f in i.faults:
                seen.setdefault(f["id"], (fleet.clock.offset - begun, i.pool or "", f["code"]))
    return sorted(seen.values())


def test_a_clear_failure_comes_within_30_seconds_an_ambiguous_one_within_60_and_more_later(tmp_path):
    fleet = Fleet(tmp_path, script=True)
    rows = played(fleet, 900)
    assert rows[0][1:] == ("solo", "XID_79") and rows[0][0] <= 30
    assert rows[1][2] == "XID_119" and rows[1][1] in ("train", "infer") and rows[1][0] <= 60
    codes = [code for _, _, code in rows]
    assert len(codes) >= 4 and len(set(codes)) == len(codes)
    fleet.stop()


def test_the_same_seed_plays_the_same_and_a_restart_goes_on(tmp_path):
    first = Fleet(tmp_path / "a", script=True)
    whole = [code for _, _, code in played(first, 300)]
    first.stop()
    second = Fleet(tmp_path / "b", script=True)
    begun = [code for _, _, code in played(second, 120)]
    offset = second.clock.offset
    second.stop()
    again = Fleet(tmp_path / "b", script=True)
    again.clock.offset = offset
    assert [code for _, _, code in played(again, 180)] == whole and begun == whole[: len(begun)]
    again.stop()


def test_it_can_be_switched_off(tmp_path):
    fleet = Fleet(tmp_path)
    assert played(fleet, 300) == []
    fleet.stop()
