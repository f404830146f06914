"""A hostile AWS, drawn from a seed: what goes wrong with each call and each launch, and what others do meanwhile.

Each draw rests on the seed and on the number of that operation's call alone: the same calls in the same order meet the
same trouble, whatever else is asked in between. A rule (`interfere`) that fits a call goes before the script. After a
restart the sandbox counts from the beginning again.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from healthboard.sandbox.calls import is_changing
from healthboard.sandbox.entities import Shortage
from healthboard.sandbox.injure import inject
from healthboard.sandbox.interfere import LAUNCHES, Behaviour, Call, behaviour_of
from healthboard.sandbox.others import HANDS, meddle
from healthboard.sandbox.spoil import LISTS, OPTIONAL
from healthboard.sandbox.world import Sandbox, World

SERVICES = ("ec2", "ecs", "autoscaling")
#: shares: of changing and of reading calls that are spoiled, of launches that come up wrong, of changing calls after
#: which somebody else takes a hand, of drains whose tasks do not leave, of minutes without capacity by type and zone
CHANGING, READING, BAD_LAUNCHES, MEDDLED, STUCK, SHORT = 0.35, 0.02, 0.25, 0.1, 0.25, 0.15
#: AWS's seconds: how long reading calls lag at most, until a hand is taken, and how long a shortage lasts
LAG_S, HAND_S, MINUTE_S = 45, 90, 60
BEFORE_AND_AFTER = ("throttle", "drop_before", "drop_after", "error_after", "lag")
SETTING = "hostile"


class Hostile:
    """One seed's script. Call everything with the sandbox's lock held."""

    def __init__(self, sandbox: Sandbox, seed: str) -> None:
        self.sandbox, self.seed = sandbox, seed
        self.began = sandbox.now()
        self.calls: Counter[str] = Counter()
        self.did: Counter[str] = Counter()
        self.hands: list[tuple[float, World, str, str]] = []
        self.short: set[tuple[World, str]] = set()

    def _draw(self, what: str) -> random.Random:
        self.calls[what] += 1
        return random.Random(f"{self.seed}/{what}/{self.calls[what]}")

    def behaviour(self, call: Call) -> Behaviour | None:
        """What happens to this call; None: it is served honestly."""
        if call.service not in SERVICES:
            return None
        rng, changing = self._draw(call.operation), is_changing(call.operation)
        if rng.random() >= (CHANGING if changing else READING):
            return None
        kinds = [*BEFORE_AND_AFTER] if changing else ["throttle", "drop_before", "error_after", "empty"]
        kinds += ["half"] if call.operation in LISTS else []
        kinds += ["fields"] if call.operation in OPTIONAL else []
        kinds += ["no_capacity"] * 2 if call.operation == "RunInstances" else []
        kind = rng.choice(kinds)
        self.did[kind] += 1
        rule: dict[str, Any] = {"do": "error" if kind in ("throttle", "no_capacity") else kind}
        if kind == "no_capacity":
            rule |= {"code": "InsufficientInstanceCapacity", "status": 500, "message": "no capacity at the moment"}
        if kind == "lag":
            rule["lag_s"] = rng.uniform(1, LAG_S)
        if kind == "fields":
            rule["fields"] = [rng.choice(OPTIONAL[call.operation])]
        return behaviour_of(rule, call)

    def fate(self, pool: str) -> dict[str, Any] | None:
        """How the next launch of a pool comes up; None: as it should."""
        rng = self._draw(f"launch/{pool}")
        if rng.random() >= BAD_LAUNCHES:
            return None
        kind = rng.choice(LAUNCHES)
        self.did[kind] += 1
        return {"do": kind}

    def served(self, world: World, call: Call, target: str) -> None:
        """A changing call took effect: its tasks may stay, and others may take a hand in its instance."""
        if "," in target or target not in world.instances:
            return
        rng = self._draw(f"after/{call.operation}")
        if call.params.get("status") == "DRAINING" and rng.random() < STUCK:
            self._hold_tasks(world, target, rng)
        if rng.random() < MEDDLED:
            at = world.after(rng.uniform(0, HAND_S))
            self.hands.append((at, world, target, rng.choice(sorted(HANDS))))

    def _hold_tasks(self, world: World, target: str, rng: random.Random) -> None:
        if rng.random() < 0.5:
            inject(world, world.instances[target], "UNKILLABLE_TASK")
            self.did["never_leave"] += 1
            return
        container = world.container_of.get(target)
        for task in world.live_tasks(container.id) if container else ():
            task.protected_until = world.now() + 3600
        self.did["protected"] += 1

    def tick(self, world: World) -> None:
        now = world.now()
        for hand in [h for h in self.hands if h[0] <= now and h[1] is world]:
            self.hands.remove(hand)
            if meddle(world, hand[2], hand[3]):
                self.did[hand[3]] += 1
        minute = int((now - self.began) / (MINUTE_S / world.config.speed))
        for type_ in sorted({t.versions[t.default].get("InstanceType", "") for t in world.templates.values()} - {""}):
            for zone in world.zones:
                self._weather(world, f"{type_}/{zone}", minute)

    def _weather(self, world: World, key: str, minute: int) -> None:
        bad = random.Random(f"{self.seed}/weather/{world.where}/{key}/{minute}").random() < SHORT
        if bad and key not in world.shortages:
            type_, _, zone = key.partition("/")
            world.add(Shortage(id=key, type=type_, zone=zone, at=world.now()))
            self.short.add((world, key))
            self.did["short_zone"] += 1
        elif not bad and (world, key) in self.short:
            self._clear(world, key)

    def _clear(self, world: World, key: str) -> None:
        self.short.discard((world, key))
        if key in world.shortages:
            world.remove(world.shortages[key])

    def end(self) -> None:
        for world, key in list(self.short):
            self._clear(world, key)


def turn(sandbox: Sandbox, seed: str | None) -> Hostile | None:
    """Begin the script of a seed, or end the one under way (None); returns the one that ended. Takes the lock."""
    with sandbox.lock:
        before = sandbox.hostile
        if before is not None:
            before.end()
        sandbox.hostile = Hostile(sandbox, seed) if seed else None
        sandbox.store.set_setting(SETTING, seed)
        if not seed:
            sandbox.pasts = []
        return before


def resume(sandbox: Sandbox) -> None:
    """After a restart: the script that was under way begins again."""
    if seed := sandbox.store.setting(SETTING):
        sandbox.hostile = Hostile(sandbox, seed)
