"""The values that cross the seam between collecting, deciding and showing.

Everything is frozen, JSON-friendly and free of Django. Times are timezone-aware UTC datetimes. A GPU is named by its
UUID where that is known, else by its PCI address as ``0000:3b:00``, else None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    HEALTHY = "HEALTHY"
    WORKLOAD = "WORKLOAD"
    WATCH = "WATCH"
    AMBIGUOUS = "AMBIGUOUS"
    HARDWARE = "HARDWARE"
    UNKNOWN = "UNKNOWN"
    CORRELATED = "CORRELATED"


class Action(StrEnum):
    NONE = "NONE"
    NOTIFY_WORKLOAD = "NOTIFY_WORKLOAD"
    WATCH = "WATCH"
    DIAGNOSE = "DIAGNOSE"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"
    HOLD = "HOLD"
    # chosen by people, or named in a policy
    DRAIN = "DRAIN"
    RETURN = "RETURN"
    RELOCATE = "RELOCATE"


class CheckStatus(StrEnum):
    """Status of one health check; the worst wins in the order of `CHECK_ORDER`."""

    OK = "OK"
    IMPAIRED = "IMPAIRED"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"
    INITIALIZING = "INITIALIZING"


#: Worst first.
CHECK_ORDER = (CheckStatus.IMPAIRED, CheckStatus.INSUFFICIENT_DATA, CheckStatus.INITIALIZING, CheckStatus.OK)
#: Worst first; CORRELATED is given only by `correlate`.
VERDICT_ORDER = (
    Verdict.CORRELATED,
    Verdict.HARDWARE,
    Verdict.AMBIGUOUS,
    Verdict.WORKLOAD,
    Verdict.WATCH,
    Verdict.UNKNOWN,
    Verdict.HEALTHY,
)
#: Lightest first: "the more careful of two actions" is the one that stands earlier.
ACTION_ORDER = (
    Action.NONE,
    Action.NOTIFY_WORKLOAD,
    Action.WATCH,
    Action.HOLD,
    Action.DIAGNOSE,
    Action.RETURN,
    Action.DRAIN,
    Action.REBOOT,
    Action.RELOCATE,
    Action.REPLACE,
)


#: Rules by which a policy made a finding of what is none by the catalogue: such a one never acts alone as AMBIGUOUS.
RAISED = frozenset({"policy-raised", "policy-own"})


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a time on one instance.

    `source` is who says so: ``kernel``, ``nvml``, ``dcgm``, ``node`` (the reporter about itself), ``ec2``, ``ecs``,
    ``ecs-agent``, ``aws-health``. `seq` orders events of one boot (kmsg sequence). A burst of equal lines is one event
    with `count` and `last_at`. `attrs` holds what the parser decoded (registers, reason, location, recovery value …).
    """

    at: datetime
    code: str
    source: str
    gpu: str | None = None
    text: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    boot_id: str | None = None
    seq: int | None = None
    count: int = 1
    last_at: datetime | None = None
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A continuous reading: `value` held from `since` until last confirmed at `last`, seen `observations` times.

    Names: ``EC2_SYSTEM``, ``EC2_INSTANCE``, ``EC2_ATTACHED_EBS`` (values of `CheckStatus`), ``EC2_STATE`` (running …),
    ``EC2_SCHEDULED_EVENT`` (event code or None), ``AGENT_CONNECTIVITY``, ``CONTAINER_RUNTIME``,
    ``ACCELERATED_COMPUTE``, ``DAEMON`` (CheckStatus), ``ECS_STATUS`` (ACTIVE …), ``ECS_GPUS`` (registered UUIDs),
    ``GPU_STATUS`` (ok, lost, error; per GPU), ``GPU_COUNT`` (seen by NVML), ``NVML`` (ok, library_not_found,
    driver_not_loaded, version_mismatch, hung, crashed, error), ``ROW_REMAP`` ({pending, failure, …} per GPU),
    ``RECOVERY_ACTION`` (int per GPU), ``BOOT_ID``, ``GAP`` (a source was silent; value is the reason; with
    ``attrs["expected"]`` it is silent because we drained), ``SRAM_THRESHOLD`` (bool per GPU), ``ECC`` (counters per
    GPU), ``CLOCK_EVENTS`` (bit mask per GPU), ``TEMPERATURE`` (ok, high), ``FABRIC`` (unsupported, starting, ok,
    unhealthy), ``EFA_COUNT``, ``XID_LAST`` (an exporter's gauge), ``EXPORTER`` (OK: it was scraped), ``EC2_PERFORMANCE``, ``ECS_OVERALL``.
    `sources` that a reading rests on are named as for `Event`.
    """

    name: str
    value: Any
    source: str
    since: datetime
    last: datetime
    observations: int = 1
    gpu: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of the instance apart from its signals; missing values are None, never guessed."""

    instance: str | None = None
    architecture: str | None = None  # "ampere", "ada", "hopper", "blackwell", "turing", "volta"
    instance_type: str | None = None
    expected_gpus: int | None = None
    expected_uuids: tuple[str, ...] = ()
    gpu_names: Mapping[str, str] = field(default_factory=dict)  # PCI address -> UUID
    boot_id: str | None = None
    booted_at: datetime | None = None
    launched_at: datetime | None = None
    condemned: Mapping[str, str] = field(default_factory=dict)  # UUID -> why it was given back as broken


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What a policy may set; stored with each decision. Durations are wall time as the policy means them."""

    agent_disconnect: timedelta = timedelta(minutes=5)
    witness_wait: timedelta = timedelta(minutes=2)
    dark_after: timedelta = timedelta(minutes=30)
    repeat_window: timedelta = timedelta(hours=24)
    burst_gap: timedelta = timedelta(minutes=3)
    #: a clean-up (Xid 45) belongs to an error that is no farther away than this, before it or after it
    xid45_hold: timedelta = timedelta(minutes=5)
    #: readings older than this are no longer evidence (three missed collection rounds)
    stale_after: timedelta = timedelta(minutes=3)
    #: an application's fault or a passing note is shown this long after its last line
    shown_for: timedelta = timedelta(hours=1)
    #: code -> {"verdict": …, "action": …} set by an admin; with {"count": n, "window_s": s} only on repetition; with
    #: {"of": [codes …]} as well a code of the admin's own, for so many of those together
    code_overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outside_witness: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One code, on one GPU or instance, with its verdict and the reason in words."""

    code: str
    verdict: Verdict
    action: Action
    scope: str  # "gpu", "instance" or "host"
    why: str
    rule: str
    instance: str | None = None
    gpu: str | None = None
    count: int = 1
    first: datetime | None = None
    last: datetime | None = None
    #: when an event told it last; None where only readings show it, which go on as long as it stands
    told: datetime | None = None
    sources: tuple[str, ...] = ()
    #: "own", or "companion" for what only accompanies another finding (aftermath, detail, second word on it)
    role: str = "own"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What `evaluate` makes of one instance's evidence.

    `may_act` is kept apart from the verdict: only a HARDWARE verdict with a second witness may act by itself.
    `next_at` is when the same evidence would read differently only because time passes (a wait for a witness, a
    disconnect that becomes too long), or None.
    """

    verdict: Verdict
    action: Action
    findings: tuple[Finding, ...] = ()
    may_act: bool = False
    may_act_why: str = ""
    witnesses: tuple[str, ...] = ()
    primary: Finding | None = None
    why: str = ""
    next_at: datetime | None = None
    catalogue_version: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        """Each code once, the decisive one first. A finding without a machine name has a lower-case one, not listed."""
        ordered = ([self.primary.code] if self.primary else []) + [f.code for f in self.findings]
        return tuple(code for code in dict.fromkeys(ordered) if code.isupper())

    @property
    def raised(self) -> bool:
        """A policy made it what it is: by the catalogue a deciding finding would lead to nothing."""
        deciding = (f for f in self.findings if f.verdict is self.verdict and f.role == "own")
        return any(f.rule in RAISED for f in deciding)

    @property
    def decisive_codes(self) -> tuple[str, ...]:
        """The codes of HARDWARE and AMBIGUOUS findings that stand for themselves, and of what AWS itself calls an
        issue of many: what breadth counts."""
        worst = (Verdict.HARDWARE, Verdict.AMBIGUOUS, Verdict.CORRELATED)
        own = (f.code for f in self.findings if f.verdict in worst and f.role == "own")
        return tuple(code for code in dict.fromkeys(own) if code.isupper())
