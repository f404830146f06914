"""The node report, schema 1, as OpenAPI shows it. What nobody knows is null; fields that we do not know are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import BaseModel, ConfigDict, Field

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=128)]
Time = Annotated[str, Field(max_length=40, description="ISO 8601, UTC", examples=["2026-11-30T17:00:00.000Z"])]
Verb = Literal["diagnose-1", "diagnose-2", "bug-report"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True, strict=True)


class Ecc(_Part):
    volatile_corrected: Whole | None = None
    volatile_uncorrected: Whole | None = None
    aggregate_corrected: Whole | None = None
    aggregate_uncorrected: Whole | None = None
    sram_threshold: bool | None = None


class RowRemap(_Part):
    correctable: Whole | None = None
    uncorrectable: Whole | None = None
    pending: bool | None = None
    failure: bool | None = None


class GpuReport(_Part):
    index: Annotated[int, Field(ge=0, lt=1024)]
    uuid: Name | None = None
    serial: Name | None = None
    name: Name | None = None
    pci: Name | None = None
    status: Literal["ok", "lost", "error", "reset_required"]
    code: Whole = 0
    temperature_c: Number | None = None
    power_w: Number | None = None
    utilization_pct: Number | None = None
    memory_used_mib: Number | None = None
    memory_total_mib: Number | None = None
    ecc: Ecc | None = None
    row_remap: RowRemap | None = None
    recovery_action: Whole | None = None
    clock_event_reasons: Whole | None = None
    pcie_replay: Whole | None = None
    nvlink_down: Whole | None = None
    fabric_state: Whole | None = None
    fabric_health: Whole | None = None
    fabric_status: Whole | None = None


class Nvml(_Part):
    state: Literal["ok", "library_not_found", "driver_not_loaded", "version_mismatch", "hung", "crashed", "error"]
    code: Whole
    detail: Annotated[str, Field(max_length=4000)] = ""


class KernelLine(_Part):
    seq: Count
    at: Time
    facility: Annotated[int, Field(ge=0, lt=256)]
    level: Annotated[int, Field(ge=0, lt=16)] = 3
    text: Annotated[str, Field(max_length=8192)]


class Efa(_Part):
    expected: Whole | None = None
    present: Whole | None = None


class Sample(_Part):
    at: Time
    gpus: dict[str, Any]


class Check(_Part):
    name: Name
    ok: bool | None = None
    detail: Annotated[str, Field(max_length=4000)] = ""


class Result(_Part):
    request: Annotated[str, Field(max_length=64)]
    verb: Verb
    started_at: Time
    finished_at: Time
    ok: bool | None = None
    exit: Whole | None = None
    output: Annotated[str, Field(max_length=70_000)] = ""
    checks: Annotated[list[Check], Field(max_length=100)] = []


class Report(_Part):
    """One report of one node. `seq` grows by one per report within a boot; the instance comes from the credential."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    reporter: Name
    instance_id: Annotated[str, Field(max_length=32)] | None = None
    boot_id: Annotated[str, Field(min_length=1, max_length=64)]
    seq: Annotated[int, Field(ge=1, lt=2**63)]
    sent_at: Time
    uptime_s: Annotated[float, Field(ge=0, lt=4e8, allow_inf_nan=False)] | None = None
    driver: Name | None = None
    nvml: Nvml
    gpu_count: Annotated[int, Field(ge=0, lt=1024)] | None = None
    gpus: Annotated[list[GpuReport], Field(max_length=64)]
    kernel: Annotated[list[KernelLine], Field(max_length=2000)]
    kernel_overrun: bool = False
    efa: Efa | None = None
    recorder: Annotated[list[Sample], Field(max_length=2000)] = []
    results: Annotated[list[Result], Field(max_length=16)] = []


class Asked(Schema):
    id: str
    verb: Verb


class Answer(Schema):
    accepted: bool
    duplicate: bool
    requests: list[Asked]
    interval_s: float


class Hardware(_Part):
    uuid: Name | None = None
    serial: Name | None = None


class HardwareIn(_Part):
    """The GPUs of the node that asks."""

    gpus: Annotated[list[Hardware], Field(max_length=64)]


class CondemnedGpu(Schema):
    uuid: str
    serial: str
    why: str


class CondemnedOut(Schema):
    """Those of the GPUs asked about that were given back as broken before."""

    condemned: list[CondemnedGpu]


class Enrolment(_Part):
    instance_id: Annotated[str, Field(pattern=r"^i-[0-9a-f]{8,17}$")]
    account: Annotated[str, Field(pattern=r"^\d{12}$")]
    region: Annotated[str, Field(max_length=32)]


class Enrolled(Schema):
    token: str


class Nothing(_Part):
    """An empty object."""


class Challenge(Schema):
    nonce: str
    expires_in_s: float


class IdentityIn(_Part):
    """A GetCallerIdentity, signed by the machine's instance identity role for this server and nonce."""

    instance_id: Annotated[str, Field(pattern=r"^i-[0-9a-f]{8,17}$")]
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{5,32}$")]
    nonce: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]
    authorization: Annotated[str, Field(max_length=600)]
    date: Annotated[str, Field(max_length=20)]
    security_token: Annotated[str, Field(max_length=4096)]


class Credential(Schema):
    token: str
    expires_in_s: float


class Error(Schema):
    error: str
    detail: str


def inlined(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON Schema without references, to be put into an OpenAPI operation as it is."""
    schema = model.model_json_schema(by_alias=True)
    parts = schema.pop("$defs", {})

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return walk(parts[node["$ref"].rsplit("/", 1)[1]])
            return {key: walk(value) for key, value in node.items()}
        return [walk(value) for value in node] if isinstance(node, list) else node

    return walk(schema)
