"""Events and readings in the order of their time, told apart by boot: what the rules look at.

The order of arrival and a second delivery change nothing: events are sorted by (time, boot, sequence) and an event that
comes twice (same boot and sequence, or the same place in the same text) counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from healthboard.diagnosis.catalogue import Catalogue
from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.signals import Context, Event, Reading, Thresholds

#: A boot time that is computed from an uptime is this uncertain.
_BOOT_SLACK = timedelta(seconds=2)
#: What speaks of the host's own driver and is gone after a reboot.
_BOOTED_SOURCES = frozenset({"kernel", "nvml", "dcgm", "node"})


class Evidence:
    """One instance's evidence. `events` are of the running boot, `earlier` of boots before it."""

    def __init__(
        self,
        events: Iterable[Event],
        readings: Iterable[Reading],
        *,
        now: datetime,
        context: Context,
        thresholds: Thresholds,
        catalogue: Catalogue,
    ) -> None:
        self.now, self.context, self.thresholds, self.catalogue = now, context, thresholds, catalogue
        self._names = dict(context.gpu_names)
        readings = list(readings)
        # a slot may hold another GPU now: its newest name stands
        for r in sorted(readings, key=_reading_order, reverse=True):
            if r.name == "GPU_STATUS" and r.gpu and r.attrs.get("pci"):
                self._names.setdefault(str(r.attrs["pci"]), r.gpu)
        self._latest: dict[tuple[str, str | None, str], Reading] = {}
        self._history: dict[tuple[str, str | None, str], list[Reading]] = {}
        for r in sorted(readings, key=_reading_order):
            key = (r.name, self.named(r.gpu), r.source)
            r = r if key[1] == r.gpu else replace(r, gpu=key[1])
            self._history.setdefault(key, []).append(r)
            self._latest[key] = r
        self.boot_id, self.booted_at = self._boot()
        ordered = _distinct(replace(e, gpu=self.named(e.gpu)) if self.named(e.gpu) != e.gpu else e for e in events)
        self._ordered = ordered
        self.events = [e for e in ordered if not self._before_boot(e)]
        oldest = now - thresholds.repeat_window
        self.earlier = [e for e in ordered if self._before_boot(e) and (e.last_at or e.at) >= oldest]
        self._gaps = self._open_gaps()
        self._silent = {
            r.source: r.since for (name, _, _), r in self._latest.items() if name == "NVML" and r.value != "ok"
        }

    def _open_gaps(self) -> dict[str, Reading]:
        """Sources that are silent now: nothing was heard of them since their gap was last confirmed."""
        heard: dict[str, datetime] = {}
        for (name, _, source), r in self._latest.items():
            if name != "GAP":
                heard[source] = max(r.last, heard.get(source, r.last))
        gaps = [r for (name, _, _), r in self._latest.items() if name == "GAP" and r.value not in (None, "", "ok")]
        return {
            r.source: r for r in gaps if not self._is_old(r) and (r.source not in heard or heard[r.source] < r.last)
        }

    # -- events

    def named(self, gpu: str | None) -> str | None:
        """The GPU's UUID where it is known."""
        return self._names.get(gpu, gpu) if gpu else None

    def of(self, *codes: str, gpu: str | None = None, earlier: bool = False) -> list[Event]:
        pool = self.earlier if earlier else self.events
        return [e for e in pool if e.code in codes and (gpu is None or e.gpu == gpu)]

    def within(self, window: timedelta, *codes: str) -> list[Event]:
        """Events of these codes in the window before now, of any boot."""
        return [e for e in self._ordered if e.code in codes and (e.last_at or e.at) >= self.now - window]

    def _boot(self) -> tuple[str | None, datetime | None]:
        boots = [r for (name, _, _), rows in self._history.items() if name == "BOOT_ID" for r in rows if r.value]
        boots.sort(key=_reading_order)
        boot_id, booted_at = self.context.boot_id, self.context.booted_at
        if boots:
            boot_id = str(boots[-1].value)
            told = parse_time(boots[-1].attrs.get("booted_at"))
            changed = boots[-1].since if any(r.value != boots[-1].value for r in boots) else None
            booted_at = told or booted_at or changed
        return boot_id, booted_at

    def _before_boot(self, event: Event) -> bool:
        if event.source not in _BOOTED_SOURCES:
            return False
        if event.boot_id is not None and self.boot_id is not None:
            return event.boot_id != self.boot_id
        if event.attrs.get("undated"):
            return False
        return self.booted_at is not None and (event.last_at or event.at) < self.booted_at - _BOOT_SLACK

    # -- readings

    def now_of(self, name: str, gpu: str | None = None) -> list[Reading]:
        """The newest reading of each GPU and source, as far as it is fresh and of the running boot."""
        found = [r for (n, g, _), r in self._latest.items() if n == name and (gpu is None or g == gpu)]
        return [r for r in found if not self.is_stale(r)]

    def history(self, reading: Reading) -> list[Reading]:
        """Older intervals of the same name, GPU and source, oldest first, `reading` included."""
        return self._history[reading.name, reading.gpu, reading.source]

    def left(self, reading: Reading, at: datetime) -> list[Any]:
        """The values that `reading` has left since `at`: of its older intervals, those that were told then or later. What
        had ended before says nothing of an event at that time: a good reading after it may only have been interrupted."""
        return [r.value for r in self.history(reading)[:-1] if r.last >= at]

    def is_stale(self, reading: Reading) -> bool:
        """True where the reading says nothing about now: its source is silent, or says itself since that it can't read;
        it is too old, or of an earlier boot."""
        gap = self._gaps.get(reading.source)
        if gap is not None and reading.name != "GAP":
            return True
        silent = self._silent.get(reading.source)
        if silent is not None and reading.last < silent:
            return True
        return self._is_old(reading) or self._read_before_boot(reading)

    def _read_before_boot(self, reading: Reading) -> bool:
        """Last confirmed before the running boot: what the driver said then was of another start of it."""
        if self.booted_at is None or reading.source not in _BOOTED_SOURCES or reading.attrs.get("undated"):
            return False
        return reading.last < self.booted_at - _BOOT_SLACK

    def _is_old(self, reading: Reading) -> bool:
        return self.now - reading.last > self.thresholds.stale_after

    def stale_sources(self) -> dict[str, tuple[datetime, str]]:
        """Sources none of whose readings is fresh: (last heard, reason). Silence that we caused is left out."""
        newest: dict[str, Reading] = {}
        for (name, _, source), r in self._latest.items():
            if name not in ("GAP", "BOOT_ID") and (source not in newest or r.last > newest[source].last):
                newest[source] = r
        found = {}
        for source, r in sorted(newest.items()):
            gap = self._gaps.get(source)
            if self.is_stale(r) and not (gap and gap.attrs.get("expected")):
                why = "nothing was heard since the last boot" if self._read_before_boot(r) else "nothing was heard"
                found[source] = (r.last, str(gap.value) if gap else why)
        for source, gap in sorted(self._gaps.items()):
            if source not in newest and not gap.attrs.get("expected"):
                found[source] = (gap.since, str(gap.value))
        return found

    def expected_silence(self, source: str) -> bool:
        gap = self._gaps.get(source)
        return bool(gap and gap.attrs.get("expected"))

    def has(self, *names: str) -> bool:
        return any(name in names for (name, _, _) in self._latest)

    def fresh(self) -> Iterator[Reading]:
        return (r for r in self._latest.values() if not self.is_stale(r))


def _reading_order(r: Reading) -> tuple[Any, ...]:
    version = r.attrs.get("version")
    number = version if isinstance(version, int) else -1
    # to the end in an order of its own: who comes first must not depend on how they were handed in
    return (r.last, number, r.since, r.observations, str(r.value), r.name, r.source, r.gpu or "")


def _event_order(e: Event) -> tuple[Any, ...]:
    return (e.at, e.boot_id or "", -1 if e.seq is None else e.seq, e.code, e.gpu or "", e.source, e.count, e.text)


def _distinct(events: Iterable[Event]) -> list[Event]:
    found: dict[Any, Event] = {}
    for e in sorted(events, key=_event_order):
        if e.boot_id is not None and e.seq is not None:
            key: Any = (e.source, e.code, e.gpu, e.boot_id, e.seq, None)
        else:
            key = (e.source, e.code, e.gpu, e.at, e.seq, e.text)
        old = found.get(key)
        if old is None:
            found[key] = e
        elif (e.count, e.last_at or e.at) > (old.count, old.last_at or old.at):
            found[key] = replace(e, at=min(e.at, old.at))
    return sorted(found.values(), key=_event_order)
