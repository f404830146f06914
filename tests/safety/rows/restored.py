"""The restore drill: the database is put back to what it was while AWS moved on. Nothing is changed until a person looks."""

from __future__ import annotations

from typing import Any

from django.db import connections

from healthboard.audit import chain, heads
from healthboard.people.actors import Actor
from healthboard.repairs import brakes, restored
from tests.repairs.driver import person
from tests.safety import checks, databases
from tests.safety.conductor import Conductor, seeded
from tests.safety.flows import Flow

#: seconds of the trial before a person looks
WAITING_S = 20


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    worker = conductor.worker()
    conductor.steps(seeded("restore", spec["flow"], spec["seed"]).randrange(8, 34))
    moved = checks.log(conductor)
    chain.seal()
    heads.keep()
    worker.end()
    _put_back(flow)
    calls = len(moved)
    conductor.worker()
    looked = restored.look()
    conductor.steps(WAITING_S)
    made = [c["operation"] for c in checks.log(conductor)[calls:]]
    broken = [f"changed AWS before a person looked: {made}"] if made else []
    if not looked or not brakes.switch().stopped:
        broken.append("nobody noticed that the database was put back")
    brakes.resume(_admin(), "compared with AWS")
    restored.look()
    conductor.finish(flow.within_s)
    broken += _harmless(conductor, flow)
    return {"broken": broken, "reached": 1 if moved else 0, "recovery": 0}


def _put_back(flow: Flow) -> None:
    connections.close_all()
    databases.copy(databases.slugged(flow.name), databases.TRIAL)


def _admin() -> Actor:
    from tests.repairs import driver

    driver._people.clear()
    return person("admin")


def _harmless(conductor: Conductor, flow: Flow) -> list[str]:
    """What the lost hour began is unknown to this database; it may be asked about, but nothing is done twice."""
    broken = []
    made = checks.log(conductor)
    launched = {c["target"] for c in made if c["operation"] == "RunInstances"}
    if len(launched) > flow.launches:
        broken.append(f"launched {sorted(launched)}")
    ends = {c["target"] for c in made if c["operation"] == "TerminateInstances"}
    if ends - {conductor.subject} - launched:
        broken.append(f"ended bystanders: {sorted(ends - {conductor.subject} - launched)}")
    reboots = sum(1 for c in made if c["operation"] == "RebootInstances")
    if reboots > 2:
        broken.append(f"{reboots} reboots")
    if conductor.over() is None:
        broken.append(f"neither over nor asking: {conductor.said()}")
    alive = [i for i in conductor.fleet.world.instances.values() if i.pool == flow.pool and i.state == "running"]
    if len(alive) < flow.size - 1:
        broken.append(f"only {len(alive)} of {flow.size} machines run")
    return broken
