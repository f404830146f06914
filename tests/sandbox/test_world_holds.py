"""Whatever is called in whatever order, the world stays sane, and the state file holds all of it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from healthboard.sandbox.config import parse_pools
from healthboard.sandbox.faults import FAULTS
from healthboard.sandbox.injure import clear, inject
from healthboard.sandbox.store import Store
from tests.sandbox.conftest import Fleet

steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "drain",
                "undo",
                "standby",
                "standby-",
                "exit",
                "detach",
                "terminate",
                "group",
                "group-",
                "reboot",
                "stop",
                "start",
                "run",
                "desired",
                "inject",
                "clear",
                "wait",
                "deregister",
            ]
        ),
        st.integers(0, 11),
        st.integers(0, 40),
    ),
    min_size=4,
    max_size=14,
)


def act(fleet: Fleet, what: str, which: int, number: int) -> None:
    rows = list(fleet.world.instances.values())
    one = rows[which % len(rows)]
    group = fleet.world.group_of(one.id)
    name = {"AutoScalingGroupName": group.id if group else "train-asg"}
    container = fleet.world.container_of.get(one.id)
    ref = {"cluster": one.cluster, "containerInstance": container.id if container else "x"}
    codes = list(FAULTS)
    match what:
        case "drain" | "undo":
            fleet.drain(one, "DRAINING" if what == "drain" else "ACTIVE")
        case "standby" | "standby-":
            fleet.asg.enter_standby(**name, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=what[-1] == "-")
        case "exit":
            fleet.asg.exit_standby(**name, InstanceIds=[one.id])
        case "detach":
            fleet.asg.detach_instances(**name, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=number % 2 == 0)
        case "terminate":
            fleet.ec2.terminate_instances(InstanceIds=[one.id])
        case "group" | "group-":
            fleet.asg.terminate_instance_in_auto_scaling_group(
                InstanceId=one.id, ShouldDecrementDesiredCapacity=what[-1] == "-"
            )
        case "reboot" | "stop" | "start":
            getattr(fleet.ec2, f"{what}_instances")(InstanceIds=[one.id])
        case "run":
            fleet.ec2.run_instances(
                MinCount=1,
                MaxCount=1,
                LaunchTemplate={"LaunchTemplateName": "solo"},
                SubnetId=fleet.subnet(),
                ClientToken=f"t{number}",
            )
        case "desired":
            fleet.asg.set_desired_capacity(**name, DesiredCapacity=number % 10)
        case "deregister":
            fleet.ecs.deregister_container_instance(**ref, force=True)
        case "inject" | "clear":
            (inject if what == "inject" else clear)(fleet.world, one, codes[number % len(codes)], number % 4)
        case "wait":
            fleet.advance(number)


def sane(fleet: Fleet) -> None:
    world = fleet.world
    held = Counter(
        (t.container, g)
        for t in world.tasks.values()
        if t.last != "STOPPED" and t.container in world.containers
        for g in t.gpus
    )
    assert all(n == 1 for n in held.values()), "a GPU serves two tasks"
    for group in world.groups.values():
        assert group.minimum <= group.desired <= group.maximum
        assert all(
            world.instances[i].state != "terminated" or m["state"] != "Pending" for i, m in group.members.items()
        )
    owners = Counter(i for g in world.groups.values() for i in g.members)
    assert all(n == 1 for n in owners.values())
    tokens = Counter(i.client_token for i in world.instances.values() if i.client_token)
    assert all(n == 1 for n in tokens.values()), "a token gave two instances"
    for task in world.tasks.values():
        assert (task.last == "STOPPED") == (task.stopped_at is not None)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=steps)
def test_any_order_of_calls_leaves_a_sane_world_that_is_all_in_the_state_file(plan):
    home = Path(tempfile.mkdtemp())
    fleet = Fleet(home, pools=parse_pools("train=group:6,solo=template:4"))
    try:
        for what, which, number in plan:
            try:
                act(fleet, what, which, number)
            except ClientError as refused:
                assert refused.response["Error"]["Code"] not in ("InternalFailure", "InternalError"), (what, refused)
            fleet.advance(0.5)
            sane(fleet)
        fleet.advance(120, step=1)
        sane(fleet)
        short = {f"{s.type}" for s in fleet.world.shortages.values()}
        for group in fleet.world.groups.values():
            serving = sum(1 for m in group.members.values() if m["state"] in ("InService", "Pending"))
            type_ = fleet.world.templates[group.template].versions["1"]["InstanceType"]
            assert serving <= group.desired if type_ in short else serving == group.desired
        kept = {(e.kind, e.id): e.body() for table in fleet.world._tables.values() for e in table.values()}
    finally:
        fleet.stop()
    store = Store(home / "sandbox" / "state.sqlite3")
    loaded = {(e.kind, e.id): e.body() for _, e in store.load()}
    store.close()
    shutil.rmtree(home, ignore_errors=True)
    assert loaded == kept
