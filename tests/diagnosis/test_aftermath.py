"""What only follows from another error: of its time it accompanies it, long before or after it stands alone."""

from datetime import timedelta

import pytest

from healthboard.diagnosis import catalogue, comms
from healthboard.diagnosis.explain import explain
from healthboard.diagnosis.fault_classes import CLASSES, fault_class
from healthboard.diagnosis.signals import Event
from tests.diagnosis.build import ago, assess, fine, kernel, reading

_HOURS, _SECONDS = timedelta(hours=3), timedelta(seconds=60)
OTHER = "GPU-00000000-0000-4000-8000-000000000005"


def role(got, code):
    return next(f.role for f in got.findings if f.code == code)


@pytest.mark.parametrize("gpu", [None, OTHER])
@pytest.mark.parametrize("seconds, wanted", [(340, "companion"), (10, "companion"), (601, "own"), (7_000, "own")])
def test_a_clean_up_accompanies_the_error_of_its_time(seconds, wanted, gpu):
    """The 119 is of five minutes ago; on which GPU the channels went does not matter."""
    events = [kernel("XID_119", 300), kernel("XID_45", seconds, seq=2, **({"gpu": gpu} if gpu else {}))]
    got = assess(events, shown_for=_HOURS)
    assert role(got, "XID_45") == wanted
    assert (got.verdict, got.primary.code) == ("AMBIGUOUS", "XID_119")


def test_the_bound_is_what_the_policy_says():
    events = [kernel("XID_119", 300), kernel("XID_45", 10, seq=2)]
    assert role(assess(events), "XID_45") == "companion"
    assert role(assess(events, xid45_hold=_SECONDS), "XID_45") == "own"


def test_a_clean_up_that_names_its_cause_follows_it_however_long_it_took():
    cause = kernel("XID_48", 3_000, seq=1)
    got = assess([cause, kernel("XID_45", 10, seq=2, caused_by=48)])
    assert role(got, "XID_45") == "companion" and got.primary.code == "XID_48"


def test_alone_it_is_what_a_stopped_job_leaves():
    got = assess([kernel("XID_45", 10)])
    assert (got.verdict, role(got, "XID_45")) == ("HEALTHY", "own")


def test_each_code_of_a_class_of_faults_is_known_and_in_one_class_only():
    codes = [code for codes in CLASSES.values() for code in codes]
    assert len(codes) == len(set(codes))
    assert [code for code in codes if code not in catalogue.load()] == []
    assert fault_class("XID_95") == fault_class("ROW_REMAP_FAILURE") == "GPU memory"
    assert fault_class("XID_62") == "XID_62"


LOST_MATES = (
    "ip-10-2-3-4:412:509 [5] NCCL WARN socketStartConnect: Connect to 10.2.3.9<43211> failed : Connection refused",
    "[rank17]:[E1130 ProcessGroupNCCL.cpp:616] [Rank 17] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88)",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, ncclRemoteError: remote process exited",
    "RuntimeError: [gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.2.3.9]:6121",
)


@pytest.mark.parametrize("line", LOST_MATES)
def test_a_log_of_lost_mates_is_the_applications(line):
    found = explain(f"epoch 3 step 1200 loss 2.31\n{line}\n")
    assert (found["verdict"], found["action"], found["codes"]) == ("WORKLOAD", "NOTIFY_WORKLOAD", [comms.CODE])


def test_a_quiet_log_of_such_a_library_is_healthy():
    found = explain(
        "gpu-7:88:88 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\ngpu-7:88:88 [0] NCCL INFO comm 0x1 Init COMPLETE"
    )
    assert (found["verdict"], found["codes"]) == ("HEALTHY", [])


def test_on_the_node_that_broke_itself_the_lost_mates_only_follow():
    lost = Event(ago(20), comms.CODE, "ecs", text="ncclRemoteError")
    assert (assess([lost]).verdict, role(assess([lost]), comms.CODE)) == ("WORKLOAD", "own")
    gone = reading("GPU_STATUS", "lost", gpu=kernel("XID_79").gpu)
    got = assess([lost, kernel("XID_79", 30)], [*fine(), gone])
    assert (got.verdict, got.primary.code, role(got, comms.CODE)) == ("HARDWARE", "XID_79", "companion")


@pytest.mark.parametrize(
    "detail",
    [
        {"lastStatus": "RUNNING"},
        {"stopCode": "UserInitiated"},
        {"containers": [{"reason": "OutOfMemoryError: Container killed due to memory usage"}]},
        {"containers": [None, {"reason": 7}], "stoppedReason": ["NCCL error"]},
        {"containers": "NCCL error"},
    ],
)
def test_a_task_that_ended_otherwise_says_nothing(detail):
    told = {"lastStatus": "STOPPED", "containers": [{"reason": "NCCL error: ncclRemoteError"}], **detail}
    assert comms.read_task({"detail-type": comms.TASK, "detail": told}) == []
