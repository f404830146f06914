"""Which codes show the same kind of fault: a repair that left one of them in place did not help, whichever it was."""

from __future__ import annotations

#: codes that show the same kind of fault; every other code is a class of its own
CLASSES = {
    "a GPU that is gone": (
        "XID_79", "GPU_FALLEN_OFF_BUS", "NVML_GPU_IS_LOST", "GPU_MISSING", "GPU_COUNT_SHORT", "ECS_GPU_COUNT_SHORT",
        "ECS_ZERO_GPUS_REGISTERED",
    ),
    "GPU memory": (
        "XID_48", "XID_63", "XID_64", "XID_94", "XID_95", "XID_140", "ROW_REMAP_FAILURE", "ROW_REMAP_PENDING",
        "ECC_UNCORRECTED", "SRAM_THRESHOLD", "PAGE_RETIREMENT",
    ),
    "NVLink": ("XID_74", "XID_136", *(f"XID_{n}" for n in range(144, 151)), "NVLINK_DISCOVERY_FAILED", "FABRIC_UNHEALTHY"),
    "the GPU system processor": ("XID_119", "XID_120"),
    "the host": ("EC2_SYSTEM_IMPAIRED", "EC2_EVENT_INSTANCE_RETIREMENT", "EC2_EVENT_INSTANCE_STOP"),
}  # fmt: skip
_CLASS = {code: name for name, codes in CLASSES.items() for code in codes}


def fault_class(code: str) -> str:
    """The name of the class, or the code itself where it is one of its own."""
    return _CLASS.get(code, code)
