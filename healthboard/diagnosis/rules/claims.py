"""A claim is a finding in the making: one code on one GPU or instance, with all that speaks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.signals import ACTION_ORDER, Action, Event, Finding, Reading, Verdict

#: Codes that say the GPU or its host is gone: a reset does not bring it back on the same host.
GONE = frozenset({"XID_79", "GPU_FALLEN_OFF_BUS", "NVML_GPU_IS_LOST", "GFW_BOOT_FAILED"})
#: Spare parts used up: no reset or recovery word changes it.
WORN = frozenset({"ROW_REMAP_FAILURE", "SRAM_THRESHOLD"})
HOST_CODES = ("EC2_", "AWS_", "ECS_AGENT")


@dataclass(slots=True)
class Claim:
    code: str
    gpu: str | None
    verdict: Verdict
    action: Action
    why: str
    rule: str
    events: list[Event] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    role: str = "own"

    @property
    def count(self) -> int:
        return max(1, sum(e.count for e in self.events if not e.attrs.get("only_named")))

    @property
    def first(self) -> datetime:
        return min([e.at for e in self.events] + [r.since for r in self.readings])

    @property
    def last(self) -> datetime:
        return max([e.last_at or e.at for e in self.events] + [r.last for r in self.readings])

    @property
    def told_first(self) -> datetime:
        """When the first event told it, where one did: a reading may have stood long before."""
        return min((e.at for e in self.events), default=self.first)

    @property
    def told_last(self) -> datetime:
        return max((e.last_at or e.at for e in self.events), default=self.last)

    @property
    def order(self) -> tuple[datetime, int, str, str]:
        """Where the claim stands in the story: its time, then its place in the log."""
        return (self.first, min((e.seq or 0 for e in self.events), default=0), self.code, self.gpu or "")

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(sorted({e.source for e in self.events} | {r.source for r in self.readings}))

    @property
    def weight(self) -> int:
        return ACTION_ORDER.index(self.action)

    def set(self, verdict: Verdict, action: Action, why: str, rule: str) -> None:
        self.verdict, self.action, self.why, self.rule = verdict, action, why, rule

    def finding(self, instance: str | None) -> Finding:
        undated = all(e.attrs.get("undated") for e in self.events) and not self.readings
        # a reading of a snapshot has no time of its own either
        undated = undated or (not self.events and all(r.attrs.get("undated") for r in self.readings))
        host = self.code.startswith(("EC2_SYSTEM", "EC2_EVENT", "AWS_HEALTH"))
        return Finding(
            code=self.code, verdict=self.verdict, action=self.action,
            scope="gpu" if self.gpu else "host" if host else "instance", why=self.why, rule=self.rule,
            instance=instance, gpu=self.gpu, count=self.count, first=None if undated else self.first,
            last=None if undated else self.last, told=self.told_last if self.events and not undated else None,
            sources=self.sources, role=self.role,
        )  # fmt: skip


class Claims:
    """The claims by (code, GPU), in the order of their first appearance."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._rows: dict[tuple[str, str | None], Claim] = {}

    def __iter__(self) -> Iterator[Claim]:
        return iter(list(self._rows.values()))

    def add(
        self, code: str, gpu: str | None = None, *, event: Event | None = None, reading: Reading | None = None
    ) -> Claim:
        """The claim of this code and GPU, made from the catalogue's word if it is new."""
        claim = self._rows.get((code, gpu))
        if claim is None:
            entry = self._evidence.catalogue.get(code)
            claim = Claim(code, gpu, entry.verdict, entry.action, entry.why, "catalogue")
            self._rows[code, gpu] = claim
        if event is not None:
            claim.events.append(event)
        if reading is not None:
            claim.readings.append(reading)
        return claim

    def drop(self, claim: Claim) -> None:
        self._rows.pop((claim.code, claim.gpu), None)

    def of(self, *codes: str, gpu: str | None = None) -> list[Claim]:
        return [c for c in self if c.code in codes and (gpu is None or c.gpu == gpu)]

    def on(self, gpu: str | None) -> list[Claim]:
        """Claims of this GPU, and of the instance as a whole."""
        return [c for c in self if c.gpu == gpu or c.gpu is None or gpu is None]

    def numbered(self) -> list[Claim]:
        return [c for c in self if c.code.startswith("XID_")]


def near(a: Claim, b: Claim, span: timedelta) -> bool:
    """Whether the two overlap in time or lie less than `span` apart."""
    return a.first - span <= b.last and b.first - span <= a.last


def bursts(events: list[Event], gap: timedelta) -> list[list[Event]]:
    """Events in groups with no pause longer than `gap` inside."""
    groups: list[list[Event]] = []
    end: datetime | None = None
    for event in sorted(events, key=lambda e: (e.at, e.seq or 0)):
        if end is None or event.at - end > gap:
            groups.append([])
            end = event.at
        groups[-1].append(event)
        end = max(end, event.last_at or event.at)
    return groups


def number_of(code: str) -> int | None:
    tail = code.removeprefix("XID_")
    return int(tail) if tail != code and tail.isdigit() else None
