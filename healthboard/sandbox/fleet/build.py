"""Build the default fleet of one world: pools, services, and two things that belong to somebody else."""

from __future__ import annotations

import base64
from typing import Any

from healthboard.sandbox.config import PoolSpec
from healthboard.sandbox.entities import Cluster, Container, Group, Instance, Provider, Service, Template
from healthboard.sandbox.launch import boot, launch, user_data
from healthboard.sandbox.ticks.agents import register
from healthboard.sandbox.ticks.place import start_task
from healthboard.sandbox.world import World

CLUSTER = "gpu"
DEFAULT_TYPES = {"train": "p5.48xlarge", "infer": "g6e.12xlarge", "solo": "p4d.24xlarge"}
OLD = 9 * 86400.0  # how long the fleet has been up


def build(world: World) -> None:
    world.add(Cluster(id=CLUSTER, tags={"healthboard:managed": "true"}))
    for spec in world.config.pools:
        _pool(world, spec)
    _batch(world)
    _managed(world)
    _services(world)


def age(world: World, instance: Instance, name: str | None = None) -> Container | None:
    """Make a fresh launch look as if it had been serving for days."""
    now = world.now()
    instance.state, instance.until = "running", None
    instance.launched_at = now - OLD
    boot(world, instance)
    instance.booted_at, instance.checks_ok_at, instance.agent_at = now - OLD + 60, now - OLD + 120, None
    if name:
        instance.tags = {**instance.tags, "Name": name}
        instance.name = name
    return register(world, instance, at=now - OLD + 180) if instance.cluster else None


def _pool(world: World, spec: PoolSpec) -> None:
    type_ = DEFAULT_TYPES.get(spec.name, "g6e.12xlarge")
    template = make_template(world, spec.name, type_, CLUSTER, versions=3, default="2")
    group = None
    if spec.owner == "group":
        group = make_group(world, f"{spec.name}-asg", template, "2", spec.size, pool=spec.name, provider=spec.name)
        world.add(Provider(id=spec.name, cluster=CLUSTER, group=group.id, tags={"healthboard:managed": "true"}))
        cluster = world.clusters[CLUSTER]
        cluster.providers = [*cluster.providers, spec.name]
    for n in range(spec.size):
        _member(world, template, "2", world.zones[n % 3], group)


def _member(world: World, template: Template, version: str, zone: str, group: Group | None, **more: Any) -> Instance:
    data = template.versions[version]
    tags = {t["Key"]: t["Value"] for s in data.get("TagSpecifications", []) for t in s["Tags"]}
    if group:
        tags.update({k: v for k, v in group.tags.items() if not k.startswith("aws:")})
    instance = launch(
        world, type_=data["InstanceType"], zone=zone, image=data["ImageId"], tags=tags, template=template,
        version=version, data=data.get("UserData", ""), group=group, **more,
    )  # fmt: skip
    age(world, instance)
    if group:
        group.members = {**group.members, instance.id: member(version)}
    return instance


def member(version: str, state: str = "InService") -> dict[str, Any]:
    return {"state": state, "until": None, "protected": False, "version": version, "health": "Healthy"}


def make_template(
    world: World,
    name: str,
    type_: str,
    cluster: str,
    versions: int = 1,
    default: str = "1",
    tags: dict[str, str] | None = None,
) -> Template:
    tags = {"healthboard:managed": "true"} if tags is None else tags
    data = {
        str(n): {
            "ImageId": "ami-" + world.seeded("image", name, n)[:17],
            "InstanceType": type_,
            "KeyName": "fleet",
            "EbsOptimized": True,
            "IamInstanceProfile": {"Arn": f"arn:aws:iam::{world.account}:instance-profile/ecsInstanceRole"},
            "SecurityGroupIds": ["sg-" + world.seeded("sg", name)[:17]],
            "UserData": user_data(cluster, name),
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
            ],
        }
        for n in range(1, versions + 1)
    }
    return world.add(
        Template(
            id="lt-" + world.seeded("template", name)[:17], name=name, created_at=world.now() - 40 * 86400,
            versions=data, default=default, pool=name, tags=tags,
        )
    )  # fmt: skip


def make_group(
    world: World, name: str, template: Template, version: str, size: int, pool: str, provider: str | None,
    tags: dict[str, str] | None = None,
) -> Group:  # fmt: skip
    room = max(3, size // 4)
    return world.add(
        Group(
            id=name, template=template.id, template_version=version, minimum=size // 2, maximum=size + room,
            desired=size, zones=world.zones, created_at=world.now() - 40 * 86400, pool=pool, provider=provider,
            tags={"healthboard:managed": "true", "AmazonECSManaged": "true"} if tags is None else tags,
        )
    )  # fmt: skip


def _batch(world: World) -> None:
    """A compute environment of AWS Batch: an ECS cluster and a group that only Batch may change."""
    suffix = world.seeded("batch")[:8]
    cluster = f"AWSBatch-nightly-{suffix}_Batch_{world.new_uuid('batch')}"
    tags = {"AWSBatchServiceTag": "batch"}
    world.add(Cluster(id=cluster, tags=tags))
    template = make_template(world, f"Batch-lt-{suffix}", "g6e.12xlarge", cluster, tags=tags)
    template.pool = "batch"
    group = make_group(world, f"AWSBatch-nightly-{suffix}-asg", template, "1", 2, "batch", None, tags)
    for zone in world.zones[:2]:
        _member(world, template, "1", zone, group)


def _managed(world: World) -> None:
    """ECS Managed Instances, with ECS's own repair switched on."""
    world.add(Provider(id="managed", cluster=CLUSTER, managed=True))
    cluster = world.clusters[CLUSTER]
    cluster.providers = [*cluster.providers, "managed"]
    data = base64.b64encode(f"ECS_CLUSTER={CLUSTER}\n".encode()).decode()
    for n, zone in enumerate(world.zones[:2], 1):
        instance = launch(
            world, type_="g6e.12xlarge", zone=zone, image="ami-" + world.seeded("bottlerocket")[:17],
            tags={"Name": f"managed-{n:02d}", "aws:ecs:clusterName": CLUSTER}, data=data, operator="ecs.amazonaws.com",
        )  # fmt: skip
        instance.pool = instance.provider = "managed"
        age(world, instance)


def _services(world: World) -> None:
    """Four replica services with room to move, and one daemon."""
    for spec in world.config.pools:
        n = spec.size
        if spec.name == "train":
            rows = [("pretrain", max(1, n * 6 // 10), 8 if n > 2 else 4, 50, 200)]
        elif spec.name == "infer":
            rows = [("chat", n, 1, 100, 200), ("embed", n, 1, 50, 200)]
        elif spec.name == "solo":
            rows = [("simulate", max(1, n - 2), 4, 50, 200)]
        else:
            rows = [(f"{spec.name}-work", max(1, n // 2), 1, 50, 200)]
        for name, desired, gpus, low, high in rows:
            _service(world, name, spec.name, desired, gpus, low, high)
    _service(world, "telemetry", None, 0, 0, 0, 100, daemon=True)
    for _ in range(2):  # the daemon's tasks exist before anything else is asked
        for service in world.services.values():
            _fill(world, service)


def _service(
    world: World, name: str, pool: str | None, desired: int, gpus: int, low: int, high: int, daemon: bool = False
) -> None:
    service = Service(
        id=f"{CLUSTER}/{name}", name=name, cluster=CLUSTER, family=name, revision=7, desired=desired, gpus=gpus,
        pool=pool, created_at=world.now() - 30 * 86400, minimum=0 if desired < 2 else low, maximum=high, daemon=daemon,
        tags={"healthboard:team": "research" if pool != "infer" else "serving"},
    )  # fmt: skip
    world.add(service)


def _fill(world: World, service: Service) -> None:
    from healthboard.sandbox.ticks.place import candidates

    def running(container: Container | None) -> None:
        if container:
            task = start_task(world, container, service=service)
            task.last, task.until = "RUNNING", None
            task.created_at = world.now() - 86400
            task.started_at = world.now() - 86400 + 40

    if service.daemon:
        placed = {t.container for t in world.tasks.values() if t.service == service.name}
        for container in world.containers.values():
            if container.cluster == service.cluster and container.id not in placed:
                running(container)
        service.desired = sum(1 for c in world.containers.values() if c.cluster == service.cluster)
        return
    have = sum(1 for t in world.tasks.values() if t.service == service.name and t.last != "STOPPED")
    for _ in range(service.desired - have):
        options = candidates(world, service.cluster, service.pool, service.gpus, service.name)
        running(options[0] if options else None)
