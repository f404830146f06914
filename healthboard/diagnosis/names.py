"""Names of hardware, made comparable: PCI addresses, GPU UUIDs, what an instance type carries.

The kernel writes ``0000:3b:00``, sysfs ``0000:3b:00.0``, NVML and the exporter ``00000000:3B:00.0``: all of them are
(domain, bus, device). The function is dropped, since a GPU's audio function is the same card.
"""

from __future__ import annotations

import re

_PCI = re.compile(r"^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?$")
_UUID = re.compile(r"^(?:GPU|MIG)-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$")
UUID_ANYWHERE = re.compile(r"GPU-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")

#: GPUs of the instance types that run GPU workloads on ECS; a type that isn't listed has an unknown count.
GPUS_OF_TYPE = {
    "p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "p3dn.24xlarge": 8,
    "p4d.24xlarge": 8, "p4de.24xlarge": 8,
    "p5.4xlarge": 1, "p5.48xlarge": 8, "p5e.48xlarge": 8, "p5en.48xlarge": 8,
    "p6-b200.48xlarge": 8, "p6-b300.48xlarge": 8, "p6e-gb200.36xlarge": 4,
    "g4dn.xlarge": 1, "g4dn.2xlarge": 1, "g4dn.4xlarge": 1, "g4dn.8xlarge": 1, "g4dn.12xlarge": 4,
    "g4dn.16xlarge": 1, "g4dn.metal": 8,
    "g5.xlarge": 1, "g5.2xlarge": 1, "g5.4xlarge": 1, "g5.8xlarge": 1, "g5.12xlarge": 4, "g5.16xlarge": 1,
    "g5.24xlarge": 4, "g5.48xlarge": 8,
    "g6.xlarge": 1, "g6.2xlarge": 1, "g6.4xlarge": 1, "g6.8xlarge": 1, "g6.12xlarge": 4, "g6.16xlarge": 1,
    "g6.24xlarge": 4, "g6.48xlarge": 8,
    "g6e.xlarge": 1, "g6e.2xlarge": 1, "g6e.4xlarge": 1, "g6e.8xlarge": 1, "g6e.12xlarge": 4, "g6e.16xlarge": 1,
    "g6e.24xlarge": 4, "g6e.48xlarge": 8,
}  # fmt: skip

_FAMILIES = {
    "p3": "volta", "p3dn": "volta", "g4dn": "turing", "p4d": "ampere", "p4de": "ampere", "g5": "ampere",
    "g6": "ada", "g6e": "ada", "gr6": "ada", "p5": "hopper", "p5e": "hopper", "p5en": "hopper",
    "p6-b200": "blackwell", "p6-b300": "blackwell", "p6e-gb200": "blackwell", "p6e-gb300": "blackwell",
}  # fmt: skip

_MODELS = (
    ("GB2", "blackwell"), ("GB3", "blackwell"), ("B100", "blackwell"), ("B200", "blackwell"), ("B300", "blackwell"),
    ("H100", "hopper"), ("H200", "hopper"), ("GH200", "hopper"), ("H20", "hopper"), ("H800", "hopper"),
    ("L40", "ada"), ("L4", "ada"), ("A100", "ampere"), ("A10", "ampere"), ("A30", "ampere"), ("A40", "ampere"),
    ("T4", "turing"), ("V100", "volta"),
)  # fmt: skip


def pci(text: object) -> str | None:
    """``0000:3b:00`` of any spelling of a PCI address; None if it is none."""
    match = _PCI.match(text.strip()) if isinstance(text, str) else None
    if not match:
        return None
    domain = int(match[1], 16)
    return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}"


def gpu_uuid(text: object) -> str | None:
    """The UUID as NVIDIA writes it, or None; hexadecimal digits are lower-cased so that sources agree."""
    if not isinstance(text, str) or not _UUID.match(text.strip()):
        return None
    head, _, tail = text.strip().partition("-")
    return f"{head}-{tail.lower()}"


def gpus_of_type(instance_type: str | None) -> int | None:
    return GPUS_OF_TYPE.get(instance_type or "")


def architecture_of_type(instance_type: str | None) -> str | None:
    return _FAMILIES.get((instance_type or "").partition(".")[0])


def architecture_of_model(model: str | None) -> str | None:
    """The architecture of a board's marketing name such as ``NVIDIA H100 80GB HBM3``; None if not known."""
    words = (model or "").upper()
    return next((arch for name, arch in _MODELS if re.search(rf"\b{name}", words)), None)
