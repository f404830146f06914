"""Hand-built evidence of one instance."""

from datetime import UTC, datetime, timedelta

from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Assessment, Context, Event, Reading, Thresholds

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
GPU = "GPU-00000000-0000-4000-8000-000000000003"
HOPPER = Context(instance="i-1", architecture="hopper", instance_type="p5.48xlarge", expected_gpus=8)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def kernel(code: str, seconds: float = 10, *, gpu: str | None = GPU, seq: int = 1, boot: str = "b1", **attrs) -> Event:
    return Event(ago(seconds), code, "kernel", gpu, boot_id=boot, seq=seq, attrs=attrs)


def reading(name, value, source="nvml", *, since=60.0, last=0.0, seen=4, gpu=None, **attrs) -> Reading:
    return Reading(name, value, source, ago(since), ago(last), seen, gpu, attrs)


def fine(**changed) -> list[Reading]:
    """Readings of a healthy instance: EC2, ECS and NVML."""
    rows = {
        "EC2_STATE": reading("EC2_STATE", "running", "ec2", since=9000),
        "EC2_SYSTEM": reading("EC2_SYSTEM", "OK", "ec2", since=9000),
        "EC2_INSTANCE": reading("EC2_INSTANCE", "OK", "ec2", since=9000),
        "EC2_ATTACHED_EBS": reading("EC2_ATTACHED_EBS", "OK", "ec2", since=9000),
        "ECS_STATUS": reading("ECS_STATUS", "ACTIVE", "ecs", since=9000),
        "AGENT_CONNECTIVITY": reading("AGENT_CONNECTIVITY", "OK", "ecs", since=9000),
        "NVML": reading("NVML", "ok", since=9000),
        "GPU_COUNT": reading("GPU_COUNT", 8, since=9000),
        "BOOT_ID": reading("BOOT_ID", "b1", "node", since=9000, booted_at=ago(9000).isoformat()),
    }
    rows.update(changed)
    return [r for r in rows.values() if r is not None]


def assess(events=(), readings=None, *, now=NOW, context=HOPPER, **thresholds) -> Assessment:
    readings = fine() if readings is None else readings
    return evaluate(events, readings, now=now, context=context, thresholds=Thresholds(**thresholds))
