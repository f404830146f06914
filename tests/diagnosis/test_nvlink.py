"""The words of NVLink's errors, bit by bit as NVIDIA's tables have them, and what they lead to."""

import pytest

from healthboard.diagnosis import nvlink
from tests.diagnosis.build import assess, kernel

#: register, bits, class
TABLE_74 = (
    (0, (0, 23, 30), "ignore"),
    (0, (1, 20), "sympathetic"),
    (0, (4, 5), "parity"),
    (0, (8, 9, 12, 16, 17, 24, 28), "hardware"),
    (0, (21, 22), "signal"),
    (0, (27, 29), "repeat"),
    (2, (0, 1, 2, 6), "parity"),
    (2, (13,), "unexpected"),
    (2, (16, 17, 18, 19), "repeat"),
    (3, (16, 17), "sympathetic"),
    (3, (18,), "fabric"),
    (4, (18, 19, 21, 22, 24, 25, 27, 28), "parity"),
    (4, (20, 23, 26, 29), "threshold"),
)


def words(register, bit):
    return tuple(1 << bit if n == register else 0 for n in range(7))


def test_each_bit_of_a_74_has_its_class_and_every_other_goes_to_a_person():
    named = {(register, bit): name for register, bits, name in TABLE_74 for bit in bits}
    for register in range(7):
        for bit in range(32):
            assert nvlink.classes_74(words(register, bit)) == {named.get((register, bit), "unlisted")}, (register, bit)
    assert nvlink.classes_74((0,) * 7) == frozenset()


def link_error(bit, times=1, link=4):
    return [kernel("XID_74", 10 + 5 * n, seq=n + 1, link=link, registers=words(0, bit), remark=n) for n in range(times)]


@pytest.mark.parametrize(
    "bit, times, verdict", [(0, 1, "HEALTHY"), (4, 1, "AMBIGUOUS"), (4, 3, "HARDWARE"), (8, 1, "AMBIGUOUS"), (31, 1, "AMBIGUOUS")]
)  # fmt: skip
def test_what_a_74_leads_to(bit, times, verdict):
    assert assess(link_error(bit, times)).verdict == verdict


def test_parity_on_three_links_is_not_three_times_on_one():
    events = [e for n in range(3) for e in link_error(4, link=n)]
    assert assess([kernel("XID_74", 10 + n, seq=n, **e.attrs) for n, e in enumerate(events)]).verdict == "AMBIGUOUS"


@pytest.mark.parametrize("reason", range(64))
def test_each_reason_of_a_link_that_went_down(reason):
    bucket, told, said = nvlink.link_down_reason(reason << 20 | 0x7F)
    wanted = "ignore" if reason in (38, 40) else "reset"
    assert (bucket, told) == (wanted, reason)
    for reasons, word in (
        ((21, *range(32, 38)), "peer"),
        ((15, 17, 22), "software took"),
        ((2, 4, 10, 42, 43), "cable"),
    ):
        assert (word in said) == (reason in reasons)


def test_the_decoded_reason_comes_before_the_word_fatal():
    assert nvlink.bucket_5(149, "NETIR_LINK_EVT", True, 38 << 20, 0)[0] == "ignore"
    assert nvlink.bucket_5(149, "NETIR_LINK_EVT", False, 21 << 20, 0)[0] == "reset"
    assert nvlink.bucket_5(145, "RLW_SRC_TRACK", True, 1, 4)[0] == "defer"
    assert nvlink.bucket_5(146, "TLW_CTRL", False, 1, 1)[0] == "watch"
    assert nvlink.bucket_5(150, "MSE", True, 1, 1)[0] == "reset"
