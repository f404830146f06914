"""Faults that come by themselves: one clear failure, one ambiguous, then another every few minutes.

Times are wall seconds: they are for the person who watches. What comes next is kept in the state, so that a restart
goes on where it was.
"""

from __future__ import annotations

import random

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.hardware import TYPES, digest
from healthboard.sandbox.injure import clear, inject
from healthboard.sandbox.nodes.crew import Crew
from healthboard.sandbox.world import Sandbox, World

#: (code, the owner of the pool it strikes or None)
OPENING = (("XID_79", "template"), ("XID_119", "group"))
LATER = (
    "XID_95", "XID_63", "ROW_REMAP_FAILURE", "XID_13", "XID_109", "XID_62", "AGENT_BLINK", "XID_140", "XID_31",
    "ECS_AGENT_DISCONNECTED", "XID_48", "EC2_SYSTEM_IMPAIRED", "XID_94", "XID_74", "XID_64", "GPU_HW_THERMAL_SLOWDOWN",
    "XID_110", "XID_120", "GPU_MISSING", "XID_154", "NVML_LIB_RM_VERSION_MISMATCH", "XID_45",
)  # fmt: skip
#: symptoms that pass by themselves, and after how long
PASSING = {"ECS_AGENT_DISCONNECTED": 150.0, "GPU_HW_THERMAL_SLOWDOWN": 120.0, "XID_63": 240.0}
WAIT_FOR_NODES_S, FIRST_S, SECOND_S = 20.0, 4.0, 25.0
GAP_S = (120.0, 240.0)
MOST_AT_ONCE = 6


class Script:
    """Plays in the first world only."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.world: World = next(iter(sandbox.worlds.values()))

    def step(self, crew: Crew) -> None:
        """Call with the lock held, at every tick."""
        world, now = self.world, self.world.now()
        state = world.counters.script
        if now < self.sandbox.started_at + WAIT_FOR_NODES_S and crew.enrolled_share(world) < 0.9:
            return
        if not state:
            state = {"next": 0, "at": now + FIRST_S, "passing": []}
            world.counters.script = state
        self._pass(world, state, now)
        state = world.counters.script
        if now >= state["at"]:
            # after a long pause the script goes on, it does not catch up
            self._strike(world, state["next"])
            rng = random.Random(f"{world.config.seed}/gap/{state['next']}")
            gap = SECOND_S if state["next"] == 0 else rng.uniform(*GAP_S)
            state = {**world.counters.script, "next": state["next"] + 1, "at": now + gap}
            world.counters.script = state

    def _pass(self, world: World, state: dict, now: float) -> None:  # type: ignore[type-arg]
        over = [p for p in state["passing"] if now >= p["at"]]
        for item in over:
            if item["instance"] in world.instances:
                clear(world, world.instances[item["instance"]], item["code"])
        if over:
            world.counters.script = {**state, "passing": [p for p in state["passing"] if p not in over]}

    def _strike(self, world: World, number: int) -> None:
        rng = random.Random(f"{world.config.seed}/strike/{number}")
        if number < len(OPENING):
            code, owner = OPENING[number]
        else:
            order = list(LATER)
            lap, place = divmod(number - len(OPENING), len(LATER))
            random.Random(f"{world.config.seed}/lap/{lap}").shuffle(order)
            code, owner = order[place], None
        victims = self._victims(world, owner) or self._victims(world, None)
        hurt = sum(1 for i in world.instances.values() if i.faults and i.state == "running")
        if not victims or hurt >= MOST_AT_ONCE:
            return
        # by a rank of its own, so that one more or less in the list rarely changes who is struck
        victim = min(victims, key=lambda i: digest(world.config.seed, number, i.id))
        inject(world, victim, code, rng.randrange(max(1, TYPES[victim.type].gpus)))
        if code in PASSING:
            item = {"instance": victim.id, "code": code, "at": world.now() + PASSING[code]}
            world.counters.script = {**world.counters.script, "passing": [*world.counters.script["passing"], item]}

    @staticmethod
    def _victims(world: World, owner: str | None) -> list[Instance]:
        """Healthy instances in service, of pools that healthboard may repair; idle of standalone tasks first."""
        pools = {p.name for p in world.config.pools if owner in (None, p.owner)}
        rows = []
        for i in world.instances.values():
            container = world.container_of.get(i.id)
            if i.pool in pools and i.state == "running" and not i.faults and container is not None:
                group = world.group_of(i.id)
                serving = group is None or group.members[i.id]["state"] == "InService"
                if container.status == "ACTIVE" and container.connected and serving:
                    rows.append(i)
        free = [i for i in rows if not any(t.service is None for t in world.live_tasks(world.container_of[i.id].id))]
        return free or rows
