"""What looks like a second witness and is none: nothing here may be repaired without a person."""

from datetime import timedelta

import pytest

from healthboard.diagnosis import aws_events
from healthboard.diagnosis.signals import Event, Verdict
from tests.diagnosis.build import GPU, NOW, ago, assess, fine, kernel, reading

OTHER = "GPU-00000000-0000-4000-8000-000000000004"
LOST = reading("GPU_STATUS", "lost", gpu=GPU, since=5, seen=1)
ANSWERS = reading("GPU_STATUS", "ok", gpu=GPU, since=9000)
EC2_BAD = reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=0, seen=1)


@pytest.mark.parametrize("number", [48, 62, 95, 140, 143, 158])
def test_a_last_value_gauge_that_stays_is_no_witness_of_itself(number):
    gauge = reading("XID_LAST", number, "dcgm", gpu=GPU, since=7200, seen=200)
    assert not assess([], [*fine(), gauge]).may_act
    got = assess([kernel(f"XID_{number}", 5000)], [*fine(), gauge])
    assert not got.may_act, "and one that is older than the line bears out nothing"


@pytest.mark.parametrize("code", ["XID_79", "GPU_FALLEN_OFF_BUS"])
def test_a_wish_for_a_reset_that_stood_before_does_not_bear_out_a_loss(code):
    for name, value in (("RECOVERY_ACTION", 1), ("GPU_STATUS", "reset_required")):
        stands = reading(name, value, gpu=GPU, since=7200, seen=400)
        assert not assess([kernel(code, 5)], [*fine(), stands]).may_act, name


def test_a_wish_for_a_reset_that_stands_is_followed_whenever_a_new_line_comes():
    stands = reading("RECOVERY_ACTION", 1, gpu=GPU, since=7200, seen=400)
    got = assess([kernel("XID_95", 5)], [*fine(), stands])
    assert got.may_act and got.action == "REBOOT"


def test_a_waiting_gpu_is_there_and_does_not_bear_out_that_it_is_gone():
    waits = reading("GPU_STATUS", "reset_required", gpu=GPU, since=5, seen=1)
    got = assess([kernel("XID_79", 8)], [*fine(), waits])
    assert got.primary.code == "XID_79" and not got.may_act


def test_a_gpu_that_nvml_reads_after_its_loss_was_logged_is_not_replaced():
    gauge = reading("XID_LAST", 79, "dcgm", gpu=GPU, since=5, seen=1)
    at_once = assess([kernel("XID_79", 10)], [*fine(), ANSWERS, gauge])
    assert not at_once.may_act
    later = assess([kernel("XID_79", 60)], [*fine(), ANSWERS, reading("XID_LAST", 79, "dcgm", gpu=GPU, since=50)])
    assert later.verdict is Verdict.AMBIGUOUS and not later.may_act
    ecs = reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", since=50, reason="XID_79")
    assert assess([kernel("XID_79", 60)], [*fine(), ANSWERS, ecs]).primary.code != "XID_79"


def test_another_gpu_that_is_missing_does_not_bear_out_the_loss_of_one_that_answers():
    short = reading("GPU_COUNT", 7, since=60)
    got = assess([kernel("XID_79", 10)], [*fine(GPU_COUNT=short), ANSWERS])
    assert not got.may_act
    assert assess([kernel("XID_79", 10)], fine(GPU_COUNT=short)).may_act, "as long as nothing says that it answers"


@pytest.mark.parametrize("code", ["XID_95", "XID_48", "XID_62"])
def test_what_names_no_gpu_may_be_of_another(code):
    unnamed = reading("RECOVERY_ACTION", 1, since=5, seen=1)
    got = assess([kernel(code, 10)], [*fine(), unnamed])
    assert not (got.may_act and got.primary.code == code)
    counted = Event(ago(8), code, "dcgm")
    assert not assess([kernel(code, 10), counted]).may_act


@pytest.mark.parametrize("nvml_code", [None, 2, 3, 4, 12, 19])
def test_an_nvml_error_that_is_not_of_the_gpu_is_no_witness(nvml_code):
    failed = reading("GPU_STATUS", "error", gpu=GPU, since=5, seen=1, code=nvml_code)
    assert not assess([kernel("XID_95", 10)], [*fine(), failed]).may_act
    unknown = reading("GPU_STATUS", "error", gpu=GPU, since=5, seen=1, code=999)
    assert assess([kernel("XID_95", 10)], [*fine(), unknown]).may_act


def test_another_number_by_ecs_is_another_fault():
    def ecs(reason):
        return reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", since=5, seen=1, reason=reason)

    named = Event(ago(5), "XID_74", "ecs", text="XID_74", attrs={"named_by": "ECS"})
    assert not assess([kernel("XID_95", 10), named], [*fine(), ecs("XID_74")]).may_act
    same = Event(ago(5), "XID_95", "ecs", text="XID_95", attrs={"named_by": "ECS"})
    assert assess([kernel("XID_95", 10), same], [*fine(), ecs("XID_95")]).may_act


@pytest.mark.parametrize("number", [54, 64, 74, 109, 136, 142, 151, 155, 156])
def test_a_number_that_a_person_decides_does_not_act_because_ecs_acts_on_it(number):
    check = reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", since=120, seen=3, reason=f"XID_{number}")
    named = Event(ago(120), f"XID_{number}", "ecs", attrs={"named_by": "ECS"})
    got = assess([named], [*fine(), check])
    assert not got.may_act and f"XID_{number}" in got.may_act_why
    unnamed = reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", since=120, seen=3)
    assert assess([], [*fine(), unnamed]).may_act


def test_one_failed_check_and_an_agent_that_just_blinked_are_no_dead_host():
    blink = reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=0, seen=1)
    assert not assess([], fine(EC2_SYSTEM=EC2_BAD, AGENT_CONNECTIVITY=blink)).may_act
    away = reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=60, seen=2)
    assert assess([], fine(EC2_SYSTEM=EC2_BAD, AGENT_CONNECTIVITY=away)).may_act


def test_what_was_read_before_the_boot_is_over():
    boot = reading("BOOT_ID", "b2", "node", since=20, booted_at=ago(60).isoformat())
    lost = reading("GPU_STATUS", "lost", gpu=GPU, since=300, last=90, seen=10)
    gauge = reading("XID_LAST", 95, "dcgm", gpu=GPU, since=300, last=90, seen=10)
    got = assess([kernel("XID_79", 310), kernel("XID_95", 310, seq=2)], [*fine(BOOT_ID=boot), lost, gauge])
    assert got.verdict is not Verdict.HARDWARE and not got.may_act
    host = reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=300, last=20, seen=5)
    assert assess([], fine(BOOT_ID=boot, EC2_SYSTEM=host)).verdict is Verdict.HARDWARE, (
        "a host's check is not the node's"
    )


def test_the_slot_belongs_to_the_gpu_that_is_in_it_now():
    old = reading("GPU_STATUS", "ok", gpu=OTHER, since=90_000, last=80_000, pci="0000:3b:00")
    new = reading("GPU_STATUS", "lost", gpu=GPU, since=5, seen=1, pci="0000:3b:00")
    line = kernel("XID_79", gpu="0000:3b:00")
    for rows in ([old, new], [new, old]):
        got = assess([line], [*fine(), *rows])
        assert got.primary.gpu == GPU and got.may_act


SPOT = Event(ago(60), "EC2_SPOT_INTERRUPTION", "ec2")
GONE_HOST = {
    "EC2_SYSTEM": reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=40, seen=2),
    "AGENT_CONNECTIVITY": reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=50, seen=3),
}


def test_an_end_that_was_announced_is_no_fault_and_nothing_is_repaired_before_it():
    got = assess([SPOT], fine(**GONE_HOST))
    assert got.verdict is Verdict.WATCH and not got.may_act and got.next_at is not None
    lost = assess([SPOT, kernel("XID_79", 10)], [*fine(), LOST])
    assert lost.verdict is Verdict.HARDWARE and not lost.may_act and "goes away" in lost.may_act_why
    block = Event(ago(40 * 60), "CAPACITY_BLOCK_ENDING", "ec2")
    assert assess([block], fine(**GONE_HOST)).verdict is Verdict.WATCH


def test_an_end_that_did_not_come_is_forgotten_and_what_was_wrong_before_it_stays():
    past = Event(ago(3600), "EC2_SPOT_INTERRUPTION", "ec2")
    assert assess([past], fine(**GONE_HOST)).may_act
    before = {k: reading(k, "IMPAIRED", r.source, since=600, seen=9) for k, r in GONE_HOST.items()}
    assert assess([SPOT], fine(**before)).verdict is Verdict.HARDWARE


def test_health_events_end_by_their_own_word():
    def told(status, minute, arn="arn:1"):
        detail = {"eventTypeCode": "AWS_EC2_OPERATIONAL_ISSUE", "eventTypeCategory": "issue", "statusCode": status}
        when = (NOW - timedelta(minutes=minute)).isoformat()
        return aws_events.read(
            {"detail-type": "AWS Health Event", "time": when, "detail": {**detail, "eventArn": arn}}
        )[0][0]

    assert assess([told("open", 9)]).verdict is Verdict.CORRELATED
    assert assess([told("closed", 3), told("open", 9)]).verdict is Verdict.HEALTHY
    assert assess([told("open", 9, "arn:2"), told("open", 9), told("closed", 3)]).verdict is Verdict.CORRELATED


def test_a_clock_that_runs_ahead_gives_no_witness():
    ahead = kernel("XID_95", -50)
    got = assess([ahead])
    assert not got.may_act and got.next_at <= ahead.at + timedelta(minutes=2)


@pytest.mark.parametrize("source", ["kernel", "dcgm"])
def test_one_source_again_and_again_stays_one(source):
    lines = [Event(ago(60 - n), "XID_95", source, GPU, boot_id="b1", seq=n) for n in range(4)]
    assert not assess(lines).may_act


def test_a_gauge_that_stays_does_not_hide_a_recovery():
    gauge = reading("XID_LAST", 95, "dcgm", gpu=GPU, since=90, seen=3)
    was = reading("RECOVERY_ACTION", 1, gpu=GPU, since=85, last=50)
    now = reading("RECOVERY_ACTION", 0, gpu=GPU, since=40)
    got = assess([kernel("XID_95", 95)], [*fine(), gauge, was, now])
    assert got.verdict is Verdict.HEALTHY and not got.may_act
