"""Kernel log lines to events: every generation and form of Xid, SXid, lost-GPU lines, PCIe errors.

`KernelLog` takes lines one at a time in flat memory: equal lines within three minutes are one event with a count.
`parse` reads a whole text. A record that did not come from the kernel never gives an Xid.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any

from healthboard.diagnosis import kernel_lines as lines
from healthboard.diagnosis import log_records, sxid, xid_line
from healthboard.diagnosis.kernel_prefix import START, Origin, lines_of_interest, read_prefix
from healthboard.diagnosis.names import gpu_uuid, pci
from healthboard.diagnosis.parsed import MAX_LINE, UNDATED, IgnoredCounter, Parsed, at_line, cut
from healthboard.diagnosis.signals import Event, Reading

BURST = timedelta(minutes=3)
#: Beyond so many distinct events the details no longer tell lines apart: a flood must not fill the memory.
MAX_DISTINCT = 5_000
#: Uptimes that can't belong to one boot when the second follows the first, in seconds.
_OLD_S, _YOUNG_S = 600, 300
_BATCH = 20_000
_SMALL = 20_000


# a flood repeats a few lines: their bodies are decoded once. What comes out is never changed.
_decode = lru_cache(maxsize=2_048)(xid_line.decode)
_pci = lru_cache(maxsize=1_024)(pci)


class KernelLog:
    """Feed lines in their order, then take `result()`.

    `feed` accepts what a collector already knows (time, kmsg sequence, boot id, facility); without them they are
    read from the line's prefix, and a line without any gets a stand-in time and its line number as sequence.
    """

    def __init__(self, *, boot_id: str | None = None) -> None:
        self.known = 0
        self._boot = boot_id or "boot 0"
        self._fixed_boot = boot_id is not None
        self._boots = 0
        self._line = 0
        self._forged = False
        self._last: datetime | None = None
        self._uptime: float | None = None
        self._base = timedelta()
        self._probe: str | None = None
        self._uuids: dict[str, str] = {}
        self._open: dict[Any, dict[str, Any]] = {}
        self._rows: list[dict[str, Any]] = []
        self._ignored = IgnoredCounter()

    def feed(
        self,
        line: str,
        *,
        at: datetime | None = None,
        seq: int | None = None,
        facility: int | None = None,
    ) -> None:
        self._line += 1
        self._take(line, at, seq, facility)

    def feed_text(self, text: str) -> None:
        """Many lines at once, far faster than one by one. Only a line feed ends a line: names may hold other breaks."""
        first = self._line + 1
        if len(text) < _SMALL:
            self._forged = bool(lines.FORGED.search(text))
            # few enough to look at each for what a reader says about itself
            wanted: Iterable[tuple[int, str]] = enumerate(text.split("\n"))
        else:
            wanted = lines_of_interest(text)
        for number, line in wanted:
            self._line = first + number
            self._take(line, None, None, None)
        self._line = first + text.count("\n")

    def _take(self, line: str, at: datetime | None, seq: int | None, facility: int | None) -> None:
        if len(line) > MAX_LINE:
            line = cut(line, self._ignored)
        if not log_records.BROKEN.search(line):
            return self._one(line, at, seq, facility)
        for part, by_kernel in log_records.physical(line):
            # what follows a line break inside a record has the record's writer
            self._one(part, at, seq, facility if at is not None or by_kernel else 1)

    def _one(self, line: str, at: datetime | None, seq: int | None, facility: int | None) -> None:
        if at is None and line.lstrip().startswith("{") and (record := log_records.unwrap(line)):
            line, stamp, told = record
            at, facility = stamp, facility or told
        if line.startswith("-- ") and ("Boot " in line or "Reboot" in line):
            return self._boot_seen()
        found = START.search(line)
        if not found:
            return self._unstarted(line)
        if at is not None:
            # the collector took the record apart already: the text is the message itself
            origin = read_prefix(line[: found.start()])
            origin = Origin(origin.writer, at, True, seq, origin.times)
        else:
            origin = read_prefix(line[: found.start()])
        if facility or (self._forged and origin.writer == "kernel"):
            origin = Origin("user", origin.at, origin.dated, origin.seq, origin.times)
        self._message(line[found.start() :].rstrip(), line, origin)

    def _unstarted(self, line: str) -> None:
        if self._probe and lines.PROBE_LOST_TAIL.search(line):
            self._emit("GPU_FALLEN_OFF_BUS", self._probe, line, Origin("kernel"))
            self._probe = None
            return
        if lines.REBOOTED.match(line):
            return self._boot_seen()
        for code, pattern in lines.UNREAD:
            if pattern.search(line):
                return self._emit(code, None, line, Origin("kernel"))

    def _message(self, message: str, line: str, origin: Origin) -> None:
        xid = xid_line.XID.match(message)
        if origin.writer != "kernel":
            if (xid or xid_line.SXID.match(message)) and origin.writer == "user":
                self.known += 1
                self._emit("LOG_INJECTION_SUSPECTED", None, line, origin)
            else:
                self._ignored.add("a driver message quoted inside another program's line", line)
            return
        self.known += 1
        self._follow_uptime(origin)
        if xid:
            self._xid(xid, message, origin)
        elif match := xid_line.SXID.match(message):
            self._sxid(match, message, origin)
        elif lines.BOOT.match(message):
            self._boot_seen(origin)
        elif match := lines.IDENTITY.match(message):
            address, uuid = pci(match[1]), gpu_uuid(match[2])
            if address and uuid:
                self._uuids[address] = uuid
        elif message.startswith("NVRM: ") and "Xid (" in message[:14]:
            self._ignored.add("an Xid line whose address or number can't be read", line)
        elif message.startswith(("NVRM: ", "nvidia-nvlink")):
            self._driver(message, line, origin)
        elif message.startswith(("pcieport", "AER", "PCIe", "nvidia ")):
            self._aer(message, line, origin)

    def _xid(self, match: Any, message: str, origin: Origin) -> None:
        number = int(match[3])
        address = _pci(match[1])
        if number == 0 or address is None:
            return self._ignored.add("an Xid line whose address or number can't be read", message)
        attrs = _decode(number, message[match.end() :])
        if match[2]:
            attrs = {**attrs, "mig": match[2].strip()}
        self._emit(f"XID_{number}", address, message, origin, attrs)
        if (cause := attrs.get("caused_by")) and cause != number:
            self._emit(f"XID_{cause}", address, message, origin, {"only_named": True})

    def _sxid(self, match: Any, message: str, origin: Origin) -> None:
        number, rest = int(match[3]), match[4].lstrip(", ")
        word = next((w for w in ("Fatal", "Non-fatal") if rest.lower().startswith(w.lower())), None)
        data = word is None and rest.lower().startswith(("data", "severity"))
        # a line that ends before it could say so was cut
        told = sxid.severity(number, word or (None if len(rest) > len("Non-fatal") else "Non-fatal"), rest)
        attrs: dict[str, Any] = {"severity": "data" if data else told, "switch": pci(match[2])}
        if data:
            attrs["table"] = sxid.severity(number, None, "")
        if link := xid_line.re.search(r"Link (\d{1,3})", rest):
            attrs["link"] = int(link[1])
        self._emit(f"SXID_{number}", None, message, origin, attrs)

    def _driver(self, message: str, line: str, origin: Origin) -> None:
        if head := lines.PROBE_LOST_HEAD.match(message):
            self._probe = pci(head[1])
            if not lines.PROBE_LOST_TAIL.search(message):
                return
        if self._probe and lines.PROBE_LOST_TAIL.search(message):
            self._emit("GPU_FALLEN_OFF_BUS", self._probe, message, origin)
            self._probe = None
            return
        for code, pattern in lines.NAMED:
            if pattern.match(message):
                address = lines.ANY_ADDRESS.search(message)
                attrs: dict[str, Any] = {}
                if code == "ECC_UNCORRECTED" and any(w in message.lower() for w in ("reset", "refus")):
                    attrs["refused"] = True
                if code == "GPU_INIT_FAILED" and (counted := lines.PROBE_COUNT.search(message)):
                    attrs.update(probe=True, devices=int(counted[1]))
                return self._emit(code, pci(address[1]) if address else None, message, origin, attrs)
        self._ignored.add("driver lines that explain or accompany an event", line)

    def _aer(self, message: str, line: str, origin: Origin) -> None:
        match = lines.AER.match(message)
        if match and (match[1] or "").lower() == "nvidia" and lines.INACCESSIBLE.search(match[3] or ""):
            return self._emit("GPU_FALLEN_OFF_BUS", pci(match[2]), message, origin)
        kind = next((k for k, p in lines.AER_KINDS if p.search(match[3] or "")), None) if match else None
        if not match or kind is None:
            return self._ignored.add("PCIe error details", line)
        at = pci(match[2]) if match[2] else None
        gpu = at if (match[1] or "").lower() == "nvidia" else None
        code = {"corrected": "PCIE_AER_CORRECTED", "nonfatal": "PCIE_AER_NONFATAL"}.get(kind, "PCIE_AER_FATAL")
        # whose line it is: that one port could not be recovered says nothing of an error of another
        self._emit(code, gpu, message, origin, {"aer": kind, **({"port": match[2]} if at and not gpu else {})})

    def _follow_uptime(self, origin: Origin) -> None:
        """A clock that begins anew is a boot of which the log does not hold the first lines."""
        if origin.uptime is None:
            return
        if self._uptime is not None and self._uptime > _OLD_S and origin.uptime < _YOUNG_S:
            self._boot_seen()
        self._uptime = origin.uptime

    def _boot_seen(self, origin: Origin | None = None) -> None:
        if origin is not None and origin.uptime and origin.uptime > 60:
            return
        if self._rows and not self._fixed_boot:
            self._boots += 1
            self._boot = f"boot {self._boots}"
            self._open.clear()
            self._base = (self._last or UNDATED) - UNDATED

    def _emit(self, code: str, gpu: str | None, text: str, origin: Origin, attrs: dict[str, Any] | None = None) -> None:
        attrs = attrs or {}
        # undated lines keep the distance of their uptimes, or just their order
        at = self._placed(origin) or (self._last + timedelta(microseconds=1) if self._last else at_line(self._line))
        self._last = at
        key: Any = (code, gpu, self._boot, origin.seq if origin.dated else None, *sorted(attrs.items()))
        if len(self._rows) > MAX_DISTINCT:
            key = (code, gpu, self._boot)
        row = self._open.get(key)
        if row is not None and abs(at - row["last"]) <= BURST:
            row["count"] += origin.times
            row["last"] = max(at, row["last"])
            return
        row = {
            "code": code, "gpu": gpu, "at": at, "last": at, "count": origin.times, "text": text[:500],
            "attrs": attrs if origin.dated else {**attrs, "undated": True},
            "boot": self._boot, "seq": origin.seq if origin.seq is not None else self._line,
        }  # fmt: skip
        self._open[key] = row
        if len(self._rows) < 2 * MAX_DISTINCT:
            self._rows.append(row)

    def _placed(self, origin: Origin) -> datetime | None:
        """The time of a line; an uptime counts on from where the boot before it ended."""
        if origin.at is None or origin.uptime is None or not self._base:
            return origin.at
        from_uptime = abs(origin.at - UNDATED - timedelta(seconds=origin.uptime)) < timedelta(milliseconds=1)
        return origin.at + self._base if from_uptime else origin.at

    def result(self) -> Parsed:
        events = tuple(
            Event(
                at=row["at"],
                code=row["code"],
                source="kernel",
                gpu=self._uuids.get(row["gpu"], row["gpu"]) if row["gpu"] else None,
                text=row["text"],
                attrs=row["attrs"],
                boot_id=row["boot"],
                seq=row["seq"],
                count=row["count"],
                last_at=row["last"] if row["count"] > 1 else None,
            )
            for row in self._rows
        )
        return Parsed(events, self._running(), self._ignored.result(), self.known)

    def _running(self) -> tuple[Reading, ...]:
        """The boot that the log ends in, where it shows more than one: what an earlier one showed is over."""
        if not self._boots or self._last is None:
            return ()
        return (Reading("BOOT_ID", self._boot, "kernel", self._last, self._last, attrs={"undated": True}),)

    @property
    def boot_id(self) -> str:
        """The boot that the last line belongs to; "boot 0" where the log shows none."""
        return self._boot

    @property
    def uuids(self) -> dict[str, str]:
        return self._uuids


def parse(text: str | Iterable[str]) -> Parsed:
    """Events of a whole log, given as text or as an iterable of lines; the latter is read in flat memory."""
    log = KernelLog()
    if isinstance(text, str):
        rows = log_records.rows(text)
        log.feed_text(text if rows is None else "\n".join(rows))
        return log.result()
    lines_left = iter(text)
    while batch := list(islice(lines_left, _BATCH)):
        log.feed_text("\n".join(line.rstrip("\n") for line in batch))
    return log.result()
