"""The repairs that trials disturb: how each begins, and how it ends when nobody disturbs it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from healthboard import aws, wake
from healthboard.cases.models import Case
from healthboard.repairs.models import Repair
from tests.repairs.driver import Drive
from tests.safety import databases
from tests.safety.conductor import settle_limits
from tests.safety.site import Site

#: ECS forgets a terminated machine by itself, or is told to: whichever comes first
DEREGISTER = "DeregisterContainerInstance"
DRAIN = "UpdateContainerInstancesState"


@dataclass(frozen=True)
class Flow:
    name: str
    pool: str
    code: str
    outcome: str
    #: changing calls that AWS carries out on the machine, at most
    calls: dict[str, int]
    size: int = 3
    begin: Callable[[Drive, Any], None] = lambda drive, machine: None
    #: what happens within the trial, asked at each step: (conductor) -> None
    hand: Callable[[Any], None] | None = None
    state: str = "SUCCEEDED"
    #: steps at which it may ask a person instead of ending, once it was disturbed
    asks: frozenset[str] = frozenset()
    launches: int = 0
    within_s: float = 400.0
    #: the machine is still there, in service, at the end
    kept: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def pools(self) -> str:
        return f"{self.pool}={'group' if self.pool == 'train' else 'template'}:{self.size}"


def _plain_and_relocated(drive: Drive, machine: Any) -> None:
    with drive.fleet.engine.sandbox.lock:
        machine.tags = {k: v for k, v in machine.tags.items() if not k.startswith("aws:")}
    drive.until(lambda: drive.row(machine).owner == "PLAIN", 30)


def _ask_to_stop(at: str) -> Callable[[Any], None]:
    """A person asks to stop and undo as soon as the repair stands at the step `at`."""

    def hand(conductor: Any) -> None:
        from healthboard.repairs.lifecycle import ask_stop
        from tests.repairs.driver import person

        repair = conductor.the_repair()
        if repair.step == at and repair.state == "RUNNING" and not repair.stop_asked_by:
            ask_stop(repair.pk, actor=person("operator"))

    return hand


def _wide(drive: Drive, machine: Any) -> None:
    """Half of the pool may be out at once."""
    drive.policy(budget_share=0.5, undo_s=0)


#: what is broken in a crowd: no code often enough to be one cause for many
CROWD = ("XID_79", "XID_95", "ROW_REMAP_FAILURE", "XID_79", "XID_95", "ROW_REMAP_FAILURE", "XID_79", "XID_95")
#: a reboot has no token: intended and maybe not sent, it is never sent again but asked
NO_TOKEN = frozenset({"boot"})
_ALL = (
    Flow("REPLACE/TEMPLATE", "solo", "XID_79", "REPLACED", {DRAIN: 1, "TerminateInstances": 1, DEREGISTER: 1}, launches=1),
    Flow("REPLACE/GROUP", "train", "XID_79", "REPLACED",
         {DRAIN: 1, "EnterStandby": 1, "DetachInstances": 1, "TerminateInstances": 1, DEREGISTER: 1}),
    Flow("REBOOT/TEMPLATE", "solo", "XID_95", "REBOOTED", {DRAIN: 2, "RebootInstances": 1}, asks=NO_TOKEN, kept=True),
    Flow("REBOOT/GROUP", "train", "XID_95", "REBOOTED",
         {DRAIN: 2, "EnterStandby": 1, "RebootInstances": 1, "ExitStandby": 1}, asks=NO_TOKEN, kept=True),
    Flow("UNDO/TEMPLATE", "solo", "XID_79", "CANCELLED", {DRAIN: 2}, hand=_ask_to_stop("replacement"),
         state="CANCELLED", launches=1, kept=True),
    Flow("UNDO/GROUP", "train", "XID_79", "CANCELLED", {DRAIN: 2, "EnterStandby": 1, "ExitStandby": 1},
         hand=_ask_to_stop("replacement"), state="CANCELLED", kept=True),
    Flow("WATCH/GROUP", "train", "EC2_SYSTEM_IMPAIRED", "REPLACED_BY_GROUP", {DRAIN: 1, DEREGISTER: 1}),
    Flow("RELOCATE/PLAIN", "solo", "XID_79", "RELOCATED", {DRAIN: 2, "StopInstances": 1, "StartInstances": 1},
         begin=_plain_and_relocated, kept=True, within_s=600, extra={"decide": "RELOCATE"}),
    Flow("DEAD-HOST/TEMPLATE", "solo", "EC2_SYSTEM_IMPAIRED", "REPLACED",
         {DRAIN: 1, "TerminateInstances": 1, DEREGISTER: 1}, size=4, launches=1, within_s=900,
         begin=lambda drive, machine: drive.policy(dead_host="auto"), extra={"busy": True}),
    # no repair: eight cases wait for a person
    Flow("CASES/TEMPLATE", "solo", "XID_119", "", {}, size=9, extra={"cases": 8}),
    Flow("CASES-OF-TWO/TEMPLATE", "solo", "XID_119", "", {}, size=9, extra={"cases": 8, "approvals": 2},
         begin=lambda drive, machine: drive.policy(approvals=2)),
    # eight repairs at once, of both kinds
    Flow("CROWD/TEMPLATE", "solo", "XID_79", "REPLACED", {}, size=16, launches=5, within_s=900, begin=_wide,
         extra={"crowd": CROWD}),
    Flow("CROWD/GROUP", "train", "XID_79", "REPLACED", {}, size=16, within_s=900, begin=_wide, extra={"crowd": CROWD}),
)  # fmt: skip
FLOWS = {flow.name: flow for flow in _ALL}


def folder(site: Site, flow: Flow) -> Path:
    return site.folder / "begun" / databases.slugged(flow.name)


def build(site: Site, flow: Flow) -> None:
    """Begin the flow up to its scheduled repair, and keep database and sandbox. Run it in a process that ends then."""
    target = folder(site, flow)
    name = databases.slugged(flow.name)
    databases.copy(databases.BASE, name)
    databases.use(name)
    shutil.rmtree(site.home / "sandbox", ignore_errors=True)
    wake._quiet_until = float("inf")  # no worker is there yet
    aws._clients = {}
    drive = Drive(site.home, flow.pools)
    drive.working = False
    settle_limits(lambda: drive.offset)
    drive.begin()
    machine = _machine(drive, flow)
    flow.begin(drive, machine)
    drive.inject(machine, flow.code, 0 if flow.code.startswith("XID") else None)
    if action := flow.extra.get("decide"):
        drive.decide(drive.opened(machine), "override", action=action, reason="a trial")
    crowd = [machine.id]
    if flow.extra.get("cases"):
        _waiting_cases(drive, flow)
    elif flow.extra.get("crowd"):
        crowd += _break_a_crowd(drive, flow)
    else:
        drive.until(lambda: drive.repair(machine), 120)
    begun = {"time": drive.fleet.clock(), "machine": machine.id, "crowd": crowd}
    drive.stop()
    databases.connections.close_all()
    target.mkdir(parents=True)
    shutil.copytree(site.home / "sandbox", target / "sandbox")
    (target / "begun.json").write_text(json.dumps(begun))


def _waiting_cases(drive: Drive, flow: Flow) -> None:
    """On as many machines as the flow says; nobody compares them, so that each waits for itself."""
    drive.due["breadth"] = float("inf")
    number = flow.extra["cases"]
    for other in drive.fleet.pool(flow.pool)[1:number]:
        drive.inject(other, flow.code, 0)
    drive.until(lambda: Case.objects.filter(state="WAITING").exclude(action="NONE").count() == number, 120)


def _break_a_crowd(drive: Drive, flow: Flow) -> list[str]:
    """The rest of the crowd, until each has its repair. Gives their ids."""
    codes = flow.extra["crowd"]
    others = drive.fleet.pool(flow.pool)[1 : len(codes)]
    for machine, code in zip(others, codes[1:], strict=True):
        drive.inject(machine, code, 0)
    drive.until(lambda: Repair.objects.count() == len(codes), 120)
    return [m.id for m in others]


def _machine(drive: Drive, flow: Flow) -> Any:
    if not flow.extra.get("busy"):
        return drive.machine(flow.pool)
    world = drive.fleet.world
    for machine in drive.fleet.pool(flow.pool):
        if any(t.service == "simulate" for t in world.live_tasks(world.container_of[machine.id].id)):
            return machine
    raise AssertionError("no machine is busy")
