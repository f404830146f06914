"""One instance's live evidence: which verdict, and may it act by itself."""

from datetime import timedelta

import pytest

from healthboard.diagnosis.signals import Action, Verdict
from tests.diagnosis.build import GPU, HOPPER, NOW, ago, assess, fine, kernel, reading

LOST = reading("GPU_STATUS", "lost", gpu=GPU, since=5, seen=1)
RESET = reading("RECOVERY_ACTION", 1, gpu=GPU, since=5, seen=1)


def test_a_quiet_instance_is_healthy():
    got = assess()
    assert (got.verdict, got.action, got.findings, got.may_act) == (Verdict.HEALTHY, Action.NONE, (), False)


def test_a_lost_gpu_in_the_log_and_in_nvml_is_replaced_without_a_person():
    got = assess([kernel("XID_79")], [*fine(), LOST])
    assert (got.verdict, got.action, got.may_act) == (Verdict.HARDWARE, Action.REPLACE, True)
    assert got.primary.code == "XID_79" and got.primary.gpu == GPU
    assert any("nvml" in w for w in got.witnesses) and any("kernel" in w for w in got.witnesses)


def test_a_lost_gpu_in_the_log_alone_waits_for_a_witness_and_then_asks():
    event = kernel("XID_79", 10)
    got = assess([event])
    assert (got.verdict, got.action, got.may_act) == (Verdict.HARDWARE, Action.REPLACE, False)
    assert got.next_at == event.at + timedelta(minutes=2) and "waiting" in got.may_act_why
    later = assess([event], now=event.at + timedelta(minutes=2))
    assert not later.may_act and "person" in later.may_act_why


def test_the_same_line_again_is_no_witness():
    lines = [kernel("XID_79", 10 + n, seq=n) for n in range(20)]
    assert not assess([*lines, *lines]).may_act


@pytest.mark.parametrize("code", ["XID_95", "XID_62", "XID_110", "XID_140", "XID_48", "XID_143", "XID_46", "XID_158"])
def test_reset_class_codes_reboot_once_nvml_agrees(code):
    got = assess([kernel(code)], [*fine(), RESET])
    assert (got.verdict, got.action, got.may_act, got.codes) == (Verdict.HARDWARE, Action.REBOOT, True, (code,))
    alone = assess([kernel(code)])
    assert (alone.verdict, alone.action, alone.may_act) == (Verdict.HARDWARE, Action.REBOOT, False)


def test_another_gpus_reading_is_no_witness():
    other = reading("GPU_STATUS", "lost", gpu="GPU-00000000-0000-4000-8000-000000000004", since=5, seen=1)
    got = assess([kernel("XID_95")], [*fine(), other])
    assert not got.may_act


def test_an_old_reading_of_another_fault_is_no_witness():
    remap = reading("ROW_REMAP", {"failure": True, "pending": False}, gpu=GPU, since=80_000, seen=1, last=0)
    got = assess([kernel("XID_79")], [*fine(), remap])
    assert got.primary.code == "XID_79" or not got.may_act


def test_one_reading_twice_is_its_own_witness_and_once_is_not():
    once = reading("ROW_REMAP", {"failure": True, "pending": False}, gpu=GPU, since=0, seen=1)
    twice = reading("ROW_REMAP", {"failure": True, "pending": False}, gpu=GPU, since=60, seen=2)
    assert not assess([], [*fine(), once]).may_act
    got = assess([], [*fine(), twice])
    assert got.may_act and (got.verdict, got.action, got.codes) == (
        Verdict.HARDWARE, Action.REPLACE, ("ROW_REMAP_FAILURE",),
    )  # fmt: skip


@pytest.mark.parametrize("code", ["XID_119", "XID_120", "XID_109", "XID_74", "XID_64", "XID_136", "XID_54", "XID_999"])
def test_what_sources_disagree_on_is_for_a_person(code):
    got = assess([kernel(code)])
    assert got.verdict is Verdict.AMBIGUOUS and not got.may_act


def test_119_that_comes_back_after_a_reboot_is_hardware():
    before = kernel("XID_119", 20_000, boot="b0")
    got = assess([before, kernel("XID_119", 30)])
    assert (got.verdict, got.action) == (Verdict.HARDWARE, Action.REPLACE)


def test_a_reboot_clears_what_it_clears():
    assert assess([kernel("XID_95", 20_000, boot="b0")]).verdict is Verdict.HEALTHY
    undated_boot = kernel("XID_95", 20_000, boot=None)
    assert assess([undated_boot]).verdict is Verdict.HEALTHY


def test_a_gpu_that_is_still_missing_after_a_reboot_stays_hardware():
    short = reading("GPU_COUNT", 7, since=60, seen=4)
    got = assess([kernel("XID_79", 20_000, boot="b0")], fine(GPU_COUNT=short))
    assert (got.verdict, got.action, got.may_act) == (Verdict.HARDWARE, Action.REPLACE, True)
    without_loss = assess([], fine(GPU_COUNT=short))
    assert (without_loss.verdict, without_loss.action) == (Verdict.AMBIGUOUS, Action.DIAGNOSE)


def test_a_remap_failure_survives_a_reboot():
    failed = reading("ROW_REMAP", {"failure": True, "pending": False}, gpu=GPU, since=9000)
    assert assess([kernel("XID_48", 20_000, boot="b0")], [*fine(), failed]).codes == ("ROW_REMAP_FAILURE",)


def test_the_driver_can_take_its_word_back():
    asked, withdrawn = kernel("XID_154", 50, seq=2, to=1), kernel("XID_154", 20, seq=3, to=0)
    assert assess([kernel("XID_95", 60), asked]).verdict is Verdict.HARDWARE
    assert assess([kernel("XID_95", 60), asked, withdrawn]).verdict is Verdict.HEALTHY
    was, now = (
        reading("RECOVERY_ACTION", 1, gpu=GPU, since=55, last=30),
        reading("RECOVERY_ACTION", 0, gpu=GPU, since=15),
    )
    assert assess([kernel("XID_95", 60)], [*fine(), was, now]).verdict is Verdict.HEALTHY


def test_154_to_reset_makes_a_harmless_xid_a_reboot():
    got = assess([kernel("XID_31", 30), kernel("XID_154", 29, seq=2, to=2)])
    assert (got.verdict, got.action, got.codes) == (Verdict.HARDWARE, Action.REBOOT, ("XID_154", "XID_31"))


def test_nvml_that_goes_on_reading_a_lost_gpu_contradicts_the_log():
    answers = reading("GPU_STATUS", "ok", gpu=GPU, since=9000, last=0)
    got = assess([kernel("XID_79", 120)], [*fine(), answers])
    assert got.verdict is Verdict.AMBIGUOUS and not got.may_act


def test_an_agent_that_blinks_opens_nothing():
    away = reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=20, seen=2)
    got = assess([], fine(AGENT_CONNECTIVITY=away))
    assert (got.verdict, got.action, got.decisive_codes) == (Verdict.UNKNOWN, Action.NONE, ())
    assert got.next_at <= ago(20) + timedelta(minutes=5)


def test_an_agent_that_stays_away_is_for_a_person():
    away = reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=301, seen=6)
    got = assess([], fine(AGENT_CONNECTIVITY=away))
    assert (got.verdict, got.action, got.codes) == (Verdict.AMBIGUOUS, Action.DIAGNOSE, ("ECS_AGENT_DISCONNECTED",))
    patient = assess([], fine(AGENT_CONNECTIVITY=away), agent_disconnect=timedelta(minutes=10))
    assert patient.verdict is Verdict.UNKNOWN


def test_an_impaired_host_whose_agent_is_away_is_replaced():
    rows = fine(
        AGENT_CONNECTIVITY=reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=301, seen=6),
        EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=300, seen=5),
        NVML=None, GPU_COUNT=None, BOOT_ID=None,
    )  # fmt: skip
    got = assess([], rows)
    assert (got.verdict, got.action, got.may_act) == (Verdict.HARDWARE, Action.REPLACE, True)
    assert {"EC2_SYSTEM_IMPAIRED", "ECS_AGENT_DISCONNECTED"} <= set(got.codes)


def test_one_impaired_system_check_is_not_yet_enough():
    got = assess([], fine(EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=0, seen=1)))
    assert (got.verdict, got.may_act) == (Verdict.HARDWARE, False)


def test_an_impaired_guest_alone_is_for_a_person():
    got = assess([], fine(EC2_INSTANCE=reading("EC2_INSTANCE", "IMPAIRED", "ec2", since=300, seen=5)))
    assert (got.verdict, got.action) == (Verdict.AMBIGUOUS, Action.REBOOT)


def test_a_dark_node_is_unknown_and_never_healthy_or_sick():
    rows = fine(
        NVML=reading("NVML", "ok", since=9000, last=400), GPU_COUNT=reading("GPU_COUNT", 8, since=9000, last=400),
        BOOT_ID=reading("BOOT_ID", "b1", "node", since=9000, last=400),
    )  # fmt: skip
    got = assess([], rows)
    assert (got.verdict, got.codes) == (Verdict.UNKNOWN, ("MONITORING_GAP",))


def test_an_instance_that_was_never_read_is_unknown():
    got = assess([], fine(NVML=None, GPU_COUNT=None, BOOT_ID=None))
    assert got.verdict is Verdict.UNKNOWN


def test_a_silence_that_we_caused_blocks_nothing():
    rows = fine(
        NVML=reading("NVML", "ok", since=9000, last=400), GPU_COUNT=reading("GPU_COUNT", 8, since=9000, last=400),
    )  # fmt: skip
    gap = reading("GAP", "drained", "nvml", since=400, expected=True)
    assert assess([], [*rows, gap]).verdict is Verdict.HEALTHY


def test_a_stale_impaired_reading_is_no_evidence():
    got = assess([], fine(EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=900, last=600)))
    assert got.verdict is not Verdict.HARDWARE


@pytest.mark.parametrize("state", ["stopped", "terminated", "shutting-down", "stopping"])
def test_an_instance_that_does_not_run_has_no_fault(state):
    rows = fine(
        EC2_STATE=reading("EC2_STATE", state, "ec2"), EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2"),
        AGENT_CONNECTIVITY=reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=9000),
    )  # fmt: skip
    got = assess([kernel("XID_79")], [*rows, LOST])
    assert (got.verdict, got.action, got.findings) == (Verdict.UNKNOWN, Action.NONE, ())


def test_a_policy_may_demand_a_witness_outside_the_node():
    inside = assess([kernel("XID_79")], [*fine(), LOST], outside_witness=True)
    assert not inside.may_act and "outside" in inside.may_act_why
    ecs = reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", since=5, seen=1)
    assert assess([kernel("XID_79")], [*fine(), LOST, ecs], outside_witness=True).may_act


def test_a_number_that_this_architecture_does_not_raise_needs_another_source():
    ampere = type(HOPPER)(instance="i-1", architecture="ampere", expected_gpus=8)
    assert assess([kernel("XID_110")], context=ampere).verdict is Verdict.AMBIGUOUS
    assert assess([kernel("XID_110")], [*fine(), RESET], context=ampere).may_act


def test_an_applications_fault_fades():
    assert assess([kernel("XID_31", 60)]).verdict is Verdict.WORKLOAD
    assert assess([kernel("XID_31", 4000)]).verdict is Verdict.HEALTHY


def test_an_admin_may_override_a_code_or_give_it_a_count():
    got = assess([kernel("XID_63")], code_overrides={"XID_63": {"verdict": "AMBIGUOUS", "action": "REBOOT"}})
    assert (got.verdict, got.action) == (Verdict.AMBIGUOUS, Action.REBOOT)
    counted = {"XID_92": {"count": 3, "window_s": 3600}}
    few = [kernel("XID_92", n * 200, seq=n) for n in range(1, 3)]
    assert assess(few, code_overrides=counted).verdict is Verdict.WATCH
    assert assess([*few, kernel("XID_92", 5, seq=9)], code_overrides=counted).verdict is Verdict.AMBIGUOUS


def test_a_count_never_lowers_what_is_worse_already():
    lines = [kernel("XID_79", n * 200, seq=n) for n in range(1, 4)]
    got = assess(lines, code_overrides={"XID_79": {"count": 2, "window_s": 3600}})
    assert (got.verdict, got.action) == (Verdict.HARDWARE, Action.REPLACE)


def test_a_gpu_that_nvml_reads_again_after_a_loss_no_longer_acts():
    was = reading("GPU_STATUS", "lost", gpu=GPU, since=300, last=120)
    again = reading("GPU_STATUS", "ok", gpu=GPU, since=100)
    got = assess([kernel("XID_79", 310)], [*fine(), was, again])
    assert got.verdict is Verdict.WATCH and not got.may_act


def test_a_gap_that_ended_is_forgotten():
    ended = reading("GAP", "nothing was told since", "node", since=100, last=30)
    assert assess([], [*fine(), ended]).verdict is Verdict.HEALTHY
    running = reading("GAP", "nothing was told since", "nvml", since=200, last=0)
    rows = fine(NVML=reading("NVML", "ok", since=900, last=200), GPU_COUNT=None)
    assert assess([], [*rows, running]).verdict is Verdict.UNKNOWN


def test_the_same_place_by_other_processes_is_for_a_person():
    lines = [kernel("XID_13", 3000, seq=1, place="GPC 2, TPC 5", pid=11, name="train"),
             kernel("XID_13", 60, seq=2, place="GPC 2, TPC 5", pid=12, name="train")]  # fmt: skip
    assert (assess(lines).verdict, assess(lines).action) == (Verdict.AMBIGUOUS, Action.DIAGNOSE)
    moving = [
        kernel("XID_13", 3000, seq=1, place="GPC 1, TPC 5", pid=11),
        kernel("XID_13", 60, seq=2, place="GPC 2, TPC 5", pid=12),
    ]
    assert assess(moving).verdict is Verdict.WORKLOAD


def test_31_on_one_gpu_is_for_a_person_only_over_different_applications():
    same = [kernel("XID_31", 3000, seq=1, pid=11, name="train"), kernel("XID_31", 60, seq=2, pid=12, name="train")]
    assert assess(same).verdict is Verdict.WORKLOAD
    other = [kernel("XID_31", 3000, seq=1, pid=11, name="infer"), same[1]]
    assert assess(other).verdict is Verdict.AMBIGUOUS


def test_a_flood_of_95_is_beyond_a_reset():
    lines = [kernel("XID_95", 30 + n, seq=n) for n in range(5)]
    assert assess(lines).action is Action.REPLACE and assess(lines[:4]).action is Action.REBOOT


def test_an_increase_of_uncorrected_errors_counts_and_a_number_does_not():
    old = reading("ECC", {"volatile_uncorrected": 0, "aggregate_uncorrected": 7}, gpu=GPU, since=900, last=60)
    new = reading("ECC", {"volatile_uncorrected": 1, "aggregate_uncorrected": 8}, gpu=GPU, since=45)
    assert assess([], [*fine(), new]).verdict is Verdict.HEALTHY
    assert assess([], [*fine(), old, new]).codes == ("ECC_UNCORRECTED",)


def test_a_node_that_is_drained_without_its_agent_for_long_is_for_a_person():
    rows = fine(
        ECS_STATUS=reading("ECS_STATUS", "DRAINING", "ecs", since=900, running=2),
        AGENT_CONNECTIVITY=reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=400, seen=6),
    )  # fmt: skip
    assert assess([], rows).primary.rule == "stuck-drain"


def test_next_at_tells_when_a_reading_turns_stale():
    assert assess().next_at == NOW + timedelta(minutes=3)
