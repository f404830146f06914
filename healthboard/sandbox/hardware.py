"""Instance types, and the identity of GPUs: what a host has stays with the host."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """Memory in MiB. `gpu_name` as NVML prints it, `gpu_model` as EC2 does."""

    name: str
    vcpus: int
    memory: int
    gpus: int
    gpu_model: str
    gpu_name: str
    gpu_memory: int
    efa: int
    buses: tuple[str, ...]
    nvlink: bool
    watts: int


_P5 = ("0000:53:00", "0000:64:00", "0000:75:00", "0000:86:00", "0000:97:00", "0000:a8:00", "0000:b9:00", "0000:ca:00")
_P4 = ("0000:10:1c", "0000:10:1d", "0000:20:1c", "0000:20:1d", "0000:90:1c", "0000:90:1d", "0000:a0:1c", "0000:a0:1d")
_G6 = ("0000:38:00", "0000:3a:00", "0000:3c:00", "0000:3e:00")

TYPES = {
    spec.name: spec
    for spec in (
        TypeSpec("p5.48xlarge", 192, 2097152, 8, "H100", "NVIDIA H100 80GB HBM3", 81559, 32, _P5, True, 620),
        TypeSpec("p4d.24xlarge", 96, 1179648, 8, "A100", "NVIDIA A100-SXM4-40GB", 40960, 4, _P4, True, 340),
        TypeSpec("g6e.12xlarge", 48, 393216, 4, "L40S", "NVIDIA L40S", 46068, 1, _G6, False, 290),
        TypeSpec("g6e.xlarge", 4, 32768, 1, "L40S", "NVIDIA L40S", 46068, 0, _G6[:1], False, 290),
        TypeSpec("t3.micro", 2, 1024, 0, "", "", 0, 0, (), False, 0),
    )
}


def digest(*parts: object) -> str:
    """A stable hex string of 64 characters."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def stable_uuid(*parts: object) -> str:
    return str(uuid.UUID(digest(*parts)[:32], version=4))


def gpus_of_host(spec: TypeSpec, *identity: object) -> list[dict[str, str]]:
    """The GPUs of one physical host: [{"uuid", "serial", "pci"}] in index order."""
    return [
        {
            "uuid": f"GPU-{stable_uuid(*identity, 'gpu', n)}",
            "serial": f"165{int(digest(*identity, 'serial', n)[:12], 16) % 10**10:010d}",
            "pci": bus,
        }
        for n, bus in enumerate(spec.buses)
    ]
