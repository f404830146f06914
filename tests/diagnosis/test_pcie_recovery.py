"""That the recovery of a PCIe error failed condemns a machine only with a fatal error of the same link just before."""

from __future__ import annotations

import pytest

from healthboard.diagnosis.kernel_log import parse
from healthboard.diagnosis.signals import Action, Verdict
from tests.diagnosis.build import GPU, assess, fine, kernel, reading

PORT, OTHER = "0000:20:01.1", "0000:a0:01.0"
HARD = (Verdict.HARDWARE, Action.REPLACE)
ASKED = (Verdict.AMBIGUOUS, Action.DIAGNOSE)


def _fatal(seconds=10, port=PORT):
    return kernel("PCIE_AER_FATAL", seconds, gpu=None, aer="fatal", port=port)


def _failed(seconds=9, port=PORT):
    return kernel("PCIE_AER_FATAL", seconds, gpu=None, seq=2, aer="recovery-failed", port=port)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([_fatal(), _failed()], HARD),
        ([_failed()], ASKED),  # the driver takes part in no recovery, so that it fails for errors of any severity
        ([_fatal(port=OTHER), _failed()], ASKED),
        ([_fatal(7200), _failed()], ASKED),
        ([_fatal(port=None), _failed(port=None)], ASKED),  # neither says whose it is
        ([_fatal(), kernel("PCIE_AER_FATAL", gpu=None, seq=2, aer="recovered", port=OTHER)], ASKED),
        ([_fatal(), kernel("PCIE_AER_FATAL", 9, gpu=None, seq=2, aer="recovered", port=PORT)], (Verdict.WATCH, Action.WATCH)),
    ],
)  # fmt: skip
def test_a_failed_recovery_needs_a_fatal_error_of_its_port(events, says):
    got = assess(events)
    assert (got.verdict, got.action) == says


def test_the_log_says_whose_port_it_was():
    log = f"""[1.0] pcieport {PORT}: AER: Uncorrected (Non-Fatal) error received: 0000:21:00.0
[1.1] nvidia 0000:21:00.0: AER: can't recover (no error_detected callback)
[1.2] pcieport {PORT}: AER: device recovery failed
[1.3] pcieport {OTHER}: AER: Uncorrected (Fatal) error received: {OTHER}"""
    got = parse(log)
    ports = {(event.attrs["aer"], event.attrs.get("port")) for event in got.events}
    assert ports == {("nonfatal", PORT), ("recovery-failed", None), ("recovery-failed", PORT), ("fatal", OTHER)}


@pytest.mark.parametrize(
    "of_some_gpu",
    [
        reading("RECOVERY_ACTION", 1, gpu=GPU, since=5, seen=3),
        reading("GPU_STATUS", "reset_required", gpu=GPU, since=5, seen=3),
        reading("GPU_STATUS", "error", gpu=GPU, since=5, seen=3, code=999),
    ],
    ids=lambda r: f"{r.name}-{r.value}",
)
def test_what_some_gpu_reads_does_not_make_it_act(of_some_gpu):
    got = assess([_fatal(), _failed()], [*fine(), of_some_gpu])
    assert (got.primary.code, got.action, got.may_act) == ("PCIE_AER_FATAL", Action.REPLACE, False)
    assert "only kernel says so" in got.may_act_why


@pytest.mark.parametrize("seen", [1, 3])
def test_a_wish_for_a_reset_bears_out_no_replacement_of_the_same_gpu(seen):
    """A GPU that asks to be reset does not say that a reset is not enough."""
    wish = reading("RECOVERY_ACTION", 1, gpu=GPU, since=5, last=0, seen=seen)
    got = assess([kernel("XID_79", 10)], [*fine(), wish])
    assert got.action is Action.REPLACE and not got.may_act
    reset = assess([kernel("XID_95", 10)], [*fine(), wish])
    assert reset.action is Action.REBOOT and reset.may_act


@pytest.mark.parametrize("value", [("RECOVERY_ACTION", 1), ("GPU_STATUS", "reset_required")])
def test_it_does_where_the_fault_came_so_often_that_a_reset_is_no_longer_enough(value):
    wish = reading(*value, gpu=GPU, since=5, seen=1)
    flood = [kernel("XID_95", 20 - n, seq=n) for n in range(6)]
    got = assess(flood, [*fine(), wish])
    assert (got.primary.rule, got.action, got.may_act) == ("uncontained-flood", Action.REPLACE, True)


@pytest.mark.parametrize(("value", "acts"), [(("GPU_STATUS", "reset_required"), False), (("GPU_STATUS", "lost"), True)])
def test_a_link_that_is_broken_is_not_borne_out_by_a_wish_for_a_reset_of_its_gpu(value, acts):
    parity = [kernel("XID_74", 30 - 5 * n, seq=n, link=4, registers=(16, 0, 0, 0, 0, 0, 0), remark=n) for n in range(3)]
    got = assess(parity, [*fine(), reading(*value, gpu=GPU, since=5, seen=1)])
    broken = next(f for f in got.findings if f.code == "XID_74")
    assert (broken.rule, broken.action) == ("nvlink-parity", Action.REPLACE)
    assert got.may_act is acts


def test_what_ecs_calls_impaired_is_borne_out_by_a_wish_for_a_reset():
    ecs = reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", since=5, seen=1)
    wish = reading("RECOVERY_ACTION", 2, gpu=GPU, since=5, seen=1)
    assert assess([], [*fine(), ecs, wish]).may_act and not assess([], [*fine(), ecs]).may_act
