"""`correlate`: what many instances have in common. Pure: subjects in, groups out; holding is the breaker's work.

First roots and victims: when a job stops, all its nodes speak at once. One node with a hardware code and mates that
show only aftermath is one fault, not a storm. Then breadth: one code on many instances of a zone, pool, image, driver,
instance type or workload, or many instances whatever their codes, is one incident with a common cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

#: What the mates of a broken node show: torn-down channels, application faults, broken communication.
AFTERMATH = frozenset({"XID_45", "XID_43", "XID_13", "XID_31", "XID_94", "TASKS_FAILING", "COMMUNICATION_ERROR"})
#: Announced beforehand: never a storm, and what follows from it is none either.
ANNOUNCED = frozenset(
    {
        "EC2_SPOT_INTERRUPTION", "EC2_REBALANCE", "CAPACITY_BLOCK_ENDING", "SCALE_IN", "WARM_POOL_STOP",
        "ECS_IDLE_REMOVAL", "ROLL_OUT",
    }
)  # fmt: skip
_FOLLOWS_ANNOUNCED = frozenset(
    {
        "ECS_AGENT_DISCONNECTED", "EC2_INSTANCE_IMPAIRED", "MONITORING_GAP", "ECS_INSTANCE_INACTIVE",
        "EC2_INSTANCE_NOT_FOUND", "EC2_STATUS_EMPTY", "ECS_INSTANCE_MISSING",
    }
)  # fmt: skip
#: Beside Xids without a case, what is a common cause when many nodes show it: heat and power.
SOFT_READINGS = frozenset({"GPU_OVERTEMP", "GPU_HW_THERMAL_SLOWDOWN", "GPU_POWER_BRAKE"})
#: The most telling kind of scope first, where two explain the same instances equally well.
SCOPE_ORDER = ("driver", "zone", "image", "workload", "pool", "instance_type")


@dataclass(frozen=True, slots=True)
class Subject:
    """One instance's findings. `codes` are its decisive ones (HARDWARE or AMBIGUOUS, no companions); `at` is when they
    began. `all_codes` are all that it shows, with which a victim or a soft storm is recognised."""

    instance: str
    at: datetime
    codes: tuple[str, ...]
    scopes: Mapping[str, str] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()
    all_codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """From how many on it is breadth. `soft_*` are for codes that open no case (an application's fault, clean-up)."""

    window: timedelta = timedelta(minutes=10)
    same_code: int = 4
    share: float = 0.25
    small_scope: int = 8
    same_code_small: int = 3
    any_code: int = 10
    soft_count: int = 10
    soft_share: float = 0.5
    job_window: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Group:
    """`kind` is ROOT (one fault and its victims: no hold) or CORRELATED (one cause for all: hold). `soft` marks a storm
    of codes that nothing would be repaired for."""

    kind: str
    scope: tuple[str, str]
    code: str | None
    instances: tuple[str, ...]
    root: str | None = None
    victims: tuple[str, ...] = ()
    why: str = ""
    soft: bool = False


_BOUNDS = Bounds()


def correlate(
    subjects: Iterable[Subject],
    *,
    now: datetime,
    sizes: Mapping[tuple[str, str], int],
    bounds: Bounds = _BOUNDS,
    released: Mapping[tuple[str, str], datetime] | None = None,
) -> tuple[Group, ...]:
    """Groups among the subjects, roots first; no instance is in two CORRELATED groups.

    `sizes` gives how many instances a scope (kind, value) has; a scope without a size counts as no larger than its
    subjects. Evidence not newer than `released` of a scope no longer counts in that scope.
    """
    pool = sorted((s for s in map(_without_announced, subjects) if s.at <= now), key=lambda s: (s.at, s.instance))
    roots = _roots(pool, bounds)
    victims = {v for group in roots for v in group.victims}
    left = [s for s in pool if s.instance not in victims]
    plain_sizes = {_plain(scope): size for scope, size in sizes.items()}
    latest: dict[tuple[str, str], datetime] = {}
    for scope, when in (released or {}).items():
        latest[_plain(scope)] = max(when, latest.get(_plain(scope), when))
    storms = _storms(left, plain_sizes, bounds, latest)
    return (*roots, *storms)


def _plain(scope: tuple[str, str]) -> tuple[str, str]:
    """Several workloads of one instance come under keys ``workload:<name>``: all of them are of kind workload."""
    return scope[0].partition(":")[0], scope[1]


def _without_announced(subject: Subject) -> Subject:
    every = set(subject.all_codes) | set(subject.codes)
    if not every & ANNOUNCED:
        return subject
    gone = ANNOUNCED | _FOLLOWS_ANNOUNCED
    return Subject(
        subject.instance, subject.at, tuple(c for c in subject.codes if c not in gone), subject.scopes, subject.jobs,
        tuple(c for c in subject.all_codes if c not in gone),
    )  # fmt: skip


def _roots(pool: list[Subject], bounds: Bounds) -> list[Group]:
    jobs: dict[str, list[Subject]] = {}
    for subject in pool:
        for job in subject.jobs:
            jobs.setdefault(job, []).append(subject)
    groups: list[Group] = []
    for job, members in sorted(jobs.items()):
        broken = [s for s in members if set(s.codes) - AFTERMATH]
        if len({s.instance for s in broken}) != 1:
            continue
        root = broken[0]
        mates = [
            s for s in members
            if s.instance != root.instance and abs(s.at - root.at) <= bounds.job_window and _only_aftermath(s)
        ]  # fmt: skip
        if not mates:
            continue
        code = next(c for c in root.codes if c not in AFTERMATH)
        names = tuple(dict.fromkeys(s.instance for s in mates))
        why = f"{code} on {root.instance}; {len(names)} mates of the same job show only what follows from it"
        groups.append(Group("ROOT", ("job", job), code, (root.instance, *names), root.instance, names, why))
    return groups


def _only_aftermath(subject: Subject) -> bool:
    shown = set(subject.all_codes) | set(subject.codes)
    return bool(shown) and shown <= AFTERMATH


@dataclass(slots=True)
class _Candidate:
    scope: tuple[str, str]
    code: str | None
    subjects: list[Subject]
    size: int
    need: int
    share: float
    soft: bool

    def among(self, explained: set[str], window: timedelta) -> set[str]:
        """Instances, not yet explained, that are enough within one window; empty if they are not."""
        rows = [s for s in self.subjects if s.instance not in explained]
        found: set[str] = set()
        start = 0
        for end, last in enumerate(rows):
            while last.at - rows[start].at > window:
                start += 1
            here = rows[start : end + 1]
            units = {s.jobs[0] if self.soft and s.jobs else s.instance for s in here}
            names = {s.instance for s in here}
            if len(units) >= self.need and len(names) >= self.share * self.size:
                found |= names
        return found


def _storms(
    pool: list[Subject],
    sizes: Mapping[tuple[str, str], int],
    bounds: Bounds,
    released: Mapping[tuple[str, str], datetime],
) -> list[Group]:
    candidates = _candidates(pool, sizes, bounds, released)
    explained: set[str] = set()
    groups: list[Group] = []
    while True:
        best: tuple[tuple[object, ...], _Candidate, set[str]] | None = None
        for candidate in candidates:
            names = candidate.among(explained, bounds.window)
            if not names:
                continue
            kind = candidate.scope[0]
            order = SCOPE_ORDER.index(kind) if kind in SCOPE_ORDER else len(SCOPE_ORDER)
            rank = (
                candidate.soft, -len(names), candidate.code is None, candidate.size, order, candidate.scope,
                candidate.code or "",
            )  # fmt: skip
            if best is None or rank < best[0]:
                best = (rank, candidate, names)
        if best is None:
            return groups
        _, chosen, names = best
        explained |= names
        what = chosen.code or "different codes"
        why = f"{what} on {len(names)} of {chosen.size} instances of {chosen.scope[0]} {chosen.scope[1]} within minutes"
        groups.append(Group("CORRELATED", chosen.scope, chosen.code, tuple(sorted(names)), why=why, soft=chosen.soft))


def _candidates(
    pool: list[Subject],
    sizes: Mapping[tuple[str, str], int],
    bounds: Bounds,
    released: Mapping[tuple[str, str], datetime],
) -> list[_Candidate]:
    by_scope: dict[tuple[str, str], list[Subject]] = {}
    for subject in pool:
        for scope in sorted({_plain(scope) for scope in subject.scopes.items()}):
            if scope not in released or subject.at > released[scope]:
                by_scope.setdefault(scope, []).append(subject)
    found: list[_Candidate] = []
    for scope, members in sorted(by_scope.items()):
        size = max(sizes.get(scope, 0), 1) if scope in sizes else len({s.instance for s in members})
        need = bounds.same_code_small if size < bounds.small_scope else bounds.same_code
        decisive = [s for s in members if s.codes]
        for code in sorted({c for s in decisive for c in s.codes}):
            rows = [s for s in decisive if code in s.codes]
            found.append(_Candidate(scope, code, rows, size, need, bounds.share, False))
        found.append(_Candidate(scope, None, decisive, size, bounds.any_code, bounds.share, False))
        if scope[0] == "workload":
            continue  # one application's fault on all its instances is its own, not the fleet's
        soft = [s for s in members if not s.codes]
        for code in sorted({c for s in soft for c in s.all_codes if c.startswith("XID_") or c in SOFT_READINGS}):
            rows = [s for s in soft if code in s.all_codes]
            found.append(_Candidate(scope, code, rows, size, bounds.soft_count, bounds.soft_share, True))
    return found
