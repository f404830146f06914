"""Every setting of a policy: its kind, unit, default, bounds, words, and which of several values is the most careful.

The table is the single source for the admin form, validation, inheritance, YAML and the sentence in words.
Durations are seconds (`int`), shares are fractions (0.2 is 20 %), `None` where allowed means "no limit".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from healthboard.diagnosis.signals import ACTION_ORDER, Action
from healthboard.policies.windows import BLACKOUT_LIKE, WINDOW_LIKE

#: Modes, most careful first.
MODES = ("observe", "ask", "auto")
#: Actions that a policy may name, lightest first.
ACTIONS = tuple(str(a) for a in ACTION_ORDER)
POLICY_ACTIONS = (
    Action.NONE,
    Action.WATCH,
    Action.DIAGNOSE,
    Action.DRAIN,
    Action.REBOOT,
    Action.RELOCATE,
    Action.REPLACE,
)
#: Verdicts that a policy may give to a code, lightest first.
POLICY_VERDICTS = ("WORKLOAD", "WATCH", "AMBIGUOUS", "HARDWARE")
CODE_KEYS = ("mode", "action", "verdict", "of", "count", "window_s")

GROUPS = (
    "Modes",
    "Per code",
    "Confirmation",
    "Budget",
    "When",
    "Draining",
    "Dead hosts and stuck tasks",
    "Approvals",
    "Timings",
    "Notices",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """`kind`: choice, seconds, share, count, yes_no, text, names, ladder, codes, windows, blackouts.

    `careful` declares the order: ``first`` (earliest choice), ``min``, ``max``, ``yes``, ``no``, ``common`` (only what
    all have), ``union``, ``within`` (only when all are open), ``codes`` (see `careful.codes`); None: no order, so values
    that differ are asked.
    `scaled`: a policy time, divided by the sandbox's speed where it is used.
    `adds`: what a less specific policy says holds as well.
    """

    name: str
    title: str
    group: str
    kind: str
    default: Any
    help: str
    careful: str | None = None
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    optional: bool = False  # None is a value: no limit
    scaled: bool = False
    adds: bool = False


def _mode(name: str, title: str, default: str, help: str) -> Setting:
    return Setting(name, title, "Modes", "choice", default, help, "first", MODES)


MINUTE, HOUR, DAY = 60, 3600, 86400

SETTINGS: tuple[Setting, ...] = (
    _mode(
        "mode_hardware", "Clear hardware failures", "auto",
        "auto: repaired without a person, once two witnesses agree. ask: waits in the inbox. observe: only shown.",
    ),
    _mode(
        "mode_ambiguous", "Ambiguous findings", "ask",
        "What sources disagree about, or context decides. auto acts on the recommended action without a person.",
    ),
    Setting(
        "ladder", "Ladder", "Modes", "ladder", ["REBOOT", "REPLACE"],
        "Repairs in the order in which they are tried when one did not help; after the last a person is asked.",
        "common", ("REBOOT", "REPLACE", "RELOCATE"),
    ),
    Setting(
        "tries_24h", "Tries in 24 hours", "Modes", "count", 2,
        "Repairs within 24 hours of one instance, or of those that took its place one after the other, before a "
        "person is asked. 0: a person is always asked.",
        "min", least=0, most=10,
    ),
    Setting(
        "codes", "Exceptions per code", "Per code", "codes", {},
        "One code a line: the code, a colon, then any of a mode (auto, ask, observe), an action (WATCH, DIAGNOSE, "
        "DRAIN, REBOOT, RELOCATE, REPLACE), verdict=… (WATCH, AMBIGUOUS, HARDWARE, WORKLOAD), and 3x in 24h to give "
        "the verdict (AMBIGUOUS if none is named) only on repetition. Example: XID_119: ask REPLACE 3x in 24h. "
        "A code of your own counts others on the same GPU: MEMORY_WEARS: of=XID_63,XID_94 3x in 24h. "
        "What only a policy makes a finding of never repairs alone without its witnesses.",
        "codes",
    ),
    Setting(
        "outside_witness", "Demand an outside witness", "Confirmation", "yes_no", False,
        "Yes: what only the node itself reports is asked until EC2, ECS or another outside source confirms it.",
        "yes",
    ),
    Setting(
        "witness_wait_s", "Wait for a second witness", "Confirmation", "seconds", 2 * MINUTE,
        "How long a clear failure told by one witness waits for a second one before a person is asked.",
        "max", least=10, most=HOUR,
    ),
    Setting(
        "disconnect_s", "Agent away for", "Confirmation", "seconds", 5 * MINUTE,
        "An ECS agent that is away for longer counts as a finding. It reconnects on purpose about twice an hour.",
        "max", least=MINUTE, most=DAY, scaled=True,
    ),
    Setting(
        "budget_share", "Out at once, share", "Budget", "share", 0.2,
        "Largest share of a pool that may be out of service at once, rounded down; one below nine instances.",
        "min", least=0.01, most=0.5,
    ),
    Setting(
        "budget_absolute", "Out at once, instances", "Budget", "count", None,
        "Largest number of instances of a pool that may be out at once, beside the share. "
        "0: no repair takes an instance out.",
        "min", least=0, most=1000, optional=True,
    ),
    Setting(
        "repairs_per_hour", "Repairs per hour", "Budget", "count", 20,
        "Repairs that may start in a pool within an hour, however many the share allows at once.",
        "min", least=0, most=1000, optional=True,
    ),
    Setting(
        "one_zone_at_a_time", "One zone at a time", "Budget", "yes_no", False,
        "Yes: repairs of a pool never run in two availability zones at once.",
        "yes",
    ),
    Setting(
        "minimum_healthy", "Keep serving", "Budget", "count", 0,
        "Instances of the pool that must stay in service whatever the share allows.",
        "max", least=0, most=10000,
    ),
    Setting(
        "windows", "Maintenance windows", "When", "windows", [],
        "Repairs begin only while one of them is open, by the wall clock of its time zone; one that has begun to drain is "
        f"carried to its end. One a line, as in {WINDOW_LIKE}; days: Mon-Fri, Sat,Sun or daily. none: at any time.",
        "within",
    ),
    Setting(
        "blackouts", "Blackouts", "When", "blackouts", [],
        "No repair begins from the first to the last, whatever the windows say. Those of less specific policies hold as "
        f"well. One a line, as in {BLACKOUT_LIKE}; a day without a clock time is the whole day.",
        "union", adds=True,
    ),
    Setting(
        "drain_timeout_s", "Wait for tasks to leave", "Draining", "seconds", 30 * MINUTE,
        "After draining began. When it is over a person is asked; tasks are never stopped by force.",
        "max", least=MINUTE, most=7 * DAY, scaled=True,
    ),
    Setting(
        "wait_for_idle", "Wait until it is idle", "Draining", "choice", "never",
        "Before draining. standalone: until no standalone and no protected task runs on it, which ECS would not move. "
        "job: until no job does either, that is no tasks that stop together.",
        "first", ("job", "standalone", "never"),
    ),
    Setting(
        "idle_wait_s", "Wait for that at most", "Draining", "seconds", DAY,
        "Then a person is asked whether to wait longer or to drain it all the same.",
        "max", least=5 * MINUTE, most=14 * DAY, scaled=True,
    ),
    Setting(
        "checkpoint", "Call before draining", "Draining", "names", [],
        "Names of webhook targets, separated by commas, that are told to checkpoint now, signed; each must answer "
        "“ready” before anything is drained. One that refuses has a person asked. none: nobody is called.",
        "union",
    ),
    Setting(
        "checkpoint_wait_s", "Wait for its answer at most", "Draining", "seconds", 10 * MINUTE,
        "It is asked again meanwhile, with the same id.",
        "max", least=MINUTE, most=6 * HOUR, scaled=True,
    ),
    Setting(
        "checkpoint_silence", "If it does not answer", "Draining", "choice", "ask",
        "ask: a person decides. go_on: it is drained without an answer; a refusal is asked about all the same.",
        "first", ("ask", "go_on"),
    ),
    Setting(
        "dead_host", "A dead host", "Dead hosts and stuck tasks", "choice", "ask",
        "auto: tasks on a host that EC2 calls impaired and whose agent is away count as gone once their services "
        "have reached their desired count without them. ask: a person decides.",
        "first", ("ask", "auto"),
    ),
    Setting(
        "unkillable", "A task that cannot be stopped", "Dead hosts and stuck tasks", "choice", "ask",
        "auto: a task whose container will not die counts as gone once its service has reached its desired count "
        "without it. ask: a person decides.",
        "first", ("ask", "auto"),
    ),
    Setting(
        "stop_timeout_s", "Stop time-out of the agent", "Dead hosts and stuck tasks", "seconds", 2 * MINUTE,
        "How long a container whose task definition sets no stopTimeout may take to stop: what the hosts' ECS agents have as "
        "ECS_CONTAINER_STOP_TIMEOUT (30 seconds unless set), or more. AWS does not tell it.",
        "max", least=30, most=DAY, scaled=True,
    ),
    Setting(
        "unkillable_margin_s", "Margin for stopping", "Dead hosts and stuck tasks", "seconds", 5 * MINUTE,
        "Beyond the task's own stop time-out, before it counts as one that cannot be stopped.",
        "max", least=MINUTE, most=DAY, scaled=True,
    ),
    Setting(
        "approvals", "People who must agree", "Approvals", "count", 1,
        "How many different people must approve what is asked.",
        "max", least=1, most=3,
    ),
    Setting(
        "approver_group", "From which group", "Approvals", "text", "",
        "Name of a group of which every approver must be a member. Nothing: everybody with the role and scope.",
        None,
    ),
    Setting(
        "expiry_s", "A question expires after", "Approvals", "seconds", 4 * HOUR,
        "Then nothing is done and it is escalated.",
        "min", least=5 * MINUTE, most=7 * DAY,
    ),
    Setting(
        "undo_s", "Undo time", "Approvals", "seconds", 30,
        "Between an approval and the first call that changes anything.",
        "max", least=0, most=HOUR,
    ),
    Setting(
        "auto_resolve", "Close by itself when the evidence clears", "Approvals", "yes_no", True,
        "No: a person has to close a case whose evidence has cleared.",
        "no",
    ),
    Setting(
        "clear_s", "Clear for", "Timings", "seconds", 5 * MINUTE,
        "How long the evidence must be clear before a case closes by itself.",
        "max", least=MINUTE, most=DAY, scaled=True,
    ),
    Setting(
        "soak_s", "Soak", "Timings", "seconds", 3 * MINUTE,
        "How long a replacement or a rebooted instance must look good before it counts as fit.",
        "max", least=0, most=DAY, scaled=True,
    ),
    Setting(
        "launch_timeout_s", "A replacement serves within", "Timings", "seconds", 20 * MINUTE,
        "From launch until it is registered, connected and good; then a person is asked.",
        "max", least=2 * MINUTE, most=DAY, scaled=True,
    ),
    Setting(
        "reboot_timeout_s", "A reboot is over within", "Timings", "seconds", 30 * MINUTE,
        "From the reboot until the instance is back and good; then a person is asked.",
        "max", least=2 * MINUTE, most=DAY, scaled=True,
    ),
    Setting(
        "notify", "Who is told", "Notices", "names", ["operators"],
        "Names of the receivers, separated by commas. Targets say which of them they listen to.",
        "union",
    ),
)  # fmt: skip

BY_NAME: dict[str, Setting] = {s.name: s for s in SETTINGS}
MODE_NAMES = ("mode_hardware", "mode_ambiguous")


def defaults() -> dict[str, Any]:
    """A fresh copy of every setting's default."""
    return {s.name: _copy(s.default) for s in SETTINGS}


def more_careful_mode(modes: Iterable[str]) -> str:
    return min(modes, key=MODES.index)


def lighter_action(actions: Iterable[str]) -> str:
    return str(min((str(a) for a in actions), key=ACTIONS.index))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else value
