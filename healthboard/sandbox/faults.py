"""The faults that can be injected, as data: what a node, EC2 or ECS then shows, and what ends it.

`verdict` and `action` are what a reader of that evidence should conclude under the default policy. Kernel lines keep
the exact forms of real drivers; ``{pci}``, ``{uuid}``, ``{serial}``, ``{pid}`` and ``{name}`` are filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: What ends a fault by itself. A replacement ends every fault.
MOMENT, REBOOT, HOST, NEVER = "moment", "reboot", "host", "never"

LOST = {
    "status": "lost", "code": 15, "temperature_c": None, "power_w": None, "utilization_pct": None,
    "memory_used_mib": None, "memory_total_mib": None, "ecc": None, "row_remap": None, "recovery_action": None,
    "clock_event_reasons": None, "pcie_replay": None, "nvlink_down": None, "fabric_state": None, "fabric_health": None,
    "fabric_status": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """`flags` steer the simulation: dead, system, instance, ebs, event, agent_away, runtime, silent, unkillable,
    slow_reboot, shortage, blink, no_exporter, zone_issue. `gpu` overrides the NVML reading of the GPU; None there means "not measurable"."""

    code: str
    shows: str
    verdict: str
    action: str
    cure: str
    ends: str = REBOOT
    lines: tuple[str, ...] = ()
    #: what the kernel says when the fault is taken away
    clear_lines: tuple[str, ...] = ()
    gpu: Mapping[str, Any] = field(default_factory=dict)
    nvml: Mapping[str, Any] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    notice: str = ""  # what EventBridge announces: spot, rebalance, block
    check: tuple[str, str] | None = None  # (name, detail) of the diagnostic that then fails

    @property
    def on_gpu(self) -> bool:
        return bool(self.gpu or self.lines)


def _x(number: int, text: str, pid: bool = True) -> str:
    who = "pid={pid}, name={name}, " if pid else ""
    return f"NVRM: Xid (PCI:{{pci}}): {number}, {who}{text}"


def _xid(
    number: int, shows: str, verdict: str, action: str, cure: str, text: str, *, pid: bool = True, **more: Any
) -> Fault:
    lines = (_x(number, text, pid), *more.pop("then", ()))
    return Fault(f"XID_{number}", shows, verdict, action, cure, lines=lines, **more)


KERNEL, BOTH = "kernel log", "kernel log, NVML"
HW, AMB, APP, WATCH, UNK, OK = "HARDWARE", "AMBIGUOUS", "WORKLOAD", "WATCH", "UNKNOWN", "HEALTHY"
NOTIFY = "NOTIFY_WORKLOAD"
RESET = {"recovery_action": 1}
LATCHED = {"status": "reset_required", "code": 16, "recovery_action": 1}
NODE_REBOOT = {"recovery_action": 2}
REMAP_FAILED = {"row_remap": {"correctable": 3, "uncorrectable": 8, "pending": False, "failure": True}}
RESET_TEXT = "the driver asks for a reset (NVML recovery action)"

_FAULTS = (
    _xid(13, KERNEL, APP, NOTIFY, "none: the application's own fault",
         "Graphics SM Warp Exception on (GPC 2, TPC 5, SM 1): Out Of Range Address", ends=MOMENT,
         then=(_x(43, "Ch 0000000a"),)),
    _xid(31, KERNEL, APP, NOTIFY, "none: the application's own fault",
         "channel 0x0000001b, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC4 GPCCLIENT_T1_2 faulted @ 0x7_c3200000. "
         "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ", ends=MOMENT),
    _xid(43, KERNEL, APP, NOTIFY, "none: the application's own fault", "Ch 0000000a", ends=MOMENT),
    _xid(45, KERNEL, OK, "NONE", "none: aftermath only", "channel 0x00000007", ends=MOMENT),
    _xid(48, BOTH, HW, "REBOOT", "reboot or replace",
         "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, "
         "subpartition 1.",
         gpu={**RESET, "ecc": {"volatile_uncorrected": 1, "aggregate_uncorrected": 1}},
         check=("ecc", "1 uncorrected error since driver load")),
    _xid(62, BOTH, HW, "REBOOT", "reboot or replace", "32a1(2d78) 00000000 00000000", gpu=NODE_REBOOT,
         check=("recovery_action", "node reboot required")),
    _xid(63, KERNEL, WATCH, "WATCH", "none: a row is marked for remapping",
         "Row Remapper: New row marked for remapping, reset gpu to activate.",
         gpu={"row_remap": {"uncorrectable": 1, "pending": True}}),
    _xid(64, BOTH, HW, "REPLACE", "replace",
         "DRAM Retirement failed due to full inforom object at 0x00000003e2d7a000", ends=HOST, gpu=REMAP_FAILED,
         check=("row_remap", "row remapping failed: spare rows are used up")),
    _xid(74, KERNEL, AMB, "REBOOT", "reboot or replace",
         "NVLink: fatal error detected on link 9(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
         check=("nvlink", "errors on link 9")),
    _xid(79, BOTH, HW, "REPLACE", "replace (a reboot keeps the host)", "GPU has fallen off the bus.", pid=False,
         ends=HOST, gpu=LOST, then=("NVRM: GPU {pci}.0: GPU has fallen off the bus.",
                                    "NVRM: GPU {pci}.0: GPU serial number is {serial}."),
         check=("gpu_count", "GPU is lost")),
    _xid(92, KERNEL, WATCH, "WATCH", "none: a trend", "High single-bit ECC error rate", pid=False, ends=MOMENT),
    _xid(94, KERNEL, APP, NOTIFY, "none: contained, one application dies",
         "Contained: CE User Channel (0x9). RST: No, D-RST: No", ends=MOMENT),
    _xid(95, BOTH, HW, "REBOOT", "reboot or replace", "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No",
         gpu={**LATCHED, "ecc": {"volatile_uncorrected": 1, "aggregate_uncorrected": 1}},
         check=("recovery_action", "GPU reset required")),
    _xid(109, KERNEL, AMB, "REBOOT", "reboot or replace", "Ch 0000000c, errorString CTX SWITCH TIMEOUT, Info 0x4c009",
         check=("context_switch", "a context did not switch in time")),
    _xid(110, BOTH, HW, "REBOOT", "reboot or replace", "Security Fault Error, intr 00000001", gpu=RESET,
         check=("recovery_action", "GPU reset required")),
    _xid(119, KERNEL, AMB, "REBOOT", "reboot or replace",
         "Timeout after 6s of waiting for RPC response from GPU{index} GSP! Expected function 76 (GSP_RM_CONTROL) "
         "(0x20800a4d 0x5).",
         then=("NVRM: GPU{index} GSP RPC buffer contains function 76 (GSP_RM_CONTROL) and data 0x0000000020800a4d "
               "0x0000000000000005.",
               "NVRM: GPU{index} RPC history (CPU -> GSP):",
               "NVRM:     entry function                   data0              data1"),
         check=("gsp", "the GPU system processor did not answer within 6 s")),
    _xid(120, KERNEL, AMB, "REBOOT", "reboot or replace",
         "GSP task timeout @ pc:0x5863a48, partition:4#0, task:1", pid=False, check=("gsp", "GSP error reported")),
    _xid(136, BOTH, AMB, "REBOOT", "reboot or replace", "NVLink: Link training failed on link 7", pid=False,
         gpu={"nvlink_down": 1}, check=("nvlink", "1 link is down")),
    _xid(140, BOTH, HW, "REBOOT", "reboot or replace",
         "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:1, LTC:0, MMU:0, PCIE:0",
         gpu={**RESET, "ecc": {"volatile_uncorrected": 2, "aggregate_uncorrected": 2}},
         check=("ecc", "2 uncorrected errors since driver load")),
    _xid(143, BOTH, HW, "REBOOT", "reboot or replace", "GPU init error", pid=False, gpu=LATCHED,
         check=("init", "the GPU does not initialise")),
    _xid(154, BOTH, HW, "REBOOT", "reboot or replace",
         "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", pid=False, gpu=NODE_REBOOT,
         clear_lines=(_x(154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", False),),
         check=("recovery_action", "node reboot required")),
    Fault("ROW_REMAP_PENDING", "NVML", WATCH, "WATCH", "none: applied at the next reset",
          gpu={"row_remap": {"uncorrectable": 1, "pending": True}}),
    Fault("ROW_REMAP_FAILURE", "NVML", HW, "REPLACE", "replace", ends=HOST, gpu=REMAP_FAILED,
          check=("row_remap", "row remapping failed: spare rows are used up")),
    Fault("GPU_MISSING", "NVML", AMB, "DIAGNOSE", "replace", ends=HOST, gpu={"status": "missing"},
          check=("gpu_count", "a GPU is missing")),
    Fault("NVML_PROBE_HUNG", "NVML", UNK, "DIAGNOSE", "reboot or replace",
          nvml={"state": "hung", "code": 10, "detail": "the probe did not answer within 20 s"},
          check=("nvml", "the probe did not answer within 20 s")),
    Fault("NVML_LIB_RM_VERSION_MISMATCH", "NVML", AMB, "REBOOT", "reboot or replace",
          nvml={"state": "version_mismatch", "code": 18, "detail": "Driver/library version mismatch"},
          check=("nvml", "Driver/library version mismatch")),
    Fault("GPU_HW_THERMAL_SLOWDOWN", "NVML", WATCH, "WATCH", "none: passes when it cools",
          gpu={"clock_event_reasons": 0x48, "temperature_c": 84}, check=("thermal", "hardware thermal slowdown")),
    Fault("EC2_SYSTEM_IMPAIRED", "EC2 status, ECS agent away, node silent", HW, "REPLACE",
          "replace (in a group that replaces by itself: nothing)", ends=HOST,
          flags=frozenset({"system", "dead", "agent_away", "silent"})),
    Fault("EC2_INSTANCE_IMPAIRED", "EC2 status", AMB, "REBOOT", "reboot or replace", flags=frozenset({"instance"})),
    Fault("EC2_EBS_IMPAIRED", "EC2 status", AMB, "DIAGNOSE", "none here: a storage path, often zone-wide", ends=HOST,
          flags=frozenset({"ebs"})),
    Fault("EC2_EVENT_INSTANCE_RETIREMENT", "EC2 scheduled event", HW, "REPLACE",
          "replace (in a group that replaces by itself: nothing)", ends=HOST, flags=frozenset({"event"})),
    Fault("ECS_AGENT_DISCONNECTED", "ECS", UNK, "NONE",
          "none at first; beyond the policy's time AMBIGUOUS, DIAGNOSE: reboot or replace",
          flags=frozenset({"agent_away"}), check=("ecs_agent", "the agent does not answer")),
    Fault("ECS_CONTAINER_RUNTIME_IMPAIRED", "ECS health", AMB, "REBOOT", "reboot or replace",
          flags=frozenset({"runtime"}), check=("docker", "no answer to a ping within 2 s")),
    Fault("MONITORING_GAP", "the node reporter is silent", UNK, "DIAGNOSE", "reboot or replace",
          flags=frozenset({"silent"})),
    Fault("EC2_SPOT_INTERRUPTION", "EventBridge", WATCH, "NONE", "none: Spot announces that it takes it back",
          ends=MOMENT, notice="spot"),
    Fault("EC2_REBALANCE", "EventBridge", WATCH, "NONE", "none: Spot announces a higher risk", ends=MOMENT,
          notice="rebalance"),
    Fault("CAPACITY_BLOCK_ENDING", "EventBridge", WATCH, "NONE", "none: its Capacity Block ends on time", ends=MOMENT,
          notice="block"),
    Fault("DCGM_UNREACHABLE", "its dcgm-exporter does not answer", UNK, "DIAGNOSE",
          "reboot or replace (only where HEALTHBOARD_EXPORTERS is on)", flags=frozenset({"no_exporter"})),
    Fault("AWS_HEALTH_NOTICE", "EventBridge: an issue of its zone", OK, "NONE",
          "--clear; a notice on the system page, of no machine", ends=NEVER, flags=frozenset({"zone_issue"})),
    Fault("UNKILLABLE_TASK", "containers do not stop when ordered", OK, "NONE", "reboot or replace",
          flags=frozenset({"unkillable"})),
    Fault("REBOOT_SLOW", "the next reboot takes a minute or more and fails its checks", OK, "NONE", "passes by itself",
          ends=NEVER, flags=frozenset({"slow_reboot"})),
    Fault("NO_CAPACITY", "launches of this type in this zone fail", OK, "NONE", "--clear", ends=NEVER,
          flags=frozenset({"shortage"})),
    Fault("AGENT_BLINK", "the agent reconnects within seconds", UNK, "NONE", "passes by itself", ends=MOMENT,
          flags=frozenset({"blink"})),
)  # fmt: skip

FAULTS: dict[str, Fault] = {fault.code: fault for fault in _FAULTS}


def listing() -> str:
    """The table that ``inject --list`` prints."""
    width = max(map(len, FAULTS))
    rows = [f"{'CODE':{width}}  {'SHOWN BY':42}  {'EXPECTED VERDICT':26}  CURE"]
    for f in FAULTS.values():
        rows.append(f"{f.code:{width}}  {f.shows:42}  {f.verdict + ', ' + f.action:26}  {f.cure}")
    return "\n".join(rows)
