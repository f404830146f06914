"""The ECS agent's log to events and readings. Planned reconnects and what came back by itself give nothing."""

from __future__ import annotations

import re
from datetime import datetime

from healthboard.diagnosis import nvml
from healthboard.diagnosis.parsed import IgnoredCounter, Parsed, at_line, check_status, lines_of, parse_time
from healthboard.diagnosis.signals import CheckStatus, Event, Reading

_TIME = re.compile(r"(?:^|time=)\"?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)")
_LOOKS = re.compile(
    r"\[(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL)\]|level=(?:info|warn|warning|error|debug|critical)", re.I
)
_PLANNED = re.compile(
    r"closed for a valid reason|ConnectionExpired|Reconnect to continue|(?<!ab)normal closure", re.IGNORECASE
)
_TELEMETRY = re.compile(r"\btcs\b|telemetry|Channel long idle", re.IGNORECASE)
_DOWN = re.compile(
    r"Error connecting to (?:ACS|ECS)|Error from acs|disconnected from (?:ACS|ECS)|lost connection to (?:ACS|ECS)|"
    r"acs.{0,60}(?:connection refused|i/o timeout|no such host|network is unreachable|bad handshake|EOF)|"
    r"Unable to (?:connect|reach) .{0,20}(?:ACS|ECS)|Error getting message from ws backend|agent (?:is )?disconnected|"
    r"discover(?:ing)? poll endpoint.{0,80}(?:error|fail|timeout)|unable to discover poll endpoint", re.IGNORECASE
)  # fmt: skip
_UP = re.compile(
    r"Connected to (?:ACS|ECS)|ACS connection established|Successfully (?:re)?connected|connected to acs", re.I
)
_SIMPLE: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        (
            "ECS_ZERO_GPUS_REGISTERED",
            r"GPU information is not found|no GPUs? (?:was |were )?(?:found|detected|registered)|"
            r"(?:0|zero) GPUs? (?:found|detected|registered)|nvidia-gpu-info\.json.{0,60}(?:no such file|not found|missing)",
        ),
        (
            "ECS_REGISTRATION_FAILED",
            r"Unable to register (?:as )?a? ?container instance|Error registering container instance|Could not register|"
            r"registration (?:failed|error)|RegisterContainerInstance.{0,80}(?:error|exception|fail|denied)",
        ),
        (
            "ECS_CONTAINER_RUNTIME_IMPAIRED",
            r"Cannot connect to the Docker daemon|docker (?:daemon|engine|ping).{0,60}(?:not respond|unresponsive|timed? ?out|"
            r"fail|unhealthy|deadline)|CONTAINER_RUNTIME.{0,40}(?:IMPAIRED|unhealthy)|Could not start Docker",
        ),
        ("ECS_DAEMON_IMPAIRED", r"daemon.{0,60}(?:is unhealthy|IMPAIRED|health ?check failed)"),
        ("ECS_ACCELERATED_COMPUTE_IMPAIRED", r"ACCELERATED_COMPUTE.{0,60}(?:IMPAIRED|unhealthy)|accelerated (?:device|compute).{0,40}"
         r"(?:unhealthy|impaired)"),
        ("DCGM_UNREACHABLE", r"(?:dcgm|nv-hostengine|host ?engine).{0,100}(?:unreachable|connection (?:refused|lost|not valid)|"
         r"disconnected|no such file|timed? ?out|not (?:running|available))"),
    )
)  # fmt: skip
_ENDED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        ("ECS_REGISTRATION_FAILED", r"Registered container instance|Registration completed|registered successfully"),
        (
            "ECS_CONTAINER_RUNTIME_IMPAIRED",
            r"CONTAINER_RUNTIME.{0,40}\bOK\b|docker.{0,40}(?:is healthy|responding again)",
        ),
        (
            "DCGM_UNREACHABLE",
            r"(?:dcgm|host ?engine).{0,60}(?:re-?connected|connection (?:established|restored)|connected)",
        ),
        ("ECS_ZERO_GPUS_REGISTERED", r"[1-9]\d{0,5} GPUs? (?:found|detected|registered)"),
        ("NVML_DRIVER_NOT_LOADED", r"[1-9]\d{0,5} GPUs? (?:found|detected|registered)"),
    )
)
#: a check that changed: only what it changed to counts
_CHANGED = re.compile(r"\b(CONTAINER_RUNTIME|ACCELERATED_COMPUTE|DAEMON)\b.{0,60}\bfrom \W?\w+\W? to \W?(\w+)", re.I)
_XID = re.compile(r"\bXID[ _=:#]+(\d{1,3})\b", re.IGNORECASE)


def parse(text: str) -> Parsed:
    ignored, known = IgnoredCounter(), 0
    events: list[Event] = []
    down: tuple[datetime, datetime, bool, int] | None = None
    for number, line in enumerate(lines_of(text, ignored), 1):
        m = _TIME.search(line)
        when = parse_time(m[1]) if m else None
        at = when or at_line(number)
        known += bool(_LOOKS.search(line))
        if _PLANNED.search(line):
            ignored.add("a planned reconnect of the agent", line)
            continue
        if _UP.search(line):
            down = None
            continue
        if _TELEMETRY.search(line):
            ignored.add("the telemetry channel is not the agent's connection", line)
            continue
        if (m := _CHANGED.search(line)) and check_status(m[2]) is not CheckStatus.IMPAIRED:
            events = [e for e in events if e.code != f"ECS_{m[1].upper()}_IMPAIRED"]
            continue
        for code, pattern in _ENDED:
            if pattern.search(line):
                events = [e for e in events if e.code != code]
        if _DOWN.search(line):
            known += 1
            down = (down[0] if down else at, at, when is not None, (down[3] if down else 0) + 1)
            continue
        if code := _code(line):
            known += 1
            attrs = {} if when else {"undated": True}
            source = "nvml" if code.startswith("NVML") else "dcgm" if code.startswith("DCGM") else "ecs-agent"
            events.append(Event(at, code, source, nvml.gpu_in(line), line.strip()[:300], attrs, seq=number))
    readings: tuple[Reading, ...] = ()
    if down:
        attrs = {} if down[2] else {"undated": True}
        readings = (
            Reading("AGENT_CONNECTIVITY", CheckStatus.IMPAIRED, "ecs-agent", down[0], down[1], down[3], None, attrs),
        )
    return Parsed(tuple(events), readings, ignored.result(), known)


def _code(line: str) -> str | None:
    for code, pattern in _SIMPLE:
        if pattern.search(line):
            return code
    code, _ = nvml.code_of(line)
    if code:
        return code
    if (m := _XID.search(line)) and 0 < int(m[1]) < 900:
        return f"XID_{int(m[1])}"
    return None
