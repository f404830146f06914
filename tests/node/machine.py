"""The machine that the reporter under test lives on: GPUs (through the NVML double), kernel log, /sys; and a server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from workers.node import healthboard_node as node

BOOT = "0c6fb7c4-0000-4000-8000-000000000001"


class Machine:
    """Writes the files that the reporter reads; `set` changes a GPU while the reporter runs."""

    def __init__(self, path: Path, library: Path, gpus: int = 8):
        self.path = path
        self.state = path / "nvml.txt"
        self.kmsg = path / "kmsg"
        self.kmsg.touch()
        self.lines = [f"count {gpus}"]
        for i in range(gpus):
            self.set(i, uuid=self.uuid(i), serial=f"165{i:07d}", name="NVIDIA H100 80GB HBM3", pci=f"0:{0x3B + i:x}:0",
                     temperature=45, power=310200, util=97, mem_total=81559, mem_used=61000, fabric_state=3,
                     fabric_mask=0, links_up=18)  # fmt: skip
            device = path / f"sys/bus/pci/devices/0000:{0x3B + i:02x}:00.0"
            device.mkdir(parents=True)
            (device / "vendor").write_text("0x10de\n")
            (device / "class").write_text("0x030200\n")
        (path / "sys/class/infiniband").mkdir(parents=True)
        for i in range(32):
            (path / f"sys/class/infiniband/rdmap{i}s0").mkdir()
        self.env = {
            "LD_LIBRARY_PATH": str(library), "NVML_DOUBLE_STATE": str(self.state),
            "NVML_DOUBLE_INITS": str(path / "inits"),
            "HEALTHBOARD_KMSG": str(self.kmsg), "HEALTHBOARD_SYSFS": str(path / "sys"),
            "HEALTHBOARD_STATE_DIR": str(path / "state"), "HEALTHBOARD_BOOT_ID": BOOT,
            "HEALTHBOARD_INSTANCE_TYPE": "p5.48xlarge", "HEALTHBOARD_INTERVAL": "0.2",
            "HEALTHBOARD_NVML_TIMEOUT": "2", "HEALTHBOARD_NVML_INIT_TIMEOUT": "5", "HEALTHBOARD_NVML_RESPAWN": "0.1",
            "HEALTHBOARD_BACKOFF": "0.05", "HEALTHBOARD_CONDEMNED_FILE": str(path / "condemned"),
            "PATH": f"{path / 'bin'}:/usr/bin:/bin",
        }  # fmt: skip

    @staticmethod
    def uuid(i):
        return f"GPU-00000000-0000-4000-8000-{i:012d}"

    def set(self, gpu, **values):
        """`set(3, lost=1)`; later lines win."""
        self.write(*(f"gpu {gpu} {key} {value}" for key, value in values.items()))

    def write(self, *lines):
        self.lines += lines
        tmp = self.state.with_suffix(".new")
        tmp.write_text("\n".join(self.lines) + "\n")
        tmp.replace(self.state)  # at once: the double never reads half a machine

    def inits(self):
        """How often the library was initialised."""
        return (self.path / "inits").stat().st_size

    def mark(self):
        """The machine as it is now, for `reset`."""
        return len(self.lines)

    def reset(self, mark):
        del self.lines[mark:]
        self.write()

    def say(self, text, seq, facility=0, level=3, micros=None):
        """One record of the kernel log."""
        micros = seq * 1000 if micros is None else micros
        with open(self.kmsg, "a") as f:
            f.write(f"{facility << 3 | level},{seq},{micros},-;{text}\n SUBSYSTEM=pci\n")

    def tool(self, name, script):
        """A program that the reporter finds on its PATH."""
        (self.path / "bin").mkdir(exist_ok=True)
        tool = self.path / "bin" / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    def run(self, *args, python=sys.executable):
        """(exit status, standard output, standard error) of the reporter's file with these arguments."""
        done = subprocess.run([python, node.__file__, *args], capture_output=True, text=True, timeout=60, env=self.env)
        return done.returncode, done.stdout, done.stderr

    def once(self):
        status, out, err = self.run("--once")
        assert status == 0, err
        return json.loads(out)


class Server(ThreadingHTTPServer):
    """Takes reports as healthboard does.

    `answers` holds (status, body) for the next posts, where a body that is a text comes as a page of somebody else and None
    is healthboard's own; then `refuse(report)` may give a status; else all is accepted.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.reports, self.posts, self.answers, self.requests = [], [], [], []
        self.refuse = lambda report: None
        self.retry_after = None  # seconds, as every refusal tells them
        self.condemned, self.asked = [], []  # what the gate is told, and what it asked
        self.changed = threading.Condition()

    def wait(self, wanted, seconds=10):
        """The first report for which `wanted(report)` is true, or a failure with what came."""
        deadline, looked = time.monotonic() + seconds, 0
        with self.changed:
            while True:
                for report in self.reports[looked:]:
                    if wanted(report):
                        return report
                looked = len(self.reports)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no such report among {len(self.reports)}; posts: {self.posts[-3:]}")
                self.changed.wait(left)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        s = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/condemned"):
            s.asked.append((self.path, self.headers["Authorization"], json.loads(body)))
            return self._say(200, {"condemned": s.condemned})
        with s.changed:
            status, answer = s.answers.pop(0) if s.answers else (s.refuse(json.loads(body)) or 200, None)
            s.posts.append((self.path, self.headers["Authorization"], status))
            if status == 200 and answer is None:
                s.reports.append(json.loads(body))
                requests, s.requests = s.requests, []
                answer = {"accepted": True, "duplicate": False, "requests": requests, "interval_s": 0.1}
            s.changed.notify_all()
        self._say(status, answer or {"error": "refused", "detail": "for the test"})

    def _say(self, status, answer):
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        if status != 200 and self.server.retry_after is not None:
            self.send_header("Retry-After", str(self.server.retry_after))
        self.send_header("Content-Type", "text/html" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


def schema_errors(value, schema, at="report"):
    """The ways in which a value breaks the subset of JSON Schema that `REPORT_SCHEMA` uses."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    errors = []
    if "const" in schema and value != schema["const"]:
        errors.append(f"{at}: not {schema['const']}")
    if "enum" in schema and value not in schema["enum"]:
        errors.append(f"{at}: {value!r} not in {schema['enum']}")
    if "minimum" in schema and isinstance(value, int) and value < schema["minimum"]:
        errors.append(f"{at}: {value} is too small")
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    fits = [n for n in names if (n == "null" and value is None) or (n != "null" and isinstance(value, kinds[n])
            and not (isinstance(value, bool) and n in ("integer", "number")))]  # fmt: skip
    if names and not fits:
        errors.append(f"{at}: {value!r} is no {names}")
    if isinstance(value, dict) and "properties" in schema:
        errors += [f"{at}.{k}: missing" for k in schema["required"] if k not in value]
        errors += [f"{at}.{k}: not in the schema" for k in value if k not in schema["properties"]]
        for k, v in value.items():
            errors += schema_errors(v, schema["properties"].get(k, {}), f"{at}.{k}")
    if isinstance(value, list) and "items" in schema:
        for i, v in enumerate(value):
            errors += schema_errors(v, schema["items"], f"{at}[{i}]")
    return errors
