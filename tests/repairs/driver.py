"""A whole installation in one process and one thread: sandbox, collectors, nodes, decisions and repairs, step by step
on one virtual clock. Nothing is replaced but time, the broker and the sockets of the nodes."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from healthboard import clock
from healthboard.api import node_intake
from healthboard.api.node_schema import Report
from healthboard.cases import invariants
from healthboard.cases.models import Case
from healthboard.fleet.models import Account, Instance, Source
from healthboard.people.actors import Actor
from healthboard.policies.defaults import ensure_default
from healthboard.repairs.models import Repair, Switch
from healthboard.sandbox.config import parse_pools
from healthboard.sandbox.entities import Instance as Machine
from healthboard.sandbox.injure import clear, inject
from tests import factories
from tests.sandbox.conftest import ACCOUNT, REGION, Fleet
from workers.collect import ec2, ecs, events, store
from workers.decide import breadth, instance, time
from workers.repair import engine
from workers.verify import carry

#: calls that change something, as the sandbox logs them
CHANGING = invariants.CHANGING
SPEED = 30.0
COLLECT_S, EVENTS_S, LOOK_S, BREADTH_S = 8.0, 15.0, 10.0, 10.0
#: what a healthy node waits longer between reports: bystanders only take time
QUIET_S = 12.0
#: what passes between collecting and reading: what is read at the very time of its evidence is read once more
BEAT_S = 2.0**-10  # and adds up without rounding


class Still:
    """A clock that stands until it is turned. `at`: where it begins, else now."""

    def __init__(self, at: datetime | None = None) -> None:
        self.base, self.offset = float(int((at or datetime.now(UTC)).timestamp())), 0.0

    def __call__(self) -> float:
        return self.base + self.offset


class _World(Fleet):
    """The in-process sandbox with a clock that stands still between steps."""

    def __init__(self, home: Path, at: datetime | None = None, **settings: Any) -> None:
        from healthboard.sandbox.config import Config
        from healthboard.sandbox.server import Engine

        self.clock = Still(at)  # type: ignore[assignment]
        values: dict[str, Any] = {"speed": SPEED, "script": False, "post": False, "own_vpc": True, **settings}
        self.engine = Engine(Config(home=home, **values), self.clock)
        self.engine.start(ticking=False)
        self.home, self.url = home, self.engine.url


class Drive:
    """The one loop. `step` is one second of everything; `until` steps on until something is so."""

    def __init__(
        self, home: Path, pools: str = "train=group:4,solo=template:4", *, others: bool = False,
        at: datetime | None = None,
    ) -> None:  # fmt: skip
        self.fleet = _World(home, at, pools=parse_pools(pools))
        if not others:
            _only_ours(self.fleet)
        self.crew = self.fleet.engine.crew
        self.since = self.fleet.clock.base  # who booted later is a replacement
        self.due = {"collect": 0.0, "events": 0.0, "look": 0.0, "breadth": 0.0}
        self.hands: list[Callable[[], Any]] = []  # what others do, asked at every step
        self.working = True  # repairs are carried on
        self.watching = False  # what is told is stored, and nothing follows from it yet
        self.one_pass: Callable[[], None] = lambda: None  # from then on a claim takes one step at most
        self._set()

    def begin(self) -> None:
        """The database's side: acting switched on, a default policy, sources that can see, nodes that reported."""
        Switch.objects.create(acting=True, changed_at=clock.now(), changed_by="test")
        ensure_default()
        self.account = Account.objects.get_or_create(account_id=ACCOUNT)[0]
        self.watching = True
        self.steps(2, 5.0)
        self.watching = False
        self.step(5.0)  # two rounds in all, and time for each node to have reported

    # --- time

    def _set(self) -> None:
        clock._virtual = datetime.fromtimestamp(self.fleet.clock(), UTC)

    @property
    def offset(self) -> float:
        return self.fleet.clock.offset

    def step(self, seconds: float = 1.0) -> None:
        self.fleet.advance(seconds - self.offset % (2 * BEAT_S), seconds)  # to a whole time again
        self._set()
        for hand in list(self.hands):
            hand()
        if self._turn("collect", COLLECT_S):
            self.collect()
        self.report()
        self.fleet.clock.offset += BEAT_S
        self._set()
        if self.watching:
            return
        instance.read_due()
        if self._turn("look", LOOK_S):
            time.pass_over()
        if self._turn("breadth", BREADTH_S):
            breadth.look()
        if self.working:
            self.sweep()
        carry.sweep()

    def steps(self, count: int, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.step(seconds)

    def until(self, happened: Callable[[], Any], within: float = 200, seconds: float = 2.0) -> Any:
        end = self.offset + within
        while not (found := happened()):
            assert self.offset < end, f"not within {within} s: {self.said()}"
            self.step(seconds)
        return found

    def _turn(self, name: str, every: float) -> bool:
        if self.offset < self.due[name]:
            return False
        self.due[name] = self.offset + every
        return True

    # --- the loop's parts

    def collect(self) -> None:
        Source.objects.update(attempted_at=None)
        account = store.account_of(ACCOUNT)
        ec2.collect(account, REGION)
        ecs.collect(account, REGION)
        if self.fleet.world.messages and self._turn("events", EVENTS_S):
            events.collect(account, REGION)

    def report(self) -> None:
        """What the nodes' posters do, without their sockets."""
        sandbox = self.fleet.engine.sandbox
        with sandbox.lock:
            jobs = self.crew.due()
        for job in jobs:
            row = Instance.objects.select_related("account", "pool", "cluster").filter(instance_id=job.instance).first()
            if row is None or row.gone_at is not None:
                status, answer = 404, {}
            elif job.report is None:
                status, answer = 200, {"token": "made-up"}
            else:
                status, answer = self.take(row, job.report)
            with sandbox.lock:
                self.crew._done(job, status, answer)
                machine = job.world.instances[job.instance]
                awaited = job.report is None and machine.booted_at > self.since  # a replacement's first
                if not (machine.faults or job.node.running or answer.get("requests") or awaited):
                    job.node.due += QUIET_S

    def take(self, row: Instance, told: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and answer of the server to one node's report."""
        return 200, node_intake.take(row, Report.model_validate_json(json.dumps(told)))

    def sweep(self) -> None:
        from healthboard.repairs import lifecycle

        for repair_id in lifecycle.due():
            engine.advance(repair_id)

    # --- things in it

    def machine(self, pool: str, number: int = 0) -> Machine:
        return self.fleet.pool(pool)[number]

    def row(self, machine: Machine | str) -> Instance:
        return Instance.objects.select_related("account", "pool", "cluster").get(instance_id=_id(machine))

    def group(self, name: str = "train-asg"):
        return self.fleet.world.groups[name]

    def inject(self, machine: Machine, code: str, gpu: int | None = None) -> None:
        with self.fleet.engine.sandbox.lock:
            inject(self.fleet.world, machine, code, gpu)

    def mend(self, machine: Machine, code: str) -> None:
        with self.fleet.engine.sandbox.lock:
            clear(self.fleet.world, machine, code)

    def rules(self, *rules: dict[str, Any]) -> None:
        self.fleet.engine.sandbox.set_rules(rules)

    def case(self, machine: Machine | str) -> Case | None:
        return Case.objects.filter(instance__instance_id=_id(machine)).order_by("-pk").first()

    def repair(self, machine: Machine | str) -> Repair | None:
        return Repair.objects.filter(instance__instance_id=_id(machine)).order_by("-pk").first()

    def opened(self, machine: Machine, within: float = 40) -> Case:
        return self.until(lambda: self.case(machine), within)

    def repaired(self, machine: Machine, within: float = 400, seconds: float = 3.0) -> Repair:
        """Until its repair has ended and was carried back."""

        def over() -> Repair | None:
            found = self.repair(machine)
            return found if found is not None and found.closed_at and found.carried_back_at else None

        return self.until(over, within, seconds)

    def asking(self, machine: Machine, within: float = 400) -> Repair:
        def asks() -> Repair | None:
            found = self.repair(machine)
            assert found is None or found.closed_at is None, f"it ended: {found.outcome} {found.outcome_why}"
            return found if found is not None and found.state == "ASKING" else None

        return self.until(asks, within, 3.0)

    def at_step(self, machine: Machine, name: str, within: float = 300) -> Repair:
        """Until its repair stands at the step `name`, not yet taken or waiting within it."""
        return self.until(lambda: (r := self.repair(machine)) is not None and r.step == name and r, within, 1.0)

    def decide(self, case: Case, kind: str = "approve", *, by: Actor | None = None, **more: Any):
        from healthboard.cases.answers import decide

        case.refresh_from_db()
        values = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash, **more}
        return decide(case.pk, actor=by or person("operator"), kind=kind, **values)

    def policy(self, **settings: Any) -> None:
        """Other settings of the fleet default, from now on."""
        from healthboard.policies.models import Policy, PolicyVersion

        default = Policy.objects.select_related("current").get(is_default=True)
        data = {**default.current.data, "settings": {**default.current.data.get("settings", {}), **settings}}
        default.current = PolicyVersion.objects.create(
            policy=default, number=default.current.number + 1, data=data, saved_at=clock.now()
        )
        default.save()

    def calls(self, machine: Machine | str | None = None) -> Counter[str]:
        """Changing calls that AWS carried out, by operation; about one instance, or all."""
        from healthboard.sandbox.status import status

        id_ = machine and _id(machine)
        with self.fleet.engine.sandbox.lock:
            log = status(self.fleet.engine.sandbox, self.fleet.url)["calls"]
        return Counter(
            c["operation"] for c in log
            if c["operation"] in CHANGING and c["outcome"] == "ok" and id_ in (None, c["target"])
        )  # fmt: skip

    def sound(self) -> None:
        """No invariant is broken, and the pools are as full as they were meant to be."""
        assert invariants.check() == []

    def said(self) -> str:
        rows = Repair.objects.order_by("pk")
        return (
            "; ".join(f"{r} {r.state} {r.step} {r.why_waiting or r.outcome_why}" for r in rows)
            + " | "
            + "; ".join(
                f"{c.title} {c.state} {c.verdict}/{c.mode} {c.why_waiting or c.mode_why}"
                for c in Case.objects.order_by("pk")
            )
        )

    def stop(self) -> None:
        clock._virtual = None
        self.fleet.stop()


def _id(machine: Machine | str) -> str:
    return machine if isinstance(machine, str) else machine.id


def _only_ours(fleet: Fleet) -> None:
    """Without Batch's cluster and the Managed Instances: their rounds would only take time."""
    world = fleet.world
    with fleet.engine.sandbox.lock:
        kept = {c.id for c in world.containers.values() if c.cluster == "gpu" and c.provider != "managed"}
        for container in [c for c in world.containers.values() if c.id not in kept]:
            for task in [t for t in world.tasks.values() if t.container == container.id]:
                world.remove(task)
            world.remove(world.instances[container.instance])
            world.remove(container)
        for cluster in [c for c in world.clusters.values() if c.id != "gpu"]:
            world.remove(cluster)
        for group in [g for g in world.groups.values() if g.id.startswith("AWSBatch")]:
            world.remove(group)
        world.remove(world.providers["managed"])
        world.clusters["gpu"].providers = [p for p in world.clusters["gpu"].providers if p != "managed"]


_people: dict[str, Any] = {}


def person(role: str = "operator", name: str = "", *, recent: bool = True) -> Actor:
    """One person per role and name, made at first use."""
    from django.contrib.auth import get_user_model

    name = name or f"{role}-one"
    user = get_user_model().objects.filter(username=name).first() or factories.person(role, name)
    return factories.actor(user, recent=recent)


def later(seconds: float) -> datetime:
    return clock.now() + timedelta(seconds=seconds)


def seeded(number: int = 1) -> None:
    random.seed(number)
