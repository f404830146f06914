"""The codes that a policy may name. The list of names is open towards new ones: add a line when a rule gives one."""

from __future__ import annotations

import re

from healthboard.diagnosis import catalogue

NUMBERED = re.compile(r"^S?XID_[1-9]\d{0,4}$")
SCHEDULED = re.compile(r"^EC2_EVENT_[A-Z]+(_[A-Z]+)*$")

NAMES = frozenset(
    """
    GPU_FALLEN_OFF_BUS GPU_INIT_FAILED GFW_BOOT_FAILED GPU_RESET_REQUIRED PCIE_AER_FATAL PCIE_AER_CORRECTED
    NVLINK_DISCOVERY_FAILED LOG_INJECTION_SUSPECTED
    ROW_REMAP_PENDING ROW_REMAP_FAILURE ECC_UNCORRECTED ECC_SBE_RATE_HIGH GPU_MISSING GPU_OVERTEMP
    GPU_HW_THERMAL_SLOWDOWN GPU_POWER_BRAKE FABRIC_UNHEALTHY FABRIC_MANAGER_DOWN
    NVML_GPU_IS_LOST NVML_LIB_RM_VERSION_MISMATCH NVML_DRIVER_NOT_LOADED NVML_UNKNOWN_ERROR NVML_PROBE_CRASHED
    DCGM_METRICS_STALE DCGM_UNREACHABLE MONITORING_GAP
    EC2_SYSTEM_IMPAIRED EC2_INSTANCE_IMPAIRED EC2_EBS_IMPAIRED EC2_PERFORMANCE_IMPAIRED EC2_STATUS_INSUFFICIENT_DATA
    EC2_STATUS_INITIALIZING EC2_STATUS_EMPTY EC2_INSTANCE_NOT_FOUND AWS_HEALTH_EVENT
    NVML_PROBE_HUNG SRAM_THRESHOLD PAGE_RETIREMENT INFOROM_CORRUPT GPU_RECOVERY_ACTION KMSG_OVERRUN TASKS_FAILING COMMUNICATION_ERROR
    GPU_CONDEMNED_RETURNED GPU_COUNT_SHORT EFA_DEVICE_MISSING
    ECS_AGENT_DISCONNECTED ECS_ACCELERATED_COMPUTE_IMPAIRED ECS_CONTAINER_RUNTIME_IMPAIRED ECS_DAEMON_IMPAIRED
    ECS_HEALTH_INSUFFICIENT_DATA ECS_INSTANCE_MISSING ECS_INSTANCE_INACTIVE ECS_REGISTRATION_FAILED
    ECS_ZERO_GPUS_REGISTERED ECS_GPU_COUNT_SHORT
    """.split()  # noqa: SIM905
)


OWN = re.compile(r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$")
LONGEST = 60


def may_be_own(code: object) -> bool:
    """Whether it can name a code of a policy's own: capitals, at least two words, and no code that we know."""
    return isinstance(code, str) and len(code) <= LONGEST and bool(OWN.match(code)) and not _ours(code)


def _ours(code: str) -> bool:
    return known(code) or code.startswith(("XID_", "SXID_", "EC2_EVENT_"))


def known(code: object) -> bool:
    if not isinstance(code, str):
        return False
    return code in NAMES or code in catalogue.load() or bool(NUMBERED.match(code) or SCHEDULED.match(code))
