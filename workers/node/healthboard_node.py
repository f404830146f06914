#!/usr/bin/env python3
"""healthboard-node: tells healthboard what the GPUs and the kernel of this machine say.

One file, Python 3.9 or later, standard library only; `pynvml.py` (package nvidia-ml-py) is used where it can be
imported. It runs as a host service and needs neither Docker nor a database. Four parts:

* `NvmlReader` runs in a child process (`--nvml-child`), because a sick driver hangs or kills whoever asks it;
  `NvmlProbe` is its keeper in the parent. There is one poller and one child, never more.
* `Kmsg` follows the kernel log; `Spool` keeps reports in order on disk until the server has them.
* `Sender` posts them; the answer may ask for one verb of `VERBS`, which `Requests` runs from this file.
* `gate()` is the admission check that runs before the ECS agent.

Nothing that is unknown is ever sent as 0: a measurement that a GPU or driver does not give is null.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import errno
import fcntl
import hashlib
import hmac
import ipaddress
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import urlsplit

VERSION = "1.1.0"
SCHEMA = 1
VERBS = ("diagnose-1", "diagnose-2", "bug-report")
REPORT_PATH = "/api/v1/node/reports"
CONDEMNED_PATH = "/api/v1/node/condemned"
CHALLENGE_PATH = "/api/v1/node/enrol/challenge"
IDENTITY_PATH = "/api/v1/node/enrol/identity"
RENEW_PATH = "/api/v1/node/renew"

DEFAULT_INTERVAL_S = 15.0
RECORDER_S = 900
OUTPUT_LIMIT = 64 * 1024
KERNEL_PER_REPORT = 500
KERNEL_PENDING = 2000
#: The server takes reports of up to 1 MiB; lines, results and recorder together stay below.
KERNEL_BYTES = 300_000
RESULT_BYTES = 200_000
SAME_LINE_PER_REPORT = 3
ANSWER_LIMIT = 256 * 1024
POST_DEADLINE_S = 30.0
#: Answers after which the same report can't be taken later either.
HOPELESS = frozenset({400, 409, 413, 415, 422})
URGENT_WAIT_S = 3.0
#: The server's word for a node that turns over too much; told to wait longer than this, it keeps nothing that isn't new.
TOO_MUCH, LONG_WAIT_S = "too much history", 60
#: the answer to a report that is dated ahead of the server's clock, and taken once it is not
AHEAD = "sent_at is in the future"
#: The server calls a longer silence than three times 15 seconds a gap.
LONGEST_INTERVAL_S = 40

#: GPUs per instance type. A type that is not listed is unknown, never zero.
GPUS_BY_TYPE = {
    "p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "p3dn.24xlarge": 8,
    "p4d.24xlarge": 8, "p4de.24xlarge": 8,
    "p5.4xlarge": 1, "p5.48xlarge": 8, "p5e.48xlarge": 8, "p5en.48xlarge": 8,
    "p6-b200.48xlarge": 8, "p6-b300.48xlarge": 8, "p6e-gb200.36xlarge": 4,
    "g4dn.xlarge": 1, "g4dn.2xlarge": 1, "g4dn.4xlarge": 1, "g4dn.8xlarge": 1, "g4dn.16xlarge": 1,
    "g4dn.12xlarge": 4, "g4dn.metal": 8,
    "g5.xlarge": 1, "g5.2xlarge": 1, "g5.4xlarge": 1, "g5.8xlarge": 1, "g5.16xlarge": 1,
    "g5.12xlarge": 4, "g5.24xlarge": 4, "g5.48xlarge": 8,
    "g5g.xlarge": 1, "g5g.2xlarge": 1, "g5g.4xlarge": 1, "g5g.8xlarge": 1, "g5g.16xlarge": 2, "g5g.metal": 2,
    "g6.xlarge": 1, "g6.2xlarge": 1, "g6.4xlarge": 1, "g6.8xlarge": 1, "g6.16xlarge": 1,
    "g6.12xlarge": 4, "g6.24xlarge": 4, "g6.48xlarge": 8, "gr6.4xlarge": 1, "gr6.8xlarge": 1,
    "g6e.xlarge": 1, "g6e.2xlarge": 1, "g6e.4xlarge": 1, "g6e.8xlarge": 1, "g6e.16xlarge": 1,
    "g6e.12xlarge": 4, "g6e.24xlarge": 4, "g6e.48xlarge": 8,
    "g7e.2xlarge": 1, "g7e.4xlarge": 1, "g7e.8xlarge": 1, "g7e.12xlarge": 2, "g7e.24xlarge": 4, "g7e.48xlarge": 8,
}  # fmt: skip
#: Types whose GPUs are joined by NVLink, so that no link at all is a fault there and normal elsewhere.
NVLINK_TYPES = re.compile(r"^(p3\.(8|16)xlarge|p3dn\.|p4de?\.|p5e?n?\.48|p6)")

#: Codes after which NVIDIA asks for a reset or a replacement; only the local quick check reads them.
SERIOUS_XIDS = frozenset({46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 140, 143, 158})

#: The report, as JSON Schema. `build_report` makes it, the server checks it.
_NUM = {"type": ["number", "null"]}
_INT = {"type": ["integer", "null"]}
_STR = {"type": ["string", "null"]}
_FLAG = {"type": ["boolean", "null"]}


def _object(required, **properties):
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


GPU_SCHEMA = _object(
    ["index", "status", "code"],
    index=_INT, uuid=_STR, serial=_STR, name=_STR, pci=_STR,
    status={"enum": ["ok", "lost", "error", "reset_required"]}, code={"type": "integer", "minimum": 0},
    temperature_c=_INT, power_w=_NUM, utilization_pct=_INT, memory_used_mib=_INT, memory_total_mib=_INT,
    ecc=_object([], volatile_corrected=_INT, volatile_uncorrected=_INT, aggregate_corrected=_INT,
                aggregate_uncorrected=_INT, sram_threshold=_FLAG),
    row_remap=_object([], correctable=_INT, uncorrectable=_INT, pending=_FLAG, failure=_FLAG),
    recovery_action=_INT, clock_event_reasons=_INT, pcie_replay=_INT, nvlink_down=_INT,
    fabric_state=_INT, fabric_health=_INT, fabric_status=_INT,
)  # fmt: skip
REPORT_SCHEMA = _object(
    ["schema", "reporter", "boot_id", "seq", "sent_at", "nvml", "gpus", "kernel", "kernel_overrun"],
    schema={"const": SCHEMA}, reporter={"type": "string"}, boot_id={"type": "string"},
    seq={"type": "integer", "minimum": 1}, sent_at={"type": "string", "format": "date-time"},
    uptime_s=_NUM, driver=_STR, gpu_count=_INT,
    nvml=_object(
        ["state", "code", "detail"],
        state={"enum": ["ok", "library_not_found", "driver_not_loaded", "version_mismatch", "hung", "crashed",
                        "error"]},
        code={"type": "integer", "minimum": 0}, detail={"type": "string"},
    ),
    gpus={"type": "array", "items": GPU_SCHEMA},
    kernel={"type": "array", "items": _object(
        ["seq", "at", "facility", "level", "text"], seq={"type": "integer"}, at={"type": "string"},
        facility={"type": "integer"}, level={"type": "integer"}, text={"type": "string"})},
    kernel_overrun={"type": "boolean"},
    efa=_object([], expected=_INT, present=_INT),
    recorder={"type": "array", "items": _object(["at", "gpus"], at={"type": "string"}, gpus={"type": "object"})},
    results={"type": "array", "items": _object(
        ["request", "verb", "started_at", "finished_at", "ok", "exit", "output", "checks"],
        request={"type": "string"}, verb={"enum": list(VERBS)}, started_at={"type": "string"},
        finished_at={"type": "string"}, ok=_FLAG, exit=_INT, output={"type": "string"},
        checks={"type": "array", "items": _object(
            ["name", "ok", "detail"], name={"type": "string"}, ok=_FLAG, detail={"type": "string"})})},
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- small things


class ConfigError(Exception):
    """A setting that can't work; the text is shown as one line and the program ends with 2."""


def log(text):
    """One line to the journal."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text.rstrip() + "\n")
        sys.stderr.flush()


_logged = set()


def log_once(key, text):
    """Say a lasting trouble once, not every 15 seconds; `said(key)` lets it be said again."""
    if key not in _logged:
        _logged.add(key)
        log(text)


def said(key):
    _logged.discard(key)


def iso(epoch):
    """Seconds since 1970 -> `2026-11-30T17:00:00.000Z`."""
    millis = int(epoch * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(millis // 1000)) + f".{millis % 1000:03d}Z"


def read_text(path, limit=65536):
    """The text of a small file, or None if it can't be read."""
    try:
        with open(path, "rb") as f:
            return f.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return None


def write_json(path, value):
    """Replace a file whole, so that a crash leaves the old or the new one."""
    tmp = path + ".tmp"
    with open(tmp, "w", encoding="utf-8") as f:
        json.dump(value, f, separators=(",", ":"))
    os.replace(tmp, path)


def read_json(path):
    try:
        with open(path, encoding="utf-8") as f:
            value = json.load(f)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def clean_env():
    """The environment for children: without the node's credential."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HEALTHBOARD_NODE_TOKEN")}


class Settings:
    """Everything from the environment; a bad value raises ConfigError."""

    def __init__(self, env=None):
        env = os.environ if env is None else env

        def number(name, default, low, high):
            raw = env.get(name, "")
            try:
                value = float(raw) if raw else default
            except ValueError:
                value = float("nan")
            if not low <= value <= high:
                raise ConfigError(f"{name} must be a number from {low:g} to {high:g}, not {raw!r}")
            return value

        self.url = env.get("HEALTHBOARD_URL", "").rstrip("/")
        self.token = env.get("HEALTHBOARD_NODE_TOKEN", "")
        self.token_file = env.get("HEALTHBOARD_NODE_TOKEN_FILE", "")
        self.enrols = not self.token and not self.token_file
        self.metadata = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
        self.ca_file = env.get("HEALTHBOARD_CA_FILE", "")
        self.interval = number("HEALTHBOARD_INTERVAL", DEFAULT_INTERVAL_S, 0.05, 600)
        self.nvml_timeout = number("HEALTHBOARD_NVML_TIMEOUT", 20, 0.1, 300)
        # The first call of the library may take long where persistence mode is off.
        self.nvml_init_timeout = number("HEALTHBOARD_NVML_INIT_TIMEOUT", max(60, self.nvml_timeout), 0.1, 600)
        self.nvml_respawn_s = number("HEALTHBOARD_NVML_RESPAWN", 5, 0.01, 600)
        self.spool_bytes = int(number("HEALTHBOARD_SPOOL_MAX_MB", 8, 0.01, 1024) * 1e6)
        self.backoff_s = number("HEALTHBOARD_BACKOFF", 1, 0.01, 60)
        self.state_dir = env.get("HEALTHBOARD_STATE_DIR", "/var/lib/healthboard-node")
        self.kmsg = env.get("HEALTHBOARD_KMSG", "/dev/kmsg")
        self.sysfs = env.get("HEALTHBOARD_SYSFS", "/sys")
        self.boot_id = env.get("HEALTHBOARD_BOOT_ID") or read_text("/proc/sys/kernel/random/boot_id") or "unknown"
        self.instance_type = env.get("HEALTHBOARD_INSTANCE_TYPE") or read_text(
            os.path.join(self.sysfs, "devices/virtual/dmi/id/product_name")
        )
        efa = env.get("HEALTHBOARD_EFA_EXPECTED", "")
        if efa and not efa.isdigit():
            raise ConfigError(f"HEALTHBOARD_EFA_EXPECTED must be a whole number, not {efa!r}")
        self.efa_expected = int(efa) if efa else None
        expect = env.get("HEALTHBOARD_EXPECT_GPUS", "")
        if expect and not expect.isdigit():
            raise ConfigError(f"HEALTHBOARD_EXPECT_GPUS must be a whole number, not {expect!r}")
        self.expect_gpus = int(expect) if expect else None
        self.condemned_file = env.get("HEALTHBOARD_CONDEMNED_FILE", "/etc/healthboard/condemned")

    def expected(self):
        """(number of GPUs or None, where that is known from)."""
        if self.expect_gpus is not None:
            return self.expect_gpus, "as set"
        if self.instance_type in GPUS_BY_TYPE:
            return GPUS_BY_TYPE[self.instance_type], self.instance_type
        return None, f"instance type {self.instance_type or 'unknown'} is not in the table"

    def read_token(self):
        """The credential; a file is read each time, so that a renewed one is taken up without a restart."""
        token = (read_text(self.token_file, 4096) or "") if self.token_file else self.token.strip()
        return token if token and not re.search(r"[^\x21-\x7e]", token) else None


def check_url(url):
    """Split the server's address; the token must never cross a network in the clear."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    try:
        port = parts.port
    except ValueError:
        raise ConfigError("HEALTHBOARD_URL has a bad port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("HEALTHBOARD_URL must be an https:// address, such as https://healthboard.example.com")
    if parts.scheme == "http" and not loopback:
        raise ConfigError("HEALTHBOARD_URL must be https:// (http is taken for a loopback address only)")
    return parts.scheme, host, port, parts.path.rstrip("/")


# ------------------------------------------------------------------------------- NVML, inside the child process

NVML_STATES = {9: "driver_not_loaded", 12: "library_not_found", 18: "version_mismatch"}
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, GPU_LOST, RESET_REQUIRED = 1, 2, 3, 15, 16
#: With a GPU that isn't well the library is started anew no more often than this.
RENEW_S = 300.0
#: What the child is asked for: a reading, or one by a library that was started anew.
READ, READ_ANEW = b"read\n", b"anew\n"
#: Steps that take as long as the driver's initialisation does.
SLOW_STEPS = ("nvmlInit", "nvmlShutdown")
#: Code of a reading that is still awaited: the driver is slow, and it is too early to call that a hang.
NOT_YET = 10
MEASUREMENTS = (
    "temperature_c", "power_w", "utilization_pct", "memory_used_mib", "memory_total_mib", "recovery_action",
    "clock_event_reasons", "pcie_replay", "nvlink_down", "fabric_state", "fabric_health", "fabric_status",
)  # fmt: skip
ECC_FIELDS = (
    "volatile_corrected", "volatile_uncorrected", "aggregate_corrected", "aggregate_uncorrected", "sram_threshold",
)  # fmt: skip
REMAP_FIELDS = ("correctable", "uncorrectable", "pending", "failure")


def empty_gpu(index, status="ok", code=0, known=None):
    """A GPU of which nothing is measured; `known` is its entry in the inventory."""
    gpu = {"index": index, "status": status, "code": code}
    for key in ("uuid", "serial", "name", "pci"):
        gpu[key] = (known or {}).get(key)
    gpu.update(dict.fromkeys(MEASUREMENTS))
    gpu["ecc"] = dict.fromkeys(ECC_FIELDS)
    gpu["row_remap"] = dict.fromkeys(REMAP_FIELDS)
    return gpu


class _GpuBroken(Exception):
    """The GPU can't be read further; carries the status to report."""

    def __init__(self, status, code):
        super().__init__(status)
        self.status, self.code = status, code


class _Stale(Exception):
    """The library has forgotten us (driver reload): initialise again."""


class NvmlReader:
    """Reads all GPUs through pynvml. Lives in the child; every call may hang or end the process."""

    def __init__(self, nvml, progress):
        from ctypes import byref  # only the child pays for it

        self.nvml = nvml
        self.byref = byref
        self.progress = progress
        self.ready = False
        self.refusal = None
        self.renews = False  # whether the next reading starts the library anew
        self.renewed_at = -RENEW_S

    def read(self):
        """One reading: {"state", "code", "detail", "driver", "count", "gpus"}; never raises for NVML's sake."""
        for last_try in (False, True):
            try:
                return self._read()
            except _Stale:
                self._forget()
                if last_try:
                    return _failure("error", UNINITIALIZED, "the library has to be initialised again and again")
            except self.nvml.NVMLError as e:
                self._forget()
                return self._failed(e)
        raise AssertionError("unreachable")

    def _failed(self, error):
        code = self._code(error)
        return _failure(NVML_STATES.get(code, "error"), code, self._text(error))

    def _forget(self):
        if self.ready:
            self.ready = False
            self.progress("nvmlShutdown")
            with contextlib.suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()

    def _code(self, error):
        # NVMLError is unhashable and its == fails against other types: only the number is looked at.
        return int(getattr(error, "value", 999))

    def _text(self, error):
        try:
            return str(error)[:300]
        except Exception:  # codes without a text make some bindings raise anything
            return f"NVML error {self._code(error)}"

    def _read(self):
        n = self.nvml
        if self.renews:
            self.renews, self.renewed_at = False, time.monotonic()
            self._forget()
        if not self.ready:
            self.progress("nvmlInit")
            n.nvmlInit()
            self.ready = True
        self.progress("nvmlDeviceGetCount")
        driver = self._string(n.nvmlSystemGetDriverVersion)
        try:
            count = int(n.nvmlDeviceGetCount())
        except n.NVMLError as e:
            if self._code(e) == UNINITIALIZED:
                raise _Stale() from None
            raise
        gpus = [self._gpu(i) for i in range(min(count, 64))]
        if any(g["status"] != "ok" for g in gpus):
            # Handles go stale after a reset, and only a fresh start of the library sees a GPU that came back. It takes long,
            # and a GPU that stays bad would else cost it at each reading.
            self.renews = time.monotonic() - self.renewed_at >= RENEW_S
        return {"state": "ok", "code": 0, "detail": "", "driver": driver, "count": count, "gpus": gpus}

    def _call(self, name, *args):
        """A value, or None where the binding, the driver or the GPU doesn't give it. Raises _GpuBroken, _Stale.

        `refusal` is then NVML's code, or None where it has not been asked or what it said can't be read.
        """
        self.refusal = None
        fn = getattr(self.nvml, name, None)
        return None if fn is None else self._guard(fn, *args)

    def _guard(self, fn, *args):
        try:
            return fn(*args)
        except self.nvml.NVMLError as e:
            code = self._code(e)
            if code == UNINITIALIZED:
                raise _Stale() from None
            if code == GPU_LOST:
                raise _GpuBroken("lost", code) from None
            if code == RESET_REQUIRED:
                raise _GpuBroken("reset_required", code) from None
            self.refusal = code
            return None
        except (UnicodeError, ValueError, TypeError, AttributeError):
            return None

    def _string(self, fn, *args):
        """A string of the driver, which may be bytes, or bytes that are no text at all."""
        value = self._guard(getattr(fn, "__wrapped__", fn), *args)  # beneath the binding's strict decoding
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if not isinstance(value, str):
            return None
        return "".join(c for c in value if c.isprintable()).strip()[:64] or None

    def _gpu(self, index):
        n = self.nvml
        gpu = empty_gpu(index)
        try:
            self.progress(f"GPU {index}")
            try:
                handle = n.nvmlDeviceGetHandleByIndex(index)
            except n.NVMLError as e:
                code = self._code(e)
                if code == UNINITIALIZED:
                    raise _Stale() from None
                status = {GPU_LOST: "lost", RESET_REQUIRED: "reset_required"}.get(code, "error")
                raise _GpuBroken(status, code) from None
            gpu["uuid"] = self._string(n.nvmlDeviceGetUUID, handle)
            pci = self._call("nvmlDeviceGetPciInfo", handle)
            if pci is not None:
                gpu["pci"] = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}"
            gpu["serial"] = self._string(n.nvmlDeviceGetSerial, handle)
            gpu["name"] = self._string(n.nvmlDeviceGetName, handle)
            self.progress(f"GPU {index} {gpu['uuid'] or gpu['pci'] or ''}".strip())
            self._measure(handle, gpu)
        except _GpuBroken as broken:
            gpu["status"], gpu["code"] = broken.status, broken.code
        return gpu

    def _measure(self, h, gpu):
        gpu["temperature_c"] = _count(self._call("nvmlDeviceGetTemperature", h, 0))
        if gpu["temperature_c"] is None:
            gpu["temperature_c"] = _count(self._call("nvmlDeviceGetTemperatureV", h, 0))
        milliwatts = _count(self._call("nvmlDeviceGetPowerUsage", h))
        gpu["power_w"] = None if milliwatts is None else round(milliwatts / 1000, 1)
        use = self._call("nvmlDeviceGetUtilizationRates", h)
        if use is not None and _count(use.gpu) is not None:
            gpu["utilization_pct"] = min(int(use.gpu), 100)
        memory = self._call("nvmlDeviceGetMemoryInfo", h)
        if memory is not None and _count(memory.total):
            gpu["memory_used_mib"] = int(memory.used) >> 20
            gpu["memory_total_mib"] = int(memory.total) >> 20
        gpu["ecc"] = {
            "volatile_corrected": _count(self._call("nvmlDeviceGetTotalEccErrors", h, 0, 0)),
            "volatile_uncorrected": _count(self._call("nvmlDeviceGetTotalEccErrors", h, 1, 0)),
            "aggregate_corrected": _count(self._call("nvmlDeviceGetTotalEccErrors", h, 0, 1)),
            "aggregate_uncorrected": _count(self._call("nvmlDeviceGetTotalEccErrors", h, 1, 1)),
            "sram_threshold": self._sram_threshold(h),
        }
        rows = self._call("nvmlDeviceGetRemappedRows", h)
        if rows is not None:
            gpu["row_remap"] = {
                "correctable": _count(rows[0]), "uncorrectable": _count(rows[1]),
                "pending": bool(rows[2]), "failure": bool(rows[3]),
            }  # fmt: skip
        gpu["recovery_action"] = self._field(h, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION")
        reasons = self._call("nvmlDeviceGetCurrentClocksEventReasons", h)
        if reasons is None:  # the older name of the same call
            reasons = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", h)
        gpu["clock_event_reasons"] = _count(reasons)
        gpu["pcie_replay"] = _count(self._call("nvmlDeviceGetPcieReplayCounter", h))
        self._fabric(h, gpu)
        self._links(h, gpu)

    def _sram_threshold(self, h):
        struct = getattr(self.nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
        if struct is None:
            return None
        status = struct()
        if self._call("nvmlDeviceGetSramEccErrorStatus", h, self.byref(status)) is None:
            return None
        return bool(status.bThresholdExceeded)

    def _field(self, h, constant):
        """One field value by the name of its constant: numbers were renumbered between releases."""
        field_id = getattr(self.nvml, constant, None)
        if field_id is None:
            return None
        values = self._call("nvmlDeviceGetFieldValues", h, [field_id])
        if not values or values[0].nvmlReturn != 0:
            return None
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        kind = int(values[0].valueType)
        if kind >= len(members):
            return None
        return _count(getattr(values[0].value, members[kind], None))

    def _fabric(self, h, gpu):
        info = None
        for struct, call in (
            ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
            ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
        ):
            make = getattr(self.nvml, struct, None)
            if make is None:
                continue
            info = make()
            # By reference: the binding would hand the structure over by value, and the library would crash.
            if self._call(call, h, self.byref(info)) is not None:
                break
            info = None
        if info is None or int(info.state) == 0:  # 0 is NVML's own "not supported"
            return
        gpu["fabric_state"] = int(info.state)
        if gpu["fabric_state"] == 3:
            gpu["fabric_status"] = _count(info.status)
            gpu["fabric_health"] = int(getattr(info, "healthMask", 0)) or None

    def _links(self, h, gpu):
        up = down = unread = 0
        for link in range(int(getattr(self.nvml, "NVML_NVLINK_MAX_LINKS", 18))):
            state = self._call("nvmlDeviceGetNvLinkState", h, link)
            if state:
                up += 1
            elif state is not None:
                down += 1
            elif self.refusal in (INVALID_ARGUMENT, NOT_SUPPORTED):
                break  # there are no more links
            else:
                unread += 1
        gpu["_links"] = [up, down]
        # A PCIe card without a bridge has links that are all down, and is well: that is no reading at all.
        if up or (down and gpu["fabric_state"] is not None):
            # what could not be read may be down as well: only the links that are known to be down are told
            gpu["nvlink_down"] = down or (None if unread else 0)


def _count(value):
    """A counter or gauge of NVML; all ones is its way to say that there is none.

    From 2^63 up no count is one, and the server would refuse the whole report for it.
    """
    if value is None:
        return None
    value = int(value)
    return None if value == 0xFFFFFFFF or not -1000 <= value < 1 << 63 else value


def is_pending(reading):
    return reading["state"] == "hung" and reading["code"] == NOT_YET


def _failure(state, code, detail):
    return {"state": state, "code": code, "detail": detail, "driver": None, "count": None, "gpus": []}


def nvml_child():
    """The child's loop: a line in asks for a reading, lines out tell progress (`{"p": …}`) and the reading."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not get between the lines

    def emit(value):
        data = (json.dumps(value, separators=(",", ":")) + "\n").encode()
        while data:
            data = data[os.write(out, data) :]

    try:
        import pynvml
    except ImportError as e:
        reader, why = None, f"the module pynvml can't be imported ({e}); install nvidia-ml-py"
    else:
        reader, why = NvmlReader(pynvml, lambda where: emit({"p": where})), ""
        if not hasattr(pynvml, "nvmlDeviceGetGpuFabricInfoV"):
            sys.stderr.write("pynvml is old, or the retired package of that name: install nvidia-ml-py\n")
    while True:
        asked = os.read(0, 64)
        if not asked:  # the parent has gone
            return 0
        if reader and asked == READ_ANEW:
            reader.renews = True
        reading = reader.read() if reader else _failure("library_not_found", 12, why)
        emit({"reading": reading})
        if reading["state"] == "version_mismatch":
            return 0  # the library in this process is the old one; the next child loads what is installed now


# -------------------------------------------------------------------------------------- NVML, the parent's side


class NvmlProbe:
    """Keeper of the one child. Never waits for a process that may not die, never respawns without limit.

    A child that gives no answer in time is killed and not waited for: stuck in the driver it can't die, and as long
    as it lives no other is started. After a crash or a hang the pause before the next child doubles, up to 10
    minutes, and no more than `PER_HOUR` are started in an hour.
    """

    PER_HOUR = 20
    LONGEST_PAUSE_S = 600.0

    def __init__(self, settings, argv=None):
        self.settings = settings
        self.argv = argv or [sys.executable, os.path.abspath(__file__), "--nvml-child"]
        self.proc = None
        self.stuck = None
        self.buffer = b""
        self.asked_at = None
        self.answered = False
        self.slow = True  # whether this reading may take as long as the first
        self.where = ""
        self.trouble = None
        self.failures = 0
        self.not_before = 0.0
        self.started = collections.deque(maxlen=self.PER_HOUR)

    def read(self, wait_s=None, hurry=None, anew=False):
        """The next reading. With `wait_s`, at most so long, then one of state hung with code `NOT_YET`.

        `hurry` is an Event: once set, no more than `URGENT_WAIT_S` are waited from then on. `anew` starts the library anew
        before it is read, where no reading is awaited yet.
        """
        if self.asked_at is None:
            refusal = self._ask(READ_ANEW if anew else READ)
            if refusal:
                return refusal
        until = float("inf") if wait_s is None else time.monotonic() + wait_s
        while True:
            if hurry is not None and hurry.is_set():
                until, hurry = min(until, time.monotonic() + URGENT_WAIT_S), None
            end = min(until, self.asked_at + self._limit())
            reading = self._take(max(0.0, min(end - time.monotonic(), 0.25)))
            if reading:
                return reading
            now, limit = time.monotonic(), self._limit()
            if now >= self.asked_at + limit:
                return self._hung(limit)
            if now >= until:
                return _failure("hung", NOT_YET, f"no answer yet after {now - self.asked_at:.0f} s, at {self.where}")

    def _limit(self):
        return self.settings.nvml_init_timeout if self.slow else self.settings.nvml_timeout

    def _ask(self, what):
        if self.proc is None:
            refusal = self._spawn()
            if refusal:
                return refusal
        self.asked_at = time.monotonic()
        self.where = "start"
        self.slow = not self.answered
        try:
            self.proc.stdin.write(what)
            self.proc.stdin.flush()
        except OSError:
            pass  # it has died; _take sees the end of its output
        return None

    def _spawn(self):
        if self.stuck is not None:
            if self.stuck.poll() is None:
                return self.trouble
            self.stuck = None
        now = time.monotonic()
        if now < self.not_before:
            return self.trouble
        if len(self.started) == self.PER_HOUR and now - self.started[0] < 3600:
            return self.trouble or _failure("error", 0, "the probe was started too often in the last hour")
        self.started.append(now)
        self.answered = False
        self.buffer = b""
        try:
            self.proc = subprocess.Popen(
                self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_env(), start_new_session=True
            )
        except OSError as e:
            return self._down(_failure("error", 0, f"the probe can't be started: {e}"))
        os.set_blocking(self.proc.stdout.fileno(), False)
        return None

    def _take(self, wait_s):
        """Read what the child has written; a reading, or None."""
        fd = self.proc.stdout.fileno()
        if not select.select([fd], [], [], wait_s)[0]:
            return None
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return None
        if not data:
            return self._ended()
        self.buffer += data
        while b"\n" in self.buffer:
            line, self.buffer = self.buffer.split(b"\n", 1)
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "p" in message:
                self.where = str(message["p"])
                self.slow = self.slow or self.where in SLOW_STEPS
            elif "reading" in message:
                self.asked_at = None
                self.answered = True
                if time.monotonic() - self.started[-1] > self.LONGEST_PAUSE_S:
                    self.failures = 0  # not at once: a child that dies at every second reading isn't well
                reading = message["reading"]
                self.trouble = None if reading["state"] == "ok" else reading
                return reading
        if len(self.buffer) > 1 << 20:
            self._kill(self.proc)
            return self._gone(_failure("error", 0, "the probe wrote nonsense"))
        return None

    def _ended(self):
        """The child closed its output: dead, or about to be."""
        deadline = time.monotonic() + 1.0
        while self.proc.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        code = self.proc.poll()
        if code == 0 and self.answered:  # it left on purpose after its last answer
            self._close_pipes()
            self.proc = self.asked_at = None
            self.not_before = time.monotonic() + min(60.0, self.settings.nvml_respawn_s * 12)
            return self.trouble or _failure("error", 0, "the probe ended by itself")
        if code is None:
            self._kill(self.proc)
            detail = f"the probe closed its output, at {self.where}"
        elif code < 0:
            detail = f"the probe died of signal {-code} ({_signal_name(-code)}), at {self.where}"
        else:
            detail = f"the probe ended with {code}, at {self.where}"
        status = 0 if code is None else (code if code >= 0 else 128 - code)  # as a shell counts: 139 is SIGSEGV
        return self._gone(_failure("crashed", status, detail))

    def _hung(self, limit):
        detail = f"no answer within {limit:g} s, at {self.where}"
        self._kill(self.proc)
        return self._gone(_failure("hung", 0, detail))

    def _close_pipes(self):
        """What could not be written to a child that has ended is tried again by closing, and fails again."""
        for pipe in (self.proc.stdin, self.proc.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def _gone(self, reading):
        self._close_pipes()
        if self.proc.poll() is None:
            self.stuck = self.proc
        self.proc = self.asked_at = None
        return self._down(reading)

    def _down(self, reading):
        self.failures += 1
        pause = min(self.settings.nvml_respawn_s * 2 ** min(self.failures - 1, 12), self.LONGEST_PAUSE_S)
        self.not_before = time.monotonic() + pause
        self.trouble = reading
        log_once(("nvml", reading["state"]), f"NVML: {reading['state']}: {reading['detail']}")
        return reading

    def _kill(self, proc):
        with contextlib.suppress(OSError):
            proc.kill()

    def close(self):
        """End the child without waiting for it."""
        if self.proc is not None:
            self._close_pipes()
            self._kill(self.proc)
            deadline = time.monotonic() + 1.0
            while self.proc.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            self.proc = None


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


# ----------------------------------------------------------------------------------------------- the inventory


class Inventory:
    """Which GPUs this machine had when it was well, so that a lost one can still be named.

    Kept on disk with the machine's identity: an image made from a node must not carry its GPUs to another one, and
    an instance that was stopped and started runs on other hardware.
    """

    def __init__(self, path, machine, boot_id, save=True):
        self.path, self.machine, self.boot_id, self.save = path, machine, boot_id, save
        stored = read_json(path) if path else {}
        self.known = []
        self.known_boot = boot_id
        if stored.get("machine") == machine and isinstance(stored.get("gpus"), list):
            self.known = [
                g for g in stored["gpus"] if isinstance(g, dict) and g.get("uuid") and isinstance(g.get("index"), int)
            ]
            self.known_boot = stored.get("boot_id")

    def complete(self, reading):
        """Names what a reading could not name, lists GPUs that NVML no longer counts, and learns. Returns GPUs.

        Where NVML counts none at all, none is listed: the state of each is unknown then.
        """
        gpus = reading["gpus"]
        if reading["state"] != "ok":
            return gpus
        seen = {g["uuid"] for g in gpus if g["uuid"]}
        remembered = {k["uuid"] for k in self.known}
        if self.known_boot != self.boot_id and seen and not (seen & remembered):
            self.known = []  # other hardware since the last boot
        if reading["count"] == 0:
            return gpus  # "no devices" is the driver's trouble first, and nothing that any single GPU did
        missing = [k for k in self.known if k["uuid"] not in seen]
        nameless = [g for g in gpus if not g["uuid"]]
        # By index first: it is stable within a boot. What is left over is paired only if there is no choice.
        for gpu in list(nameless):
            match = next((k for k in missing if k.get("index") == gpu["index"]), None)
            if match is None and len(nameless) == 1 and len(missing) == 1:
                match = missing[0]
            if match is not None and self.known_boot != self.boot_id and len(missing) > len(nameless):
                match = None  # order may have changed with the boot
            if match is not None:
                for key in ("uuid", "serial", "name", "pci"):
                    gpu[key] = gpu[key] or match.get(key)
                missing.remove(match)
                nameless.remove(gpu)
        if not nameless:
            # NVML doesn't count these at all any more.
            # The remembered index may be another GPU's by now.
            used = {g["index"] for g in gpus}
            free = (i for i in range(len(gpus) + len(missing) + 1) if i not in used)
            gpus = gpus + [
                empty_gpu(k["index"] if k.get("index") not in used else next(free), "lost", 28, k) for k in missing
            ]
        self._learn(gpus)
        return gpus

    def _learn(self, gpus):
        fresh = [{k: g[k] for k in ("index", "uuid", "serial", "name", "pci")} for g in gpus if g["uuid"]]
        if len(fresh) >= len(self.known) and (fresh != self.known or self.known_boot != self.boot_id):
            self.known, self.known_boot = fresh, self.boot_id
            if self.path and self.save:
                with contextlib.suppress(OSError):
                    write_json(self.path, {"machine": self.machine, "boot_id": self.boot_id, "gpus": self.known})


def machine_identity(sysfs):
    """What tells this machine from a copy of its disk: on EC2's Nitro the asset tag is the instance id."""
    for path in (os.path.join(sysfs, "devices/virtual/dmi/id/board_asset_tag"), "/etc/machine-id"):
        text = read_text(path, 256)
        if text and text not in ("Not Specified", "Amazon EC2"):
            return text
    return socket.gethostname()


# ---------------------------------------------------------------------------------------------- the kernel log

#: kmsg record: "priority,sequence,microseconds,flags[,…];text"
RECORD = re.compile(r"^(\d+),(\d+),(\d+),[^;]*;(.*)$", re.S)
OF_INTEREST = re.compile(
    r"^(?:NVRM\b|nvidia-nvswitch\d*\b|nvidia-modeset: (?:ERROR|WARNING)"
    r"|(?:pcieport|nvidia) [0-9a-f:.]+: |pciehp [0-9a-f:.]+|pci [0-9a-f:.]+: AER|AER: |\{\d+\}\[Hardware Error\])"
)
URGENT = re.compile(r"^NVRM: (?:Xid\b|GPU .*fallen off the bus)|^nvidia-nvswitch.*\bSXid\b|fallen off the bus")
GSP_HEADER = re.compile(r"^NVRM: Xid \(.*?\): (?:119|120)\b")
#: Lines of a stack trace that follow an Xid 119 or 120 and carry no prefix.
TRACE = re.compile(
    r"^(?:CPU: |Hardware name|Workqueue: |Call Trace|Tainted|Code: |RIP: |RSP: |R[A-Z0-9]{2}: |[A-Z]{2,3}[0-9]*: "
    r"|<?/?TASK>|\s|\? |[\w.]+\+0x)"
)
XID = re.compile(r"^NVRM: Xid \(.*?\): (\d+)")


class Kmsg(threading.Thread):
    """Follows /dev/kmsg (or a file or FIFO of the same records) and keeps the lines of interest.

    `cursor` is the sequence of the last record that was already handed over in this boot, or None. The text is the
    kernel's own, with its \\xNN escapes left in place: a process name may hold a line feed, and unescaped it could
    begin a line of its own.
    """

    def __init__(self, path, cursor=None, on_urgent=lambda: None):
        super().__init__(name="kmsg", daemon=True)
        self.path, self.cursor, self.on_urgent = path, cursor, on_urgent
        self.lock = threading.Lock()
        self.pending = collections.deque()
        self.recent = collections.deque(maxlen=200)  # for diagnose-1 and bug-report
        self.xids = collections.Counter()
        self.lost_lines = 0
        self.overrun = False
        self.blind = False
        self.last_seq = cursor
        self.first = True
        self.trace_until = None
        self.caught_up = threading.Event()
        self.stopping = False
        self.offset = 0.0

    def run(self):
        while not self.stopping:
            try:
                self._follow()
            except Exception as e:  # whatever it is, silence must not look like a quiet kernel
                self.blind = True
                self.caught_up.set()
                log_once(("kmsg", type(e)), f"the kernel log {self.path} can't be read: {e}")
                self._sleep(5)

    def _sleep(self, seconds):
        deadline = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < deadline:
            time.sleep(min(0.1, seconds))

    def _follow(self):
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self.blind = False
            is_device = stat.S_ISCHR(os.fstat(fd).st_mode)
            rest = b""
            while not self.stopping:
                try:
                    data = os.read(fd, 16384)
                except BlockingIOError:
                    self.caught_up.set()
                    select.select([fd], [], [], 0.5)
                    continue
                except OSError as e:
                    if e.errno == errno.EPIPE:  # records were overwritten before we read them
                        with self.lock:
                            self.overrun = True
                        continue
                    raise
                if is_device:
                    self._record(data)
                elif data:
                    lines = (rest + data).split(b"\n")
                    rest = lines.pop()[-16384:]
                    for line in lines:
                        self._record(line)
                else:
                    self.caught_up.set()
                    self._sleep(0.2)
                    if _replaced(fd, self.path):
                        return
        finally:
            os.close(fd)

    def _record(self, data):
        """Take one record; lines that begin with a space are its dictionary and not part of the text."""
        match = RECORD.match(data.split(b"\n", 1)[0].decode("utf-8", "replace"))
        if not match:
            return
        priority, seq, micros, text = int(match[1]), int(match[2]), int(match[3]), match[4]
        facility, level = priority >> 3, priority & 7
        # Wall time of a record: its time since boot plus the difference of the clocks, which a small drift doesn't
        # change (one burst stays together) and a step does (at boot the clock may be wrong until it is synchronised).
        offset = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        if abs(offset - self.offset) > 0.5:
            self.offset = offset
        with self.lock:
            if self.first:
                self.first = False
                if self.cursor is not None and seq > self.cursor + 1:
                    self.overrun = True  # the kernel's buffer went round while nobody was reading
            if not self._interesting(facility, micros, text):
                if self.last_seq is None or seq > self.last_seq:
                    self.last_seq = seq
                return
            line = {
                "seq": seq, "at": iso(micros / 1e6 + self.offset), "facility": facility, "level": level,
                "text": text[:4000],
            }  # fmt: skip
            self.recent.append(line)
            xid = XID.match(text) if facility == 0 else None
            if xid:
                self.xids[int(xid[1])] += 1
            if self.last_seq is not None and seq <= self.last_seq:
                return  # handed over before
            self.last_seq = seq
            same = sum(1 for p in self.pending if p["text"] == text) if len(self.pending) < 64 else self._repeats(text)
            if same >= SAME_LINE_PER_REPORT:
                return
            if len(self.pending) >= KERNEL_PENDING:
                self.lost_lines += 1
                self.overrun = True
                return
            self.pending.append(line)
        if facility == 0 and URGENT.search(text):
            self.on_urgent()

    def _repeats(self, text):
        """Equal lines among the newest ones: a flood is many times the same."""
        newest = len(self.pending)
        return sum(1 for i in range(newest - 1, newest - 65, -1) if self.pending[i]["text"] == text)

    def _interesting(self, facility, micros, text):
        if OF_INTEREST.match(text):
            if facility == 0 and GSP_HEADER.match(text):
                self.trace_until = (micros + 200_000, 80)
            return True
        if self.trace_until and facility == 0:
            until, left = self.trace_until
            if micros <= until and left and TRACE.match(text):
                self.trace_until = (until, left - 1)
                return True
        return False

    def take(self, limit=KERNEL_PER_REPORT):
        """Lines for the next report: (lines, overrun, cursor after them, whether more wait)."""
        with self.lock:
            lines, room = [], KERNEL_BYTES
            while self.pending and len(lines) < limit:
                room -= len(json.dumps(self.pending[0]))
                if room < 0 and lines:
                    break
                lines.append(self.pending.popleft())
            overrun, self.overrun = self.overrun or self.blind, False
            more = bool(self.pending)
            cursor = lines[-1]["seq"] if more and lines else self.last_seq
            return lines, overrun, cursor, more

    def snapshot(self):
        """(newest lines, Xid -> count since boot) without taking anything."""
        with self.lock:
            return list(self.recent), dict(self.xids)


def _replaced(fd, path):
    """Whether the file was rotated or cut while it was being followed."""
    try:
        here, there = os.fstat(fd), os.stat(path)
    except OSError:
        return False
    if not stat.S_ISREG(here.st_mode):
        return False
    return here.st_ino != there.st_ino or there.st_size < os.lseek(fd, 0, os.SEEK_CUR)


# ----------------------------------------------------------------------------------------------- other readings


def efa_devices(sysfs):
    """Number of EFA devices; None where that can't be known (no view of /sys)."""
    base = os.path.join(sysfs, "class/infiniband")
    try:
        names = os.listdir(base)
    except FileNotFoundError:
        return 0 if os.path.isdir(os.path.join(sysfs, "class")) else None
    except OSError:
        return None
    count = 0
    for name in names:
        driver = os.path.join(base, name, "device/driver")
        if not os.path.exists(driver) or os.path.basename(os.path.realpath(driver)) == "efa":
            count += 1
    return count


def pci_gpus(sysfs):
    """NVIDIA GPUs that the PCI bus shows, driver or no driver; None where /sys can't be read."""
    base = os.path.join(sysfs, "bus/pci/devices")
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return None
    found = []
    for name in names:
        vendor = read_text(os.path.join(base, name, "vendor"), 16)
        klass = read_text(os.path.join(base, name, "class"), 16) or ""
        if vendor == "0x10de" and klass.startswith(("0x0300", "0x0302")):
            found.append(name.rsplit(".", 1)[0])
    return found


def uptime_s():
    return round(time.clock_gettime(time.CLOCK_BOOTTIME), 1)


def driver_version():
    """The loaded kernel module's version, for when NVML doesn't tell it."""
    match = re.search(r"Kernel Module.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", read_text("/proc/driver/nvidia/version") or "")
    return match[1] if match else None


class Recorder:
    """The flight recorder: the last 15 minutes of a few readings per GPU, in bounded memory."""

    FIELDS = ("temperature_c", "power_w", "utilization_pct", "clock_event_reasons", "pcie_replay")
    EXTRA = ("ecc_volatile_corrected", "ecc_volatile_uncorrected", "row_remap_uncorrectable")

    def __init__(self, interval):
        self.samples = collections.deque(maxlen=max(4, min(180, int(RECORDER_S / max(interval, 1)) + 1)))

    def add(self, at, gpus):
        row = {}
        for g in gpus:
            if g["uuid"] and g["status"] == "ok":
                row[g["uuid"]] = (
                    *(g[f] for f in self.FIELDS),
                    g["ecc"]["volatile_corrected"], g["ecc"]["volatile_uncorrected"], g["row_remap"]["uncorrectable"],
                )  # fmt: skip
        self.samples.append((at, row))

    def dump(self, now):
        names = self.FIELDS + self.EXTRA
        return [
            {"at": iso(at), "gpus": {uuid: {n: values[i] for i, n in enumerate(names)} for uuid, values in row.items()}}
            for at, row in self.samples
            if now - at <= RECORDER_S
        ]


def worst_signs(reading, gpus):
    """A set of plain facts that are bad; a new member means that something broke just now."""
    signs = set()
    if reading["state"] != "ok":
        signs.add(("nvml", reading["state"]))
    elif not reading["count"]:
        signs.add(("nvml", "no GPUs"))
    for g in gpus:
        who = g["uuid"] or g["index"]
        if g["status"] != "ok":
            signs.add((who, g["status"]))
        if g["recovery_action"]:
            signs.add((who, "recovery", g["recovery_action"]))
        remap = g["row_remap"]
        signs.update((who, k) for k in ("pending", "failure") if remap[k])
        if remap["uncorrectable"]:
            signs.add((who, "remapped", remap["uncorrectable"]))
        if g["ecc"]["volatile_uncorrected"]:
            signs.add((who, "ecc", g["ecc"]["volatile_uncorrected"]))
        if g["ecc"]["sram_threshold"]:
            signs.add((who, "sram"))
        if g["nvlink_down"]:
            signs.add((who, "links", g["nvlink_down"]))
    return signs


# --------------------------------------------------------------------------------------------- the local checks


def check(name, ok, detail):
    """One line of a check: `ok` is True, False or None (can't be said)."""
    return {"name": name, "ok": ok, "detail": detail}


def _who(gpu):
    return f"GPU {gpu['index']} {gpu['uuid'] or gpu['pci'] or ''}".strip()


def quick_checks(settings, reading, gpus, kernel):
    """What can be said from readings alone. `kernel` is (newest lines, Xid counts), or None if there is no log."""
    state = reading["state"]
    expected, source = settings.expected()
    on_bus = pci_gpus(settings.sysfs)
    no_driver = ("library_not_found", "driver_not_loaded")
    if state in no_driver and not expected and not on_bus and (expected == 0 or on_bus is not None):
        return [check("gpu_count", True, "no GPU in this machine")]
    out = [check("nvml", state == "ok", f"{state} {reading['detail']}".strip())]
    known = state == "ok"
    seen = [g for g in gpus if g["status"] == "ok"]
    if not known:
        out.append(check("gpu_count", None, f"NVML is {state}"))
    elif expected is not None:
        out.append(check("gpu_count", len(seen) == expected, f"{len(seen)} of {expected} ({source})"))
    else:
        lost = [g for g in gpus if g["status"] != "ok"]
        out.append(check("gpu_count", False if lost else None, f"{len(seen)} of {len(gpus)} remembered; {source}"))
    want = expected if expected is not None else (reading["count"] if known else None)
    if on_bus is None or want is None:
        out.append(check("pci", None, "the PCI bus can't be seen" if on_bus is None else f"{len(on_bus)} on the bus"))
    else:
        out.append(check("pci", len(on_bus) == want, f"{len(on_bus)} of {want} on the bus"))
    if known:
        out.extend(_gpu_checks(settings, gpus))
    out.append(_kernel_check(kernel))
    return out


def _gpu_checks(settings, gpus):
    out = []

    def add(name, bad, none_known, good):
        out.append(check(name, False if bad else (None if none_known else True), "; ".join(bad) or good))

    add("gpu_status", [f"{_who(g)}: {g['status']} (code {g['code']})" for g in gpus if g["status"] != "ok"],
        not gpus, "every GPU answers")  # fmt: skip
    remaps = [g["row_remap"] for g in gpus]
    pending = sum(1 for r in remaps if r["pending"])
    add("row_remap", [f"{_who(g)}: remapping has failed" for g in gpus if g["row_remap"]["failure"]],
        all(r["failure"] is None for r in remaps),
        f"no failure, {pending or 'none'} pending" + " (done at the next reset)" * bool(pending))  # fmt: skip
    actions = {1: "GPU reset", 2: "node reboot", 3: "drain peer-to-peer", 4: "drain and reset", 5: "recover IMEX"}
    add("recovery_action",
        [f"{_who(g)}: {actions.get(g['recovery_action'], g['recovery_action'])}" for g in gpus if g["recovery_action"]],
        all(g["recovery_action"] is None for g in gpus), "none wanted")  # fmt: skip
    add("sram", [f"{_who(g)}: SRAM error threshold exceeded" for g in gpus if g["ecc"]["sram_threshold"]],
        all(g["ecc"]["sram_threshold"] is None for g in gpus), "below the threshold")  # fmt: skip
    joined = NVLINK_TYPES.match(settings.instance_type or "")
    unread = [_who(g) for g in gpus if g["nvlink_down"] is None]
    bad = [f"{_who(g)}: {g['nvlink_down']} NVLink down" for g in gpus if g["nvlink_down"]]
    for g in gpus if joined else ():
        up, down = g.get("_links", (0, 0))
        if down and not up and not g["nvlink_down"]:
            bad.append(f"{_who(g)}: none of {down} NVLinks is up")
    none_known = bool(unread) if joined else len(unread) == len(gpus)
    add("links", bad, none_known, "not read: " + (", ".join(unread) or "no GPU") if none_known else "all links up")
    bad = []
    for g in gpus:
        if g["fabric_state"] in (1, 2):
            bad.append(f"{_who(g)}: fabric not ready (state {g['fabric_state']})")
        elif g["fabric_status"]:
            bad.append(f"{_who(g)}: fabric failed (code {g['fabric_status']})")
        elif fabric_faults(g["fabric_health"]):
            bad.append(f"{_who(g)}: fabric health: {', '.join(fabric_faults(g['fabric_health']))}")
    add("fabric", bad, all(g["fabric_state"] is None for g in gpus), "ready")
    return out


def fabric_faults(mask):
    """The faults in a fabric health mask: two bits a field, 1 is a fault and 2 is healthy; None has none."""
    if not mask:
        return []
    names = {0: "bandwidth", 2: "route recovery", 4: "route unhealthy", 6: "access time-out", 12: "partition"}
    out = [name for shift, name in names.items() if (mask >> shift) & 3 == 1]
    if (mask >> 8) & 15 >= 2:
        out.append("configuration")
    return out


def _kernel_check(kernel):
    if kernel is None:
        return check("kernel_log", None, "the kernel log can't be read")
    lines, xids = kernel
    lost = any(x["facility"] == 0 and "fallen off the bus" in x["text"] for x in lines)
    serious = sorted(n for n in xids if n in SERIOUS_XIDS)
    words = ", ".join(f"Xid {n} x{xids[n]}" for n in sorted(xids)) or "no Xid since boot"
    return check("kernel_log", not (serious or lost), words + (", a GPU has fallen off the bus" if lost else ""))


def disk_check(paths):
    worst, ok = [], True
    for path in paths:
        try:
            use = shutil.disk_usage(path)
        except OSError:
            continue
        worst.append(f"{path} {use.free / 1e9:.1f} GB free of {use.total / 1e9:.1f}")
        ok = ok and use.free > max(1e9, 0.05 * use.total)
    return check("disk", ok if worst else None, "; ".join(worst) or "no file system could be asked")


def run_command(argv, limit_s):
    """Run a fixed command without a shell: (exit status or None, its output, cut to `OUTPUT_LIMIT`).

    A command that does not end in time is killed and not waited for: it may hang in the driver for ever.
    """
    with tempfile.TemporaryFile() as out:
        try:
            proc = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=clean_env(),
                start_new_session=True,
            )  # fmt: skip
        except OSError as e:
            return None, f"{argv[0]} can't be started: {e}"
        deadline, note = time.monotonic() + limit_s, ""
        while proc.poll() is None:
            if time.monotonic() > deadline:
                note = f"\n[{argv[0]} did not end within {limit_s:g} s and was killed]"
            elif os.fstat(out.fileno()).st_size > 64 * OUTPUT_LIMIT:
                note = f"\n[{argv[0]} wrote too much and was killed]"
            if note:
                with contextlib.suppress(OSError):
                    os.killpg(proc.pid, signal.SIGKILL)
                for _ in range(20):
                    if proc.poll() is not None:
                        break
                    time.sleep(0.05)
                break
            time.sleep(0.05)
        size = os.fstat(out.fileno()).st_size
        text = os.pread(out.fileno(), OUTPUT_LIMIT // 2, 0)
        if size > len(text):
            start = max(len(text), size - OUTPUT_LIMIT // 4)
            text += b"\n[cut]\n" + os.pread(out.fileno(), OUTPUT_LIMIT // 4, start)
        return (None if note else proc.returncode), text.decode("utf-8", "replace") + note


#: What dcgmi says when it could not test at all, which is no word about the GPUs.
DCGM_NOT_RUN = re.compile(
    r"(?i)unable to (?:establish a connection|connect)|error: .*(?:connection|hostengine)|host ?engine is not running"
    r"|cannot (?:connect|load)|no (?:supported )?gpus? (?:found|available)|unable to retrieve|in use|already running"
)


def dcgm_diag(level, limit_s):
    """(check, exit or None, output) of `dcgmi diag -r LEVEL`; a diagnostic that did not run says nothing."""
    tool = shutil.which("dcgmi")
    if not tool:
        return check("dcgm", None, "dcgmi is not installed on this node; nothing was tested"), None, ""
    status, text = run_command([tool, "diag", "-r", str(level)], limit_s)
    if status is None:
        return check("dcgm", None, f"dcgmi diag -r {level} did not finish"), None, text
    if status == 0:
        return check("dcgm", True, f"dcgmi diag -r {level} passed"), 0, text
    if DCGM_NOT_RUN.search(text) and not re.search(r"\|\s*Fail\b", text):
        return check("dcgm", None, f"dcgmi diag -r {level} could not run (exit {status})"), status, text
    return check("dcgm", False, f"dcgmi diag -r {level} failed (exit {status})"), status, text


def overall(checks):
    """False if a check failed, True if some passed and none failed, None if nothing could be said."""
    values = [c["ok"] for c in checks]
    return False if False in values else (True if True in values else None)


def lines_of(checks):
    word = {True: "PASS", False: "FAIL", None: "SKIP"}
    return [f"{word[c['ok']]} {c['name']}: {c['detail']}" for c in checks]


# ---------------------------------------------------------------------------------------- requests of the server


class Requests(threading.Thread):
    """Runs the verbs of the closed list, one at a time, each request once. Nothing of a request but its id is used."""

    QUEUE = 8

    def __init__(self, view, store, done):
        """`view()` gives what the checks look at, `store` keeps ids over a restart, `done()` is told of a result."""
        super().__init__(name="requests", daemon=True)
        self.view, self.store, self.done = view, store, done
        self.lock = threading.Lock()
        self.wake = threading.Event()
        self.queue = collections.deque()
        self.results = []
        self.ignored = 0
        self.stopping = False
        for entry in store.interrupted():
            self.results.append(
                self._result(entry["id"], entry["verb"], entry.get("at") or iso(time.time()), None, None,
                             "the reporter was restarted while this ran", [])
            )  # fmt: skip

    def offer(self, items):
        """Take the server's requests; whatever is not exactly an id and a known verb is ignored and counted."""
        if not isinstance(items, list):
            self.ignored += items is not None
            return
        for item in items:
            known = (
                isinstance(item, dict)
                and set(item) == {"id", "verb"}
                and isinstance(item["id"], str)
                and re.fullmatch(r"[\w.:-]{1,64}", item["id"])
                and item["verb"] in VERBS
            )
            if not known:
                self.ignored += 1
                log_once("verb", "a request of the server is not on the list of verbs and was ignored")
                continue
            with self.lock:
                if self.store.seen(item["id"]):
                    continue
                if len(self.queue) >= self.QUEUE:
                    continue  # not remembered, so it is taken when it is asked for again
                self.store.begin(item["id"], item["verb"])
                self.queue.append((item["id"], item["verb"]))
            self.wake.set()

    def take(self):
        """Results for one report; what has no room in it waits for the next."""
        with self.lock:
            taken, room = 0, RESULT_BYTES
            for result in self.results[:8]:
                room -= len(json.dumps(result))
                if room < 0 and taken:
                    break
                taken += 1
            results, self.results = self.results[:taken], self.results[taken:]
            return results

    def run(self):
        while not self.stopping:
            self.wake.wait(1.0)
            self.wake.clear()
            while self.queue and not self.stopping:
                request, verb = self.queue.popleft()
                started = iso(time.time())
                try:
                    ok, status, output, checks = self.perform(verb)
                except Exception as e:  # a result in any case: the server waits for it
                    ok, status, output, checks = None, None, f"{verb} broke down: {type(e).__name__}: {e}", []
                with self.lock:
                    self.results.append(self._result(request, verb, started, ok, status, output, checks))
                self.done()

    @staticmethod
    def _result(request, verb, started, ok, status, output, checks):
        data = output.encode("utf-8", "replace")
        if len(data) > OUTPUT_LIMIT:
            output = data[: OUTPUT_LIMIT - 16].decode("utf-8", "ignore") + "\n[cut]"
        return {
            "request": request, "verb": verb, "started_at": started, "finished_at": iso(time.time()),
            "ok": ok, "exit": status, "output": output, "checks": checks,
        }  # fmt: skip

    def perform(self, verb):
        """(ok, exit, output, checks) of one verb."""
        if verb == "diagnose-1":
            settings, reading, gpus, kernel, _ = self.view()
            checks = quick_checks(settings, reading, gpus, kernel)
            checks.append(disk_check(["/", settings.state_dir]))
            dcgm, _, text = dcgm_diag(1, 300)
            checks.append(dcgm)
            ok = overall(checks)
            return ok, 1 if ok is False else 0, "\n".join(lines_of(checks)) + ("\n\n" + text if text else ""), checks
        if verb == "diagnose-2":
            dcgm, status, text = dcgm_diag(2, 1800)
            return dcgm["ok"], status, text or dcgm["detail"], [dcgm]
        if verb == "bug-report":
            return True, 0, bug_report(*self.view()), []
        raise ValueError("not a verb")


def bug_report(settings, reading, gpus, kernel, counters):
    """A bounded text for a vendor's support case; holds no credential."""
    modules = (read_text("/proc/modules", 1 << 18) or "").splitlines()
    out = [
        f"healthboard-node {VERSION}, {iso(time.time())}, up {uptime_s()} s, boot {settings.boot_id}",
        f"instance type {settings.instance_type}, kernel {' '.join(os.uname()[i] for i in (2, 3, 4))}",
        *(read_text("/etc/os-release") or "").splitlines()[:4],
        "",
        "== driver", read_text("/proc/driver/nvidia/version") or "no /proc/driver/nvidia/version",
        *[x for x in modules if x.startswith(("nvidia", "efa", "ib_"))],
        "", "== NVML", json.dumps({k: reading[k] for k in ("state", "code", "detail", "driver", "count")}),
        *[json.dumps(g, separators=(",", ":")) for g in gpus],
        "", "== checks", *lines_of([*quick_checks(settings, reading, gpus, kernel), disk_check(["/"])]),
        "", "== PCI",
    ]  # fmt: skip
    for slot in pci_gpus(settings.sysfs) or []:
        base = os.path.join(settings.sysfs, "bus/pci/devices", slot + ".0")
        facts = [f"{n}={read_text(os.path.join(base, n), 64)}" for n in ("current_link_speed", "current_link_width")]
        out.append(f"{slot} {' '.join(facts)}")
    out += ["", "== reporter", json.dumps(counters, sort_keys=True), "", "== kernel log"]
    for line in kernel[0] if kernel else []:
        out.append(f"{line['at']} {line['seq']} <{line['facility']}.{line['level']}> {line['text']}")
    return "\n".join(out)


# ------------------------------------------------------------------------------------ what must survive a restart


class Store:
    """The small state on disk: cursor of the kernel log, number of the last report, requests already done."""

    def __init__(self, path, boot_id):
        self.path, self.boot_id = path, boot_id
        self.lock = threading.Lock()
        stored = read_json(path) if path else {}
        same = stored.get("boot_id") == boot_id
        self.kmsg_seq = stored.get("kmsg_seq") if same else None
        # The count is never behind the uptime, so that numbers used before the state was lost, or while a full disk did
        # not take it, aren't used again in this boot (there is never more than one report a second on average).
        self.report_seq = max(stored.get("report_seq", 0) if same else 0, int(uptime_s()))
        #: kernel lines went with a report that was dropped, and no report has told it yet
        self.kernel_lost = same and stored.get("kernel_lost") is True
        self.requests = [r for r in stored.get("requests", []) if isinstance(r, dict) and r.get("id")]

    def seen(self, request):
        return any(r["id"] == request for r in self.requests)

    def interrupted(self):
        return [r for r in self.requests if not r.get("done")]

    def begin(self, request, verb):
        with self.lock:
            self.requests = [*self.requests[-255:], {"id": request, "verb": verb, "at": iso(time.time())}]
        self.save()

    def finish(self, requests):
        for r in self.requests:
            if r["id"] in requests:
                r["done"] = True

    def save(self):
        if not self.path:
            return
        with self.lock:
            try:
                write_json(
                    self.path,
                    {"boot_id": self.boot_id, "kmsg_seq": self.kmsg_seq, "report_seq": self.report_seq,
                     "kernel_lost": self.kernel_lost, "requests": self.requests},
                )  # fmt: skip
            except OSError as e:
                log_once("store", f"the state can't be kept in {self.path}: {e}")


ROUTINE, CHANGE, NEWS = range(3)


def _worth(line):
    """What a spooled report tells: nothing new, that something has just broken, or kernel lines or results."""
    if b'"kernel":[]' in line and b'"results":[]' in line:
        return ROUTINE if b'"recorder":[]' in line else CHANGE
    return NEWS


def _tells_kernel(line):
    """Whether a report speaks of the kernel log: lines of it, or that some are missing."""
    return b'"kernel":[]' not in line or b'"kernel_overrun":true' in line


def _without_recorder(line):
    """A spooled report without its flight recording."""
    if b'"recorder":[]' in line:
        return line
    try:
        return _packed({**json.loads(line), "recorder": []})
    except ValueError:
        return line


def _packed(report):
    return json.dumps(report, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


class Spool:
    """Reports in order on disk until the server has them, never more than `max_bytes`.

    When it is full, reports that tell nothing new (no kernel line, no result, all well) go first, then the flight
    recordings of the oldest, then the oldest. `kernel_lost` says that kernel lines went with one that was dropped.
    """

    def __init__(self, directory, max_bytes):
        self.path = os.path.join(directory, "spool.jsonl")
        self.mark = os.path.join(directory, "spool.offset")
        self.max_bytes = max_bytes
        self.lock = threading.Lock()
        self.generation = 0
        self.dropped = 0
        self.kernel_lost = False
        #: the newest reports, longer than for a moment only while the disk takes nothing
        self.memory = collections.deque(maxlen=100)
        self.size = self._whole_lines()
        try:
            self.offset = min(int(read_text(self.mark, 32) or 0), self.size)
        except ValueError:
            self.offset = 0

    def append(self, report):
        with self.lock:
            if len(self.memory) == self.memory.maxlen:
                self.dropped += 1
                self.kernel_lost |= _tells_kernel(self.memory[0])
            self.memory.append(_packed(report))
            try:
                while self.memory:  # what had to wait goes out first: reports stay in order
                    self._write(self.memory[0])
                    self.memory.popleft()
                said("disk")
            except OSError as e:
                log_once("disk", f"a report can't be spooled, the newest 100 are kept in memory: {e}")
                with contextlib.suppress(OSError):
                    os.truncate(self.path, self.size)

    def _write(self, line):
        if self.size + len(line) > self.max_bytes:
            self._shrink(max(0, self.max_bytes - len(line)))
        with open(self.path, "ab") as f:
            f.write(line)
        self.size += len(line)

    def refused(self, line):
        """The server can't take this report: what it said of the kernel log is lost."""
        with self.lock:
            self.kernel_lost |= _tells_kernel(line)

    def take_kernel_lost(self):
        """Whether kernel lines were lost with a report since this was asked last."""
        with self.lock:
            lost, self.kernel_lost = self.kernel_lost, False
            return lost

    def _whole_lines(self):
        """Size of the file, after a line that a crash left unfinished is cut off."""
        try:
            with open(self.path, "rb+") as f:
                size = f.seek(0, os.SEEK_END)
                end = size
                while end:
                    start = max(0, end - 65536)
                    f.seek(start)
                    cut = f.read(end - start).rfind(b"\n")
                    if cut >= 0:
                        end = start + cut + 1
                        break
                    end = start
                if end != size:
                    f.truncate(end)
                return end
        except OSError:
            return 0

    def _shrink(self, room):
        """Rewrite with what is not sent yet, cut to half of the room. Runs in constant memory."""
        with open(self.path, "rb") as f:
            found, drop, bare = self._unsent(f), set(), {}
            total, goal = sum(length for _, length, _, _ in found), room // 2
            for i, (_, length, worth, _) in enumerate(found):
                if total > goal and worth == ROUTINE:
                    drop.add(i)
                    total -= length
            for i, (start, length, _, _) in enumerate(found):
                if total > goal and i not in drop:
                    f.seek(start)
                    bare[i] = len(_without_recorder(f.read(length)))
                    total -= length - bare[i]
            for i, (_, length, _, _) in enumerate(found):
                if total > goal and i not in drop:
                    drop.add(i)
                    total -= bare.get(i, length)
            self._rewrite(f, found, drop, bare)
        if drop:
            log_once("spool", "the spool is full; reports are being dropped, those without news first")

    def thin(self):
        """Leave out what the server won't have for long, and what would keep it from a new Xid: all that tells nothing
        new but the newest report, and of what tells a change alone all but the first and the three newest."""
        with self.lock, contextlib.suppress(OSError), open(self.path, "rb") as f:
            found = self._unsent(f)
            drop = {i for i, told in enumerate(found[:-1]) if told[2] == ROUTINE}
            drop.update([i for i, told in enumerate(found[:-1]) if told[2] == CHANGE][1:-3])
            if drop:
                self._rewrite(f, found, drop, ())

    def _unsent(self, f):
        """(offset, length, worth, whether it speaks of the kernel log) of each report that is not sent yet."""
        f.seek(self.offset)
        at, found = self.offset, []
        for line in f:
            found.append((at, len(line), _worth(line), _tells_kernel(line)))
            at += len(line)
        return found

    def _rewrite(self, f, found, drop, bare):
        """Replace the file by what was `found` in it, without what to `drop`, and without the recordings of `bare`."""
        with open(self.path + ".tmp", "wb") as out:
            for i, (start, length, _, _) in enumerate(found):
                if i not in drop:
                    f.seek(start)
                    line = f.read(length)
                    out.write(_without_recorder(line) if i in bare else line)
        os.replace(self.path + ".tmp", self.path)
        self.dropped += len(drop)
        self.kernel_lost |= any(found[i][3] for i in drop)
        self.offset, self.size = 0, os.path.getsize(self.path)
        self.generation += 1
        self._save_mark()

    def peek(self):
        """(report's bytes, token for `done`), or None if all is sent."""
        with self.lock:
            if self.offset >= self.size:
                return (self.memory[0].rstrip(b"\n"), (-1, self.memory[0])) if self.memory else None
            try:
                with open(self.path, "rb") as f:
                    f.seek(self.offset)
                    line = f.readline()
            except FileNotFoundError:
                line = b""
            if not line:  # somebody emptied the file
                self.offset = self.size = 0
                return None
            return line.rstrip(b"\n"), (self.generation, self.offset + len(line))

    def done(self, token):
        """The report of `peek` is delivered, or can't be."""
        with self.lock:
            if token[0] == -1:
                with contextlib.suppress(ValueError):
                    self.memory.remove(token[1])
                return
            if token[0] != self.generation:
                return  # rewritten meanwhile; it may go twice, which the server takes for a duplicate
            self.offset = token[1]
            if self.offset >= self.size:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, 0)
                    self.offset = self.size = 0
            self._save_mark()

    def _save_mark(self):
        with contextlib.suppress(OSError):
            with open(self.mark + ".tmp", "w", encoding="ascii") as f:
                f.write(str(self.offset))
            os.replace(self.mark + ".tmp", self.mark)

    def last_seq(self, boot_id):
        """Number of the newest spooled report of this boot, or 0."""
        last = b""
        if self.size:
            with open(self.path, "rb") as f:
                for line in f:
                    last = line
        try:
            report = json.loads(last)
            return int(report["seq"]) if report["boot_id"] == boot_id else 0
        except (ValueError, KeyError, TypeError):
            return 0


class Sender(threading.Thread):
    """Posts what is in the spool, oldest first, and hands the answers on."""

    def __init__(self, settings, spool, answered):
        super().__init__(name="sender", daemon=True)
        self.settings, self.spool, self.answered = settings, spool, answered
        self.target = check_url(settings.url)
        self.wake = threading.Event()
        self.stopping = False
        self.failures = 0
        self.refused = 0
        self.tls = None
        self.identity = Identity(settings)

    def run(self):
        while not self.stopping:
            try:
                self._next()
            except Exception as e:  # a disk or an answer that nobody foresaw must not end the reporting
                log_once(("sender", type(e)), f"sending stumbled: {type(e).__name__}: {e}")
                self._pause(max(1.0, self._backoff()))

    def _next(self):
        item = self.spool.peek()
        if item is None:
            self.wake.wait(60)
            self.wake.clear()
            return
        outcome, delay = self.deliver(_not_ahead(item[0]))
        if outcome == "retry":
            self._pause(delay)
            return
        self.failures = 0
        self.spool.done(item[1])

    def _pause(self, delay):
        deadline = time.monotonic() + delay
        while not self.stopping and time.monotonic() < deadline:
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))

    def deliver(self, body):
        """("done" | "retry", seconds to wait)."""
        token, trouble = self.identity.token()
        if token is None:
            log_once("token", trouble)
            return "retry", self._backoff()
        try:
            status, retry_after, answer = self._post(body, token)
        except Exception as e:  # refused, reset, timed out, bad certificate, not HTTP: all mean "away"
            log_once("away", f"the server can't be reached: {type(e).__name__}: {e}")
            return "retry", self._backoff()
        if status == 200 and isinstance(answer, dict) and answer.get("accepted") is True:
            for key in ("away", "token", "busy", "stranger"):
                said(key)
            self.answered(answer)
            return "done", 0
        if status == 413:  # whoever says so: a proxy may take less than healthboard
            smaller = _without_bulk(body)
            if smaller is not None:
                return self.deliver(smaller)
        if not _is_ours(answer):
            log_once(
                "stranger",
                f"what answers at {self.settings.url} is not healthboard's API, and reports wait (a proxy, or a name that is "
                f"missing in HEALTHBOARD_HOSTS?): {status} {_reason(answer)}",
            )
            return "retry", max(self._backoff(), retry_after)
        if status in (401, 403):
            log_once("token", f"the server refuses this node's credential ({status}): {_reason(answer)}")
            self.identity.refused(token)
            return "retry", max(self._backoff(), min(60, 30 * self.settings.backoff_s))
        if status not in HOPELESS:  # busy, being deployed, behind a wrong proxy: others may put that right
            log_once("busy", f"the server answers {status}: {_reason(answer)}")
            if answer["error"] == TOO_MUCH and retry_after > LONG_WAIT_S:
                self.spool.thin()
            if answer["error"] == AHEAD:
                retry_after = min(retry_after, LONG_WAIT_S)  # the clock may be put right meanwhile
            return "retry", max(self._backoff(), retry_after)
        # Sending it again can't help, and everything behind it would wait for ever.
        self.refused += 1
        self.spool.refused(body)
        log_once(("refused", status), f"the server refuses a report ({status}), which is dropped: {_reason(answer)}")
        return "done", 0

    def _backoff(self):
        self.failures += 1
        delay = min(300.0, self.settings.backoff_s * 2 ** min(self.failures - 1, 12))
        return delay * random.uniform(0.5, 1.5)  # jitter: a whole fleet must not come back at one moment

    def _post(self, body, token):
        if self.tls is None and self.target[0] == "https":
            self.tls = tls_context(self.settings)
        return post(self.target, REPORT_PATH, body, token, self.tls)


def tls_context(settings):
    import ssl

    return ssl.create_default_context(cafile=settings.ca_file or None)


def post(target, path, body, token, tls=None):
    """One request: (status, Retry-After in seconds, answer). No redirect and no proxy is followed.

    The answer is the JSON object that came or, where none did, a text that tells what came instead.
    """
    import http.client

    scheme, host, port, prefix = target
    if scheme == "https":
        connection = http.client.HTTPSConnection(host, port, timeout=10, context=tls)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=10)
    # The time-out above is per operation; this one is for the whole, against a server that drips.
    watchdog = threading.Timer(POST_DEADLINE_S, _cut, [connection])
    watchdog.daemon = True
    watchdog.start()
    try:
        credential = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(
            "POST", prefix + path, body,
            {**credential, "Content-Type": "application/json", "User-Agent": f"healthboard-node/{VERSION}",
             "Connection": "close"},
        )  # fmt: skip
        response = connection.getresponse()
        raw = response.read(ANSWER_LIMIT)
        retry = response.getheader("Retry-After") or ""
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            kind = response.getheader("Content-Type") or "no Content-Type"
            answer = f"({kind}) {' '.join(raw[:400].decode('utf-8', 'replace').split())}"
        return response.status, min(600, int(retry)) if retry.isdigit() else 0, answer
    finally:
        watchdog.cancel()
        connection.close()


def _cut(connection):
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _is_ours(answer):
    """Whether a refusal is healthboard's, which always names the error and says what to do; a proxy's page doesn't."""
    return isinstance(answer, dict) and all(isinstance(answer.get(key), str) for key in ("error", "detail"))


def _reason(answer):
    if not isinstance(answer, dict):
        text = str(answer)
    elif _is_ours(answer):
        text = f"{answer['error']} {answer['detail']}"
    else:
        text = json.dumps(answer)
    return "".join(c for c in text if c.isprintable())[:300] or "no reason given"


def _not_ahead(body):
    """A report from before this machine's clock was put back is dated now: else it, and all behind it, would wait until
    the time that it was dated by."""
    try:
        report = json.loads(body)
        ahead = report["sent_at"] > (now := iso(time.time()))  # of one form and width: they sort like the times
    except (ValueError, KeyError, TypeError):
        return body
    return json.dumps({**report, "sent_at": now}, separators=(",", ":")).encode() if ahead else body


def _without_bulk(body):
    """A report that is too large, without its recorder and with short outputs; None if there is nothing to cut."""
    try:
        report = json.loads(body)
    except ValueError:
        return None
    if not report.get("recorder") and not any(len(r["output"]) > 2000 for r in report.get("results", [])):
        return None
    report["recorder"] = []
    for result in report.get("results", []):
        result["output"] = result["output"][:2000]
    return json.dumps(report, separators=(",", ":")).encode()


# ---------------------------------------------------------------------------------------------- who this machine is

STS_BODY = "Action=GetCallerIdentity&Version=2011-06-15"
STS_TYPE = "application/x-www-form-urlencoded; charset=utf-8"
CREDENTIALS = "meta-data/identity-credentials/ec2/security-credentials/ec2-instance"


def sts_host(region):
    return f"sts.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def sign_identity(credentials, region, server, nonce, now):
    """A GetCallerIdentity that only STS can check, and that is good for one server and one nonce (Signature Version 4).

    `credentials`: AccessKeyId, SecretAccessKey, Token, as the metadata service gives them; `now`: seconds since 1970.
    """
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    headers = {
        "content-type": STS_TYPE, "host": sts_host(region), "x-amz-date": date,
        "x-amz-security-token": credentials["Token"], "x-healthboard-nonce": nonce, "x-healthboard-server": server,
    }  # fmt: skip
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    asked = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(STS_BODY.encode()).hexdigest()}"
    scope = f"{date[:8]}/{region}/sts/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    key = ("AWS4" + credentials["SecretAccessKey"]).encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return {
        "authorization": f"AWS4-HMAC-SHA256 Credential={credentials['AccessKeyId']}/{scope}, "
        f"SignedHeaders={names}, Signature={key.hex()}",
        "date": date,
        "security_token": credentials["Token"],
    }


class Metadata:
    """EC2's instance metadata, version 2 of the service only."""

    def __init__(self, base):
        self.host, self.port, self.prefix = _metadata_parts(base)
        self.session = None

    def get(self, path):
        """The text; raises OSError or ValueError where there is none."""
        if self.session is None:
            self.session = self._ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        return self._ask("GET", path, {"X-aws-ec2-metadata-token": self.session})

    def _ask(self, method, path, headers):
        import http.client

        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            connection.request(method, f"{self.prefix}/latest/{path}", headers=headers)
            response = connection.getresponse()
            text = response.read(65536).decode("utf-8", "replace").strip()
        except http.client.HTTPException as e:
            raise OSError(f"the metadata service answers no HTTP: {type(e).__name__}") from e
        finally:
            connection.close()
        if response.status != 200 or not text:
            raise OSError(f"the metadata service answers {response.status} for {path}")
        return text


def _metadata_parts(base):
    """Link-local, or loopback for tests: a machine's keys must not be asked for, nor sent, anywhere else."""
    parts = urlsplit(base)
    try:
        address = ipaddress.ip_address(parts.hostname or "")
        port = parts.port
    except ValueError:
        raise ConfigError("AWS_EC2_METADATA_SERVICE_ENDPOINT is not a link-local address") from None
    local = address.is_link_local or address.is_loopback or address == ipaddress.ip_address("fd00:ec2::254")
    if parts.scheme != "http" or not local:
        raise ConfigError("AWS_EC2_METADATA_SERVICE_ENDPOINT is not a link-local address")
    return str(address), port or 80, parts.path.rstrip("/")


class Identity:
    """The node's credential: the one that was set, or one that this machine gets by showing who it is.

    An enrolled node keeps a token of some hours in the state directory, bound to the machine, and renews it when half of
    its time is over. `healthboard-node` and the gate share it under a file lock.
    """

    def __init__(self, settings):
        self.settings = settings
        self.metadata = settings.metadata
        if settings.enrols:
            _metadata_parts(settings.metadata)
        self.path = os.path.join(settings.state_dir, "identity.json")
        self.tls = None
        self.bad = None
        self.memory = {}  # what is kept where the disk can't take it

    def token(self):
        """(token or None, why there is none)."""
        if not self.settings.enrols:
            given = self.settings.read_token()
            where = self.settings.token_file or "the environment"
            return given, "" if given else f"there is no usable credential in {where}"
        kept = self._kept()
        if kept and kept["token"] != self.bad and time.time() < kept["renew_at"]:
            return kept["token"], ""
        try:
            with self._alone():
                return self._fresh()
        except (OSError, ValueError, KeyError, TypeError) as e:
            if kept and time.time() < kept["expires_at"]:
                return kept["token"], ""  # still good for a while; the next report tries again
            return None, f"this machine can't show who it is: {type(e).__name__}: {e}"

    def refused(self, token):
        """The server did not take it: enrol again at the next report, and keep it until that went well."""
        self.bad = token

    def _fresh(self):
        kept = self._kept()  # another process may have been faster
        now = time.time()
        if kept and kept["token"] != self.bad and now < kept["renew_at"]:
            return kept["token"], ""
        if kept and kept["token"] != self.bad and now < kept["expires_at"]:
            status, _, answer = self._post(RENEW_PATH, {}, kept["token"])
            if status != 200:
                raise OSError(f"the server answers {status} to the renewal: {_reason(answer)}")
            return self._keep(answer), ""
        status, _, answer = self._post(CHALLENGE_PATH, {})
        if status != 200:
            return None, f"the server gives no challenge ({status}): {_reason(answer)}"
        status, _, answer = self._post(IDENTITY_PATH, self._proof(str(answer["nonce"])))
        if status == 409 and kept and now < kept["expires_at"]:
            # Enrolled already, which is so as long as our token lives: the refusal was not for it, or not for long.
            self.bad = None
            return kept["token"], ""
        if status != 200:
            return None, f"the server does not enrol this machine ({status}): {_reason(answer)}"
        return self._keep(answer), ""

    def _proof(self, nonce):
        told = Metadata(self.metadata)
        credentials = json.loads(told.get(CREDENTIALS))
        region = told.get("meta-data/placement/region")
        # the name that this machine connects to, whatever the challenge says: a proof for another server is no use here
        server = urlsplit(self.settings.url).hostname
        signed = sign_identity(credentials, region, server, nonce, time.time())
        return {"instance_id": told.get("meta-data/instance-id"), "region": region, "nonce": nonce, **signed}

    def _post(self, path, value, token=None):
        target = check_url(self.settings.url)
        if self.tls is None and target[0] == "https":
            self.tls = tls_context(self.settings)
        status, retry_after, answer = post(target, path, json.dumps(value).encode(), token, self.tls)
        if status == 200 and not isinstance(answer, dict):
            raise OSError(f"what answers at {self.settings.url} is not healthboard's API: {_reason(answer)}")
        return status, retry_after, answer

    def _keep(self, answer):
        left, now = float(answer["expires_in_s"]), time.time()
        kept = {
            "token": str(answer["token"]), "machine": machine_identity(self.settings.sysfs), "url": self.settings.url,
            "renew_at": now + left / 2, "expires_at": now + left,
        }  # fmt: skip
        self.bad = None
        self.memory = kept
        try:
            descriptor = os.open(self.path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as f:
                json.dump(kept, f)
            os.replace(self.path + ".tmp", self.path)
        except OSError as e:
            log_once("identity", f"the credential can't be written to {self.path}: {e.strerror}")
        return kept["token"]

    def _kept(self):
        """What is kept for this machine and this server: on disk or, where that can't be written, in memory; the one
        that lives longer. A copied disk brings another machine's along."""
        found = [kept for kept in (read_json(self.path), self.memory) if self._ours(kept)]
        return max(found, key=lambda kept: kept["expires_at"], default=None)

    def _ours(self, kept):
        wanted = {"token": str, "renew_at": (int, float), "expires_at": (int, float)}
        whole = all(isinstance(kept.get(key), kind) for key, kind in wanted.items())
        here = kept.get("machine") == machine_identity(self.settings.sysfs) and kept.get("url") == self.settings.url
        return whole and here

    @contextlib.contextmanager
    def _alone(self):
        try:
            os.makedirs(self.settings.state_dir, exist_ok=True)
            lock = open(self.path + ".lock", "w")  # noqa: SIM115
        except OSError:
            yield  # a disk that can't be written to: then there is nothing to share either
            return
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


# -------------------------------------------------------------------------------------------------- the reporter


class Reporter:
    """The service: reads, builds reports, spools them; `Sender`, `Kmsg` and `Requests` work beside it."""

    def __init__(self, settings):
        self.settings = settings
        self.state_dir = _usable_dir(settings.state_dir)
        self.spool = Spool(self.state_dir, settings.spool_bytes)
        self.store = Store(os.path.join(self.state_dir, "state.json"), settings.boot_id)
        self.store.report_seq = max(self.store.report_seq, self.spool.last_seq(settings.boot_id))
        self.spool.kernel_lost = self.store.kernel_lost
        self.inventory = Inventory(
            os.path.join(self.state_dir, "inventory.json"), machine_identity(settings.sysfs), settings.boot_id
        )
        self.wake = threading.Event()
        self.stop = threading.Event()
        self.interval = settings.interval
        self.probe = NvmlProbe(settings)
        self.kmsg = Kmsg(settings.kmsg, self.store.kmsg_seq, self.wake.set)
        self.recorder = Recorder(settings.interval)
        self.requests = Requests(self._view, self.store, self.wake.set)
        self.sender = Sender(settings, self.spool, self._answered)
        self.reading = _failure("hung", NOT_YET, "not read yet")
        self.read_at = time.monotonic()
        self.well = False  # whether the last reading is without any bad sign
        self.gpus = []
        self.signs = set()
        self.last_attached = -1e9

    def run(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: (self.stop.set(), self.wake.set()))
        log(f"healthboard-node {VERSION}: reporting to {self.settings.url} every {self.interval:g} s")
        self.kmsg.start()
        self.kmsg.caught_up.wait(3)
        self.sender.start()
        self.requests.start()
        due = time.monotonic()
        burst = _Bucket(5, self.interval)
        while not self.stop.is_set():
            urgent = self._wait(due, burst)
            if self.stop.is_set():
                break
            self.round(urgent)
            now = time.monotonic()
            if now >= due:
                due = max(due + self.interval, now) if now < due + self.interval else now + self.interval
        self.kmsg.stopping = self.sender.stopping = self.requests.stopping = True
        self.probe.close()
        log("healthboard-node: stopped")
        return 0

    def _wait(self, due, burst):
        """Wait for the next turn; True if something urgent came before it. A flood of Xids gets no flood of reports."""
        while not self.stop.is_set():
            left = due - time.monotonic()
            if left <= 0:
                self.wake.clear()
                return False
            if burst.ready():
                if self.wake.wait(min(left, 1.0)) and burst.take():
                    self.stop.wait(0.2)  # let the rest of the body arrive
                    self.wake.clear()
                    return True
            else:
                self.stop.wait(min(left, 0.2))
        return False

    def round(self, urgent=False):
        """Read once and spool what there is to tell."""
        reading = self.probe.read(URGENT_WAIT_S if urgent else None, self.wake)
        if is_pending(reading):
            # Kernel lines must not wait for a slow driver. A good reading that is still fresh is told once more. A bad one
            # is not: it would count as a second look at what was looked at once. Then NVML is told as not read yet.
            if self.well and time.monotonic() - self.read_at < 60:
                reading, gpus = dict(self.reading, detail=f"as read before; {reading['detail']}"), self.gpus
            else:
                gpus = []
        else:
            gpus = self.inventory.complete(reading)
            self.reading, self.gpus, self.read_at = reading, gpus, time.monotonic()
            expected = self.settings.expected()[0]
            self.well = not worst_signs(reading, gpus) and (expected is None or reading["count"] >= expected)
            if reading["state"] == "ok":
                self.recorder.add(time.time(), gpus)
        if reading["state"] == "ok":
            said(("nvml", "hung"))
            said(("nvml", "crashed"))
        for left in reversed(range(8)):
            lines, overrun, cursor, more = self.kmsg.take()
            results = self.requests.take()
            more = bool(left and (more or self.requests.results))
            # A bad reading is told in the last of a round's reports alone: in each it would count as looked at as often.
            told = (
                (reading, gpus) if self.well or not more else (_failure("hung", NOT_YET, "told in the next report"), [])
            )
            seq = self.store.report_seq + 1
            overrun |= self.spool.take_kernel_lost()
            report = build_report(self.settings, seq, *told, lines, overrun)
            report["results"] = results
            report["recorder"] = self._recorder(*told, lines)
            self.spool.append(report)
            self.store.report_seq, self.store.kmsg_seq = seq, cursor
            self.store.kernel_lost = self.spool.kernel_lost
            self.store.finish({r["request"] for r in results})
            self.store.save()
            self.sender.wake.set()
            if not more:
                break

    def _recorder(self, reading, gpus, lines):
        """The last 15 minutes, if something has broken since the last report."""
        broke = any(x["facility"] == 0 and URGENT.search(x["text"]) for x in lines)
        if not is_pending(reading):
            signs = worst_signs(reading, gpus)
            broke = broke or bool(signs - self.signs)
            self.signs = signs
        now = time.monotonic()
        if not broke or now - self.last_attached < 60:
            return []
        self.last_attached = now
        return self.recorder.dump(time.time())

    def _view(self):
        kernel = None if self.kmsg.blind else self.kmsg.snapshot()
        counters = {
            "ignored_requests": self.requests.ignored, "refused_reports": self.sender.refused,
            "spool_bytes": self.spool.size - self.spool.offset, "spool_dropped": self.spool.dropped,
            "kernel_lines_lost": self.kmsg.lost_lines, "probe_starts_last_hour": len(self.probe.started),
        }  # fmt: skip
        return self.settings, self.reading, self.gpus, kernel, counters

    def _answered(self, answer):
        if not isinstance(answer, dict):
            return
        self.requests.offer(answer.get("requests"))
        wish = answer.get("interval_s")
        if isinstance(wish, (int, float)) and not isinstance(wish, bool) and wish > 0:
            # The server may slow a node down, never drive it faster than it was set to.
            self.interval = min(max(self.settings.interval, float(wish)), 300.0)


class _Bucket:
    """At most `size` urgent reports at once, one more per `period` seconds."""

    def __init__(self, size, period):
        self.size, self.period = size, max(period, 0.05)
        self.tokens, self.at = float(size), time.monotonic()

    def ready(self):
        now = time.monotonic()
        self.tokens = min(self.size, self.tokens + (now - self.at) / self.period)
        self.at = now
        return self.tokens >= 1

    def take(self):
        if not self.ready():
            return False
        self.tokens -= 1
        return True


def _usable_dir(path):
    """The state directory, or a temporary one: a full or read-only disk must not blind us."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        return path
    except OSError as e:
        log(f"{path} can't be written ({e.strerror}); state is lost when this process ends")
        return tempfile.mkdtemp(prefix="healthboard-node-")


def build_report(settings, seq, reading, gpus, lines, overrun):
    """A report of `REPORT_SCHEMA` without results and recorder."""
    return {
        "schema": SCHEMA, "reporter": VERSION, "boot_id": settings.boot_id, "seq": seq, "sent_at": iso(time.time()),
        "uptime_s": uptime_s(), "driver": (reading["driver"] or driver_version() or "")[:32] or None,
        "nvml": {"state": reading["state"], "code": reading["code"], "detail": str(reading["detail"])[:500]},
        "gpu_count": reading["count"],
        "gpus": [{k: v for k, v in g.items() if not k.startswith("_")} for g in gpus],
        "kernel": lines, "kernel_overrun": bool(overrun),
        "efa": {"expected": settings.efa_expected, "present": efa_devices(settings.sysfs)},
        "recorder": [], "results": [],
    }  # fmt: skip


def once(settings):
    """One report on standard output; keeps and changes no state, sends nothing."""
    probe = NvmlProbe(settings)
    kmsg = Kmsg(settings.kmsg)
    kmsg.start()
    kmsg.caught_up.wait(3)
    reading = probe.read()
    inventory = Inventory(
        os.path.join(settings.state_dir, "inventory.json"), machine_identity(settings.sysfs), settings.boot_id, False
    )
    gpus = inventory.complete(reading)
    lines, overrun, _, _ = kmsg.take(KERNEL_PENDING)
    stored = Store(os.path.join(settings.state_dir, "state.json"), settings.boot_id)
    report = build_report(settings, max(1, stored.report_seq), reading, gpus, lines, overrun)
    print(json.dumps(report, indent=1))
    probe.close()
    return 0


# ------------------------------------------------------------------------------------------------------ the gate


def condemned_check(path, gpus):
    """No GPU of a list of condemned UUIDs and serials (one a line, # begins a comment) may serve again."""
    text = read_text(path, 1 << 20)
    if text is None:
        return check("condemned", None, f"there is no list at {path}")
    listed = {word.lower() for line in text.splitlines() for word in line.split("#", 1)[0].split()[:1]}
    bad = [_who(g) for g in gpus if {str(g["uuid"]).lower(), str(g["serial"]).lower()} & listed]
    return check("condemned", not bad, "; ".join(bad) + " is condemned" if bad else f"none of {len(listed)} listed")


def condemned_by_server(settings, gpus):
    """None of this machine's GPUs was given back as broken before, by the server's memory.

    The last answer is kept: a condemned machine that boots while the server is away is refused all the same. Without
    any answer about this hardware nothing can be said; the server finds it at the first report.
    """
    mine = [{"uuid": g["uuid"], "serial": g["serial"]} for g in gpus if g["uuid"] or g["serial"]][:64]
    if not settings.url or not mine:
        return check("condemned_server", None, "no server is set" if mine else "no GPU tells its UUID or serial")
    path = os.path.join(settings.state_dir, "condemned.json")
    known, trouble = _ask_condemned(settings, mine)
    if known is None:
        kept = read_json(path)
        known = kept.get("condemned") if kept.get("asked") == mine else None
        known = known if isinstance(known, list) else None
    else:
        with contextlib.suppress(OSError):
            os.makedirs(settings.state_dir, mode=0o700, exist_ok=True)
            write_json(path, {"asked": mine, "condemned": known})
    if known is None:
        return check("condemned_server", None, f"the server did not say: {trouble}")
    bad = [f"{str(k.get('uuid'))[:96]} ({str(k.get('why'))[:120]})" for k in known[:64] if isinstance(k, dict)]
    said = "; ".join(bad) + " was given back as broken" if bad else f"none of {len(mine)} is known as broken"
    return check("condemned_server", not bad, said + (f" (kept; now: {trouble})" if trouble else ""))


def _ask_condemned(settings, mine):
    """(list or None, what went wrong or an empty text); a few tries, for a network that is just coming up."""
    token, trouble = Identity(settings).token()
    if token is None:
        return None, trouble
    target, body = check_url(settings.url), json.dumps({"gpus": mine}).encode()
    trouble = ""
    for wait in (0, 2, 5):
        time.sleep(wait * min(1.0, settings.backoff_s))
        try:
            tls = tls_context(settings) if target[0] == "https" else None
            status, _, answer = post(target, CONDEMNED_PATH, body, token, tls)
        except Exception as e:  # refused, reset, timed out, bad certificate, not HTTP: all mean "away"
            trouble = f"{type(e).__name__}: {e}"
            continue
        if status == 200 and isinstance(answer, dict) and isinstance(answer.get("condemned"), list):
            return answer["condemned"], ""
        trouble = f"it answers {status}: {_reason(answer)}"
        if 400 <= status < 500 and status != 429:
            break
    return None, trouble


def gate(settings, wait_s, quick_diag=True):
    """The admission gate: prints a line per check; 0 admits the machine, 1 refuses it.

    It waits up to `wait_s` for the driver and the fabric, which may still be starting.
    """
    probe = NvmlProbe(settings)
    kmsg = Kmsg(settings.kmsg)
    kmsg.start()
    kmsg.caught_up.wait(3)
    inventory = Inventory(None, "", settings.boot_id)
    deadline = time.monotonic() + wait_s
    gpus = []
    while True:
        reading = probe.read(anew=any(g["status"] != "ok" for g in gpus))
        gpus = inventory.complete(reading)
        checks = quick_checks(settings, reading, gpus, None if kmsg.blind else kmsg.snapshot())
        lasting = {c["name"] for c in checks if c["ok"] is False} & {"row_remap", "kernel_log", "sram"}
        if overall(checks) is not False or lasting or time.monotonic() >= deadline:
            break
        time.sleep(min(1.0, max(0.05, deadline - time.monotonic())))
    probe.close()
    if gpus:
        checks.append(condemned_check(settings.condemned_file, gpus))
        checks.append(condemned_by_server(settings, gpus))
        if quick_diag:
            checks.append(dcgm_diag(1, 180)[0])
    admitted = overall(checks) is True
    print("\n".join(lines_of(checks)))
    print("gate: admitted" if admitted else "gate: refused", flush=True)
    return 0 if admitted else 1


# ------------------------------------------------------------------------------------------------------ the door


def main(argv=None):
    """Exit status: 0 well, 1 refused by the gate, 2 a setting that can't work."""
    argv = sys.argv[1:] if argv is None else argv
    if argv == ["--nvml-child"]:
        return nvml_child()
    parser = argparse.ArgumentParser(
        prog="healthboard-node", description="Reports the health of this machine's GPUs to healthboard.",
        epilog="Settings are environment variables; docs/node-reporter.md lists them.",
    )  # fmt: skip
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="print one report as JSON and end; sends nothing")
    mode.add_argument("--gate", action="store_true", help="check this machine before it takes work; exit 0 or 1")
    mode.add_argument("--schema", action="store_true", help="print the report's JSON Schema")
    parser.add_argument("--kmsg", metavar="FILE", help="read this instead of /dev/kmsg")
    parser.add_argument("--expect", metavar="N", type=int, help="number of GPUs, instead of the instance type's")
    parser.add_argument("--instance-type", metavar="TYPE", help="instead of what the machine itself says")
    parser.add_argument("--condemned", metavar="FILE", help="list of condemned UUIDs and serials (for --gate)")
    parser.add_argument("--wait", metavar="S", type=float, default=120, help="how long --gate waits for the driver")
    parser.add_argument("--no-diag", action="store_true", help="--gate without dcgmi's quick diagnostic")
    parser.add_argument("--version", action="version", version=f"healthboard-node {VERSION}")
    args = parser.parse_args(argv)
    if args.schema:
        print(json.dumps(REPORT_SCHEMA, indent=1))
        return 0
    try:
        settings = Settings()
        settings.kmsg = args.kmsg or settings.kmsg
        settings.expect_gpus = settings.expect_gpus if args.expect is None else args.expect
        settings.instance_type = args.instance_type or settings.instance_type
        settings.condemned_file = args.condemned or settings.condemned_file
        if args.once:
            return once(settings)
        if args.gate:
            return gate(settings, args.wait, not args.no_diag)
        if not settings.url:
            raise ConfigError("HEALTHBOARD_URL is not set: the address of healthboard, such as https://hb.example.com")
        check_url(settings.url)
        # Asked of the service alone: the gate reads the same file, and must not refuse a machine for this.
        if settings.interval > LONGEST_INTERVAL_S:
            raise ConfigError(
                f"HEALTHBOARD_INTERVAL must be {LONGEST_INTERVAL_S} seconds at most, not {settings.interval:g}: healthboard "
                "calls 45 seconds of silence a gap"
            )
        return Reporter(settings).run()
    except ConfigError as e:
        print(f"healthboard-node: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
