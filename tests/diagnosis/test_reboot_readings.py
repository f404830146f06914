"""What was read before the running boot says nothing about it: neither bad nor good."""

from __future__ import annotations

import pytest

from healthboard.diagnosis.signals import Verdict
from tests.diagnosis.build import GPU, ago, assess, fine, reading

BOOTED = 60  # seconds ago; readings up to three minutes old would still be fresh
NEW_BOOT = reading("BOOT_ID", "b2", "node", since=50, seen=3, booted_at=ago(BOOTED).isoformat())


def rebooted(*more, **changed):
    """A machine that came back well a minute ago, its old boot's readings beside."""
    back = {name: reading(name, value, since=50, seen=3) for name, value in (("NVML", "ok"), ("GPU_COUNT", 8))}
    return [*fine(BOOT_ID=NEW_BOOT, **{**back, **changed}), *more]


@pytest.mark.parametrize(
    ("name", "value", "source", "code"),
    [
        ("GPU_STATUS", "lost", "nvml", "NVML_GPU_IS_LOST"),
        ("GPU_STATUS", "reset_required", "nvml", "GPU_RESET_REQUIRED"),
        ("RECOVERY_ACTION", 2, "nvml", "GPU_RECOVERY_ACTION"),
        ("RECOVERY_ACTION", 2, "dcgm", "GPU_RECOVERY_ACTION"),
        ("XID_LAST", 95, "dcgm", "XID_95"),
    ],
)
def test_a_bad_reading_of_the_boot_before_is_not_held_against_this_one(name, value, source, code):
    of_now = [reading("XID_LAST", 0, source, since=40, gpu=GPU.replace("3", "4"))] if source == "dcgm" else []
    before = reading(name, value, source, since=900, last=BOOTED + 20, seen=50, gpu=GPU)
    got = assess(readings=rebooted(before, *of_now))
    assert (got.verdict, got.codes) == (Verdict.HEALTHY, ())
    still = reading(name, value, source, since=900, last=BOOTED - 20, seen=50, gpu=GPU)
    assert code in assess(readings=rebooted(still, *of_now)).codes


def test_a_good_reading_of_the_boot_before_does_not_make_this_one_good():
    """Its exporter has not spoken since: that is not known to be well, and not known to be sick."""
    before = reading("GPU_COUNT", 8, "dcgm", since=900, last=BOOTED + 20, seen=50)
    got = assess(readings=rebooted(before))
    assert got.verdict is Verdict.UNKNOWN and "dcgm: nothing was heard since the last boot" in got.why


def test_a_lost_gpu_of_the_boot_before_stays_unknown_while_nvml_does_not_answer():
    lost = reading("GPU_STATUS", "lost", gpu=GPU, since=900, last=BOOTED + 20, seen=50)
    got = assess(readings=rebooted(lost, NVML=reading("NVML", "hung", since=50), GPU_COUNT=None))
    assert got.verdict is Verdict.UNKNOWN and got.codes[0] == "NVML_PROBE_HUNG"


def test_what_ec2_and_ecs_say_outlives_a_reboot():
    got = assess(readings=rebooted(EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=900, last=BOOTED + 20)))
    assert "EC2_SYSTEM_IMPAIRED" in got.codes


def test_what_a_library_read_before_it_hung_says_nothing_and_what_others_say_stands():
    flag = {"pending": False, "failure": True}
    before = reading("ROW_REMAP", flag, gpu=GPU, since=200, last=20, seen=12)
    assert assess([], [*fine(), before]).primary.code == "ROW_REMAP_FAILURE"
    hung = fine(NVML=reading("NVML", "hung", since=10))
    got = assess([], [*hung, before])
    assert (got.verdict, got.codes, got.may_act) == ("UNKNOWN", ("NVML_PROBE_HUNG",), False)
    seen_too = reading("ROW_REMAP", flag, "dcgm", gpu=GPU, since=200, seen=12)
    assert assess([], [*hung, before, seen_too]).primary.code == "ROW_REMAP_FAILURE"
