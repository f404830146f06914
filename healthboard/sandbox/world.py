"""One account and region (`World`), and all of them with what they share (`Sandbox`).

One lock guards everything: a call's handler and a tick never run at the same time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from healthboard.sandbox.config import Config
from healthboard.sandbox.entities import (
    Activity,
    Cluster,
    Container,
    Counters,
    Definition,
    Entity,
    Group,
    Instance,
    Message,
    Provider,
    Reservation,
    Service,
    Shortage,
    Task,
    Template,
    Token,
)  # fmt: skip
from healthboard.sandbox.hardware import digest, stable_uuid
from healthboard.sandbox.store import Store

E = TypeVar("E", bound=Entity)


class World:
    """The entities of one account and region, by kind and id."""

    def __init__(self, sandbox: Sandbox, account: str, region: str) -> None:
        self.sandbox = sandbox
        self.number = len(sandbox.worlds)  # their networks do not overlap
        self.account = account
        self.region = region
        self.instances: dict[str, Instance] = {}
        self.containers: dict[str, Container] = {}
        self.tasks: dict[str, Task] = {}
        self.services: dict[str, Service] = {}
        self.clusters: dict[str, Cluster] = {}
        self.providers: dict[str, Provider] = {}
        self.groups: dict[str, Group] = {}
        self.templates: dict[str, Template] = {}
        self.activities: dict[str, Activity] = {}
        self.reservations: dict[str, Reservation] = {}
        self.tokens: dict[str, Token] = {}
        self.shortages: dict[str, Shortage] = {}
        self.messages: dict[str, Message] = {}  # of the place's one queue, oldest first
        self.counters_by_id: dict[str, Counters] = {}
        self.definitions: dict[str, Definition] = {}
        self.container_of: dict[str, Container] = {}  # by instance id: the newest
        self._tables: dict[str, dict[str, Any]] = {
            "instance": self.instances, "container": self.containers, "task": self.tasks, "service": self.services,
            "cluster": self.clusters, "provider": self.providers, "group": self.groups, "template": self.templates,
            "activity": self.activities, "reservation": self.reservations, "token": self.tokens,
            "shortage": self.shortages, "message": self.messages, "counters": self.counters_by_id,
            "definition": self.definitions,
        }  # fmt: skip
        self.rng = random.Random(f"{sandbox.config.seed}/{account}/{region}")

    @property
    def where(self) -> tuple[str, str]:
        return self.account, self.region

    @property
    def config(self) -> Config:
        return self.sandbox.config

    @property
    def zones(self) -> list[str]:
        return [self.region + letter for letter in "abc"]

    def add(self, entity: E, *, loaded: bool = False) -> E:
        self._tables[entity.kind][entity.id] = entity
        entity.__dict__["_where"] = self.where
        entity.__dict__["_dirty"] = self.sandbox.dirty
        if not loaded:
            self.sandbox.dirty.add(entity)
        if isinstance(entity, Container):
            known = self.container_of.get(entity.instance)
            if known is None or known.registered_at <= entity.registered_at:
                self.container_of[entity.instance] = entity
        return entity

    def remove(self, entity: Entity) -> None:
        self._tables[entity.kind].pop(entity.id, None)
        self.sandbox.dirty.discard(entity)
        self.sandbox.removed.append((self.where, entity.kind, entity.id))
        if isinstance(entity, Container) and self.container_of.get(entity.instance) is entity:
            del self.container_of[entity.instance]

    # time

    def now(self) -> float:
        return self.sandbox.now()

    def after(self, aws_seconds: float) -> float:
        """The moment when something that takes AWS this long is done."""
        return self.sandbox.now() + aws_seconds / self.config.speed

    # identity

    @property
    def counters(self) -> Counters:
        return self.counters_by_id.get("all") or self.add(Counters(id="all"))

    def count(self, name: str) -> int:
        """The next number of a sequence that survives a restart."""
        counters = self.counters
        value = counters.values.get(name, 0) + 1
        counters.values = {**counters.values, name: value}
        return value

    def seeded(self, *parts: object) -> str:
        return digest(self.config.seed, self.account, self.region, *parts)

    def new_hex(self, kind: str, length: int) -> str:
        return self.seeded(kind, self.count(kind))[:length]

    def new_uuid(self, kind: str) -> str:
        return stable_uuid(self.config.seed, self.account, self.region, kind, self.count(kind))

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"

    # often asked

    def template_named(self, name: str) -> Template | None:
        return next((t for t in self.templates.values() if t.name == name), None)

    def group_of(self, instance: str) -> Group | None:
        return next((g for g in self.groups.values() if instance in g.members), None)

    def live_tasks(self, container: str) -> list[Task]:
        return [t for t in self.tasks.values() if t.container == container and t.last != "STOPPED"]


class Sandbox:
    """All worlds, the state file, the clock and the lock."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self.now = clock
        self.lock = threading.RLock()
        self.dirty: set[Entity] = set()
        self.removed: list[tuple[tuple[str, str], str, str]] = []
        self.store = Store(config.state_file)
        self.worlds: dict[tuple[str, str], World] = {}
        self.mode: str = self.store.setting("aws", "ok")
        self.rules: list[dict[str, Any]] = self.store.setting("rules", [])
        self.hostile: Any = None  # a `hostile.Hostile` while its script is under way
        self.pasts: list[Any] = []  # `spoil.Past`: what a lagging AWS still shows
        self.started_at = clock()
        self.url = ""  # where it is served
        self.collected_at: float | None = None  # since when the nodes are known to the web server
        for account in config.accounts:
            for region in config.regions:
                self.worlds[account, region] = World(self, account, region)
        self._load()

    def _load(self) -> None:
        for where, entity in self.store.load():
            if where in self.worlds:
                self.worlds[where].add(entity, loaded=True)

    def world(self, account: str, region: str) -> World:
        """A region without a fleet answers with empty lists, like a region that nobody uses."""
        return self.worlds.get((account, region)) or World(self, account, region)

    def set_mode(self, mode: str) -> None:
        self.mode = mode
        self.store.set_setting("aws", mode)

    def set_rules(self, rules: Iterable[dict[str, Any]]) -> None:
        self.rules = list(rules)
        self.store.set_setting("rules", self.rules)

    def flush(self) -> None:
        """Commit what changed. Call with the lock held."""
        dirty = [(e.__dict__["_where"], e) for e in self.dirty if e.__dict__["_where"] in self.worlds]
        self.dirty.clear()
        removed, self.removed = self.removed, []
        self.store.write(dirty, removed)

    def close(self) -> None:
        with self.lock:
            self.flush()
            self.store.close()
