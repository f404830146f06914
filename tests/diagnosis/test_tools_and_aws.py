"""nvidia-smi, NVML's clients, the agent's log, EC2, ECS and EventBridge texts."""

import json

import pytest

from healthboard.diagnosis import aws_events, ec2, ecs
from healthboard.diagnosis.explain import explain
from healthboard.diagnosis.signals import CheckStatus
from tests.diagnosis.build import NOW


def judge(text, format_="auto"):
    found = explain(text if isinstance(text, str) else json.dumps(text), format_)
    return found["verdict"], found["action"], found["codes"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("No devices were found", ("AMBIGUOUS", "DIAGNOSE", ["GPU_MISSING"])),
        ("Unable to determine the device handle for GPU0000:3b:00.0: Unknown Error",
         ("AMBIGUOUS", "DIAGNOSE", ["NVML_UNKNOWN_ERROR"])),
        ("Unable to determine the device handle for GPU 0000:3b:00.0: GPU is lost.", ("HARDWARE", "REPLACE", ["NVML_GPU_IS_LOST"])),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
         ("UNKNOWN", "DIAGNOSE", ["NVML_DRIVER_NOT_LOADED"])),
        ("Failed to initialize NVML: Driver/library version mismatch", ("AMBIGUOUS", "REBOOT", ["NVML_LIB_RM_VERSION_MISMATCH"])),
        ("$ docker exec job nvidia-smi\nFailed to initialize NVML: Unknown Error\n$ nvidia-smi -L\nGPU 0: NVIDIA A100 (UUID: x)",
         ("WORKLOAD", "NOTIFY_WORKLOAD", [])),
        ("    Remapped Rows\n        Pending                           : No\n        Remapping Failure Occurred        : Yes",
         ("HARDWARE", "REPLACE", ["ROW_REMAP_FAILURE"])),
        ("    GPU Recovery Action                   : Reset", ("HARDWARE", "REBOOT", ["GPU_RECOVERY_ACTION"])),
        ("    GPU Recovery Action                   : None", ("HEALTHY", "NONE", [])),
        ("    Clocks Event Reasons\n        HW Power Brake Slowdown           : Active", ("WATCH", "WATCH", ["GPU_POWER_BRAKE"])),
        ("    Temperature\n        GPU Current Temp                  : 96 C\n        GPU Slowdown Temp                 : 92 C",
         ("WATCH", "WATCH", ["GPU_OVERTEMP"])),
    ],
)  # fmt: skip
def test_nvidia_smi(text, want):
    assert judge(text, "nvidia-smi") == want
    assert judge(text) == want


@pytest.mark.parametrize(
    ("text", "verdict", "codes"),
    [
        ("pynvml.NVMLError_GpuIsLost: GPU is lost", "HARDWARE", ["NVML_GPU_IS_LOST"]),
        ("pynvml.NVMLError_NotSupported: Not Supported", "HEALTHY", []),
        ("pynvml.NVMLError_Unknown: Unknown Error", "AMBIGUOUS", ["NVML_UNKNOWN_ERROR"]),
        ("pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found", "UNKNOWN", ["NVML_DRIVER_NOT_LOADED"]),
        ("probe exited with signal 11 (SIGSEGV) in nvmlDeviceGetTemperature", "UNKNOWN", ["NVML_PROBE_CRASHED"]),
        ("XidCriticalError: Xid=79 on Device=GPU-11111111-2222-4333-8444-555555555555", "HARDWARE", ["XID_79"]),
        ("XidCriticalError: Xid=13 on Device=GPU-11111111-2222-4333-8444-555555555555", "WORKLOAD", ["XID_13"]),
        ("XidCriticalError: Xid=999 on Device=x", "AMBIGUOUS", ["NVML_UNKNOWN_ERROR"]),
    ],
)
def test_nvml_clients(text, verdict, codes):
    assert judge(text, "nvml")[::2] == (verdict, codes)


@pytest.mark.parametrize(
    ("text", "verdict", "codes"),
    [
        ("2026-05-27T21:33:40Z [ERROR] Error connecting to ACS: i/o timeout", "UNKNOWN", ["ECS_AGENT_DISCONNECTED"]),
        ("2026-05-27T21:33:40Z [ERROR] Error connecting to ACS: i/o timeout\n2026-05-27T21:33:50Z [INFO] Connected to ACS endpoint",
         "HEALTHY", []),
        ("2026-05-27T21:33:40Z [ERROR] Error connecting to ACS: EOF\n2026-05-27T21:43:40Z [ERROR] Error connecting to ACS: EOF",
         "AMBIGUOUS", ["ECS_AGENT_DISCONNECTED"]),
        ("2026-05-27T21:33:40Z [ERROR] Unable to register as a container instance with ECS", "AMBIGUOUS", ["ECS_REGISTRATION_FAILED"]),
        ("2026-05-27T21:33:40Z [ERROR] Cannot connect to the Docker daemon", "AMBIGUOUS", ["ECS_CONTAINER_RUNTIME_IMPAIRED"]),
        ("2026-05-27T21:33:40Z [INFO] Registered 8 things", "HEALTHY", []),
    ],
)  # fmt: skip
def test_the_agents_log(text, verdict, codes):
    assert judge(text, "ecs-agent-log")[::2] == (verdict, codes)


def row(**changed):
    ok = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    base = {
        "InstanceId": "i-00000000000000abc", "InstanceState": {"Name": "running"}, "AvailabilityZone": "us-east-1a",
        "SystemStatus": ok, "InstanceStatus": ok, "AttachedEbsStatus": ok,
    }  # fmt: skip
    return {k: v for k, v in {**base, **changed}.items() if v is not None}


BAD = {"Status": "impaired"}


@pytest.mark.parametrize(
    ("item", "want"),
    [
        (row(), ("HEALTHY", "NONE", [])),
        (row(SystemStatus=BAD), ("HARDWARE", "REPLACE", ["EC2_SYSTEM_IMPAIRED"])),
        (row(InstanceStatus=BAD), ("AMBIGUOUS", "REBOOT", ["EC2_INSTANCE_IMPAIRED"])),
        (row(AttachedEbsStatus=BAD), ("AMBIGUOUS", "DIAGNOSE", ["EC2_EBS_IMPAIRED"])),
        (row(AttachedEbsStatus=None), ("HEALTHY", "NONE", [])),
        (row(SystemStatus=None), ("UNKNOWN", "NONE", ["EC2_STATUS_INSUFFICIENT_DATA"])),
        (row(InstanceStatus={"Status": "insufficient-data"}), ("UNKNOWN", "NONE", ["EC2_STATUS_INSUFFICIENT_DATA"])),
        (row(InstanceState={"Name": "stopped"}, SystemStatus={"Status": "not-applicable"}), ("UNKNOWN", "NONE", [])),
        (row(Events=[{"Code": "instance-retirement", "Description": "degraded hardware"}]),
         ("HARDWARE", "REPLACE", ["EC2_EVENT_INSTANCE_RETIREMENT"])),
        (row(Events=[{"Code": "instance-retirement", "Description": "[Completed] x"}]), ("HEALTHY", "NONE", [])),
        (row(Events=[{"Code": "instance-retirement", "Description": "[Canceled] x"}]), ("HEALTHY", "NONE", [])),
        (row(Events=[{"Code": "system-maintenance", "Description": "x"}]), ("WATCH", "WATCH", ["EC2_EVENT_SYSTEM_MAINTENANCE"])),
    ],
)  # fmt: skip
def test_ec2_status(item, want):
    assert judge({"InstanceStatuses": [item]}, "ec2-status") == want


def test_a_later_answer_ends_what_an_earlier_one_showed():
    text = json.dumps({"InstanceStatuses": [row(SystemStatus=BAD)]}) + json.dumps({"InstanceStatuses": [row()]})
    assert judge(text) == ("HEALTHY", "NONE", [])


def test_four_of_four_in_a_zone_are_correlated_and_one_of_four_is_not():
    rows = [row(InstanceId=f"i-0000000000000000{n}", AttachedEbsStatus=BAD) for n in range(4)]
    assert judge({"InstanceStatuses": rows}) == ("CORRELATED", "HOLD", ["EC2_EBS_IMPAIRED"])
    assert judge({"InstanceStatuses": [rows[0], row()]})[0] == "AMBIGUOUS"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            "An error occurred (InvalidInstanceID.NotFound) when calling the DescribeInstanceStatus operation: x",
            "EC2_INSTANCE_NOT_FOUND",
        ),
        (
            "An error occurred (RequestLimitExceeded) when calling the DescribeInstanceStatus operation",
            "MONITORING_GAP",
        ),
        ("botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL", "MONITORING_GAP"),
    ],
)
def test_a_call_that_failed_is_unknown(error, code):
    assert judge(error, "ec2-status") == ("UNKNOWN", "DIAGNOSE", [code])


def container(**changed):
    return {
        "ec2InstanceId": "i-00000000000000abc", "status": "ACTIVE", "agentConnected": True, "version": 5,
        "runningTasksCount": 1, **changed,
    }  # fmt: skip


def health(kind, status, reason=None):
    return {"overallStatus": status, "details": [{"type": kind, "status": status, "statusReason": reason}]}


@pytest.mark.parametrize(
    ("item", "want"),
    [
        (container(), ("HEALTHY", "NONE", [])),
        (container(agentConnected=False), ("UNKNOWN", "NONE", ["ECS_AGENT_DISCONNECTED"])),
        (container(agentConnected=False, status="DRAINING"), ("AMBIGUOUS", "DIAGNOSE", ["ECS_AGENT_DISCONNECTED"])),
        (container(agentConnected=False, status="DRAINING", runningTasksCount=0), ("UNKNOWN", "NONE", ["ECS_AGENT_DISCONNECTED"])),
        (container(agentConnected=False, status="INACTIVE"), ("UNKNOWN", "NONE", ["ECS_INSTANCE_INACTIVE"])),
        (container(agentConnected=None), ("UNKNOWN", "NONE", ["ECS_HEALTH_INSUFFICIENT_DATA"])),
        (container(healthStatus=health("DAEMON", "IMPAIRED")), ("AMBIGUOUS", "REBOOT", ["ECS_DAEMON_IMPAIRED"])),
        (container(healthStatus=health("ACCELERATED_COMPUTE", "IMPAIRED")), ("HARDWARE", "REPLACE", ["ECS_ACCELERATED_COMPUTE_IMPAIRED"])),
        (container(healthStatus=health("CONTAINER_RUNTIME", "INSUFFICIENT_DATA")), ("UNKNOWN", "NONE", ["ECS_HEALTH_INSUFFICIENT_DATA"])),
        (container(healthStatus=health("SOMETHING_NEW", "OK")), ("HEALTHY", "NONE", [])),
    ],
)  # fmt: skip
def test_ecs_describe(item, want):
    assert judge({"containerInstances": [item], "failures": []}, "ecs-describe") == want


def test_the_gpus_that_were_registered_are_compared_with_the_type():
    def with_gpus(n):
        gpus = [f"GPU-00000000-0000-4000-8000-00000000000{k}" for k in range(n)]
        return container(
            registeredResources=[{"name": "GPU", "type": "STRINGSET", "stringSetValue": gpus}],
            attributes=[{"name": "ecs.instance-type", "value": "p5.48xlarge"}],
        )

    codes = [judge({"containerInstances": [with_gpus(n)]})[2] for n in (0, 7, 8)]
    assert codes == [["ECS_ZERO_GPUS_REGISTERED"], ["ECS_GPU_COUNT_SHORT"], []]


def test_one_reader_for_both_shapes_of_a_check():
    check = {
        "type": "ACCELERATED_COMPUTE",
        "status": "IMPAIRED",
        "statusReason": "XID_95",
        "lastStatusChange": "2026-11-05T10:20:21Z",
    }
    envelope = {"detail-type": "ECS Container Instance Health Change", "time": "2026-11-05T10:20:30Z",
                "detail": {"ec2InstanceId": "i-1", "overallStatus": "IMPAIRED", "healthChecks": [check]}}  # fmt: skip
    for events, readings in (
        ecs.read_event(envelope),
        ecs.read_container_instance(container(healthStatus={"details": [check]}), at=NOW),
    ):
        assert [e.code for e in events] == ["XID_95"]
        assert {r.value for r in readings if r.name == "ACCELERATED_COMPUTE"} == {CheckStatus.IMPAIRED}
    assert judge(envelope)[:2] == ("HARDWARE", "REPLACE")
    over = {**envelope, "time": "2026-11-05T11:00:00Z", "detail": {"ec2InstanceId": "i-1", "overallStatus": "OK"}}
    assert judge(json.dumps(envelope) + "\n" + json.dumps(over)) == ("HEALTHY", "NONE", [])


def state_change(version, connected, at, seen=None):
    detail = container(version=version, agentConnected=connected, updatedAt=at, containerInstanceArn="arn:x")
    return {"detail-type": "ECS Container Instance State Change", "time": seen or at, "detail": detail}


def test_an_older_version_that_arrives_late_says_nothing():
    late = [state_change(7, True, "2026-06-01T07:00:10Z"), state_change(6, False, "2026-06-01T07:00:20Z")]
    assert judge("\n".join(map(json.dumps, late)), "ecs-event") == ("HEALTHY", "NONE", [])


def test_an_agent_that_stays_away_over_two_events_is_for_a_person():
    away = [state_change(6, False, "2026-06-01T07:00:00Z"), state_change(7, False, "2026-06-01T07:12:00Z")]
    assert judge("\n".join(map(json.dumps, away)), "ecs-event")[0] == "AMBIGUOUS"


def test_scheduled_and_announced_events():
    def event(kind, **detail):
        return {"detail-type": kind, "source": "aws.ec2", "time": "2026-06-01T07:00:00Z", "detail": detail}

    known = {
        "EC2 Spot Instance Interruption Warning": "EC2_SPOT_INTERRUPTION",
        "EC2 Instance Rebalance Recommendation": "EC2_REBALANCE",
        "Capacity Block Reservation Expiration Warning": "CAPACITY_BLOCK_ENDING",
    }
    for kind, code in known.items():
        (one,), _ = aws_events.read(event(kind, **{"instance-id": "i-00000000000000abc"}))
        assert (one.code, one.instance) == (code, "i-00000000000000abc")
        assert judge(event(kind, **{"instance-id": "i-00000000000000abc"}))[0] == "WATCH"
    _, (state,) = aws_events.read(
        event("EC2 Instance State-change Notification", state="stopped", **{"instance-id": "i-00000000000000abc"})
    )
    assert (state.name, state.value) == ("EC2_STATE", "stopped")


@pytest.mark.parametrize(
    ("detail", "verdict"),
    [
        (
            {
                "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
                "eventTypeCategory": "scheduledChange",
            },
            "HARDWARE",
        ),
        ({"eventTypeCode": "AWS_EC2_OPERATIONAL_ISSUE", "eventTypeCategory": "issue"}, "CORRELATED"),
        (
            {"eventTypeCode": "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", "eventTypeCategory": "scheduledChange"},
            "AMBIGUOUS",
        ),
        (
            {"eventTypeCode": "AWS_EC2_OPERATIONAL_ISSUE", "eventTypeCategory": "issue", "statusCode": "closed"},
            "HEALTHY",
        ),
    ],
)
def test_aws_health(detail, verdict):
    assert (
        judge({"detail-type": "AWS Health Event", "time": "2026-06-01T07:00:00Z", "detail": detail}, "aws-health")[0]
        == verdict
    )


def test_the_worst_scheduled_event_is_shown():
    item = row(
        Events=[{"Code": "system-maintenance", "Description": "x"}, {"Code": "instance-retirement", "Description": "y"}]
    )
    _, readings = ec2.read_status(item, at=NOW)
    assert next(r.value for r in readings if r.name == "EC2_SCHEDULED_EVENT") == "instance-retirement"
