"""Thirty days of a small fleet on the virtual clock: a fault or two on most days, carried out, answered or mended.

What is between the faults passes at one jump a day, as after a quiet night; around each fault the loop runs as always.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from healthboard.cases.models import Evidence
from tests.repairs.driver import Drive, person

DAY_S, STEP_S = 86_400.0, 10.0
#: steps within which a day's faults are seen, and within which their cases are over; the rest is left to the next day
SEEN, MOST = 4, 26
DAYS = 30
#: such steps are longer than an agent's reconnect, which a replacement must be given time for
SETTINGS = {"launch_timeout_s": 6 * 3600}
#: day -> pool -> the fault of that day; a person approves what waits on the days of `APPROVED`, and dismisses the rest
FAULTS: dict[int, dict[str, str]] = {
    0: {"solo": "XID_74"}, 1: {"train": "XID_109"}, 2: {"solo": "XID_79"}, 3: {"train": "XID_120"},
    4: {"solo": "XID_136", "train": "XID_119"}, 6: {"train": "XID_74"}, 8: {"solo": "XID_120"}, 11: {"train": "XID_48"},
    14: {"train": "XID_119"}, 17: {"train": "XID_109"}, 19: {"solo": "XID_119"}, 23: {"train": "XID_136"},
    26: {"solo": "XID_74"}, 29: {"solo": "XID_120"},
}  # fmt: skip
APPROVED = (17,)


class Month:
    def __init__(self, drive: Drive, **settings: Any) -> None:
        self.drive = drive
        self.drive.policy(**SETTINGS, **settings)
        self.began = drive.offset
        self.at = datetime.fromtimestamp(drive.fleet.clock(), tz=UTC)
        self.faults: dict[str, tuple[Any, str]] = {}  # instance id -> machine and its fault

    def pass_days(self, first: int, last: int) -> None:
        for number in range(first, last):
            self._day(number)

    def _day(self, number: int) -> None:
        drive = self.drive
        ahead = self.began + number * DAY_S - drive.offset
        if ahead > 0:
            drive.fleet.advance(ahead, ahead)
            drive._set()
        drive.step(STEP_S)
        for pool, code in FAULTS.get(number, {}).items():
            machine = drive.machine(pool, number % len(drive.fleet.pool(pool)))
            drive.inject(machine, code, number % 4)
            self.faults[machine.id] = machine, code
        for count in range(MOST):
            if not self.faults or (count >= SEEN and not any(map(self._open_case, self.faults))):
                break
            drive.step(STEP_S)
            self._answer(number)
        for machine, code in self.faults.values():  # what is left clears by itself, and its case overnight
            drive.mend(machine, code)
        self.faults = {}

    def _open_case(self, id_: str) -> Any:
        case = self.drive.case(id_)
        return case if case is not None and case.closed_at is None else None

    def _answer(self, number: int) -> None:
        """What people do about what waits or is only observed; a machine whose case a repair closed is done with."""
        for id_, (machine, code) in list(self.faults.items()):
            case = self.drive.case(id_)
            if case is None or case.opened_at < self.at + timedelta(days=number):
                continue
            waited = self.drive.fleet.clock() - case.opened_at.timestamp() >= STEP_S
            if case.state == "WAITING" and waited:
                kind = "approve" if number in APPROVED and case.action == "REBOOT" else "dismiss"
                self.drive.decide(case, kind, by=person("operator"), reason="as the month is written")
                if kind == "dismiss":
                    self._mended(machine, code)
            elif case.state == "OBSERVED" and waited:
                self._mended(machine, code)
            elif case.closed_at is not None:
                self.faults.pop(id_)

    def _mended(self, machine: Any, code: str) -> None:
        self.drive.mend(machine, code)
        self.faults.pop(machine.id)

    def entry(self, row: Evidence, assessment: dict[str, Any], answer: dict[str, Any]) -> tuple[Any, ...]:
        """When, on which instance, on what, and what the policy said."""
        on = row.case.instance.instance_id
        return row.at - self.at, on, tuple(assessment["codes"]), assessment["verdict"], answer["mode"], answer["action"]

    def course(self) -> dict[str, list[tuple[Any, ...]]]:
        """Pool -> what was decided there, evidence by evidence."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for row in Evidence.objects.select_related("case__pool", "case__instance").order_by("pk"):
            found.setdefault(row.case.pool.name, []).append(self.entry(row, row.assessment, row.answer))
        return found
