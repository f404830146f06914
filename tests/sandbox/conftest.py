"""A sandbox in this process, answering real boto3 over HTTP, with a clock that a test turns forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config as BotoConfig
from botocore.exceptions import ClientError

from healthboard.sandbox.config import DEFAULT_POOLS, Config, parse_pools
from healthboard.sandbox.entities import Container, Instance
from healthboard.sandbox.launch import subnet_of
from healthboard.sandbox.server import Engine
from healthboard.sandbox.world import World

ACCOUNT, REGION = "111122223333", "us-east-1"


class Clock:
    def __init__(self) -> None:
        self.offset = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset


def boto(url: str, service: str, account: str = ACCOUNT, region: str = REGION, key: str = "", attempts: int = 1) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name=region,
        aws_access_key_id=key or f"ASANDBOX{account}",
        aws_secret_access_key="made-up",
        config=BotoConfig(
            retries={"mode": "standard", "total_max_attempts": attempts}, read_timeout=10, connect_timeout=3, proxies={}
        ),
    )


class Fleet:
    """An engine with boto3 clients and a few shortcuts. Speed 10: ten AWS seconds pass in one."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.clock = Clock()
        values: dict[str, Any] = {"speed": 10.0, "script": False, "post": False, "pools": parse_pools(DEFAULT_POOLS)}
        self.engine = Engine(Config(home=home, **{**values, **settings}), self.clock)
        self.engine.start(ticking=False)
        self.home = home
        self.url = self.engine.url

    @cached_property
    def ec2(self) -> Any:
        return boto(self.url, "ec2")

    @cached_property
    def ecs(self) -> Any:
        return boto(self.url, "ecs")

    @cached_property
    def asg(self) -> Any:
        return boto(self.url, "autoscaling")

    @property
    def world(self) -> World:
        return self.engine.sandbox.worlds[ACCOUNT, REGION]

    def subnet(self, zone: str = "us-east-1a") -> str:
        """The fleet's own subnet there: its templates' security groups are of the same VPC."""
        return subnet_of(self.world, zone)

    def advance(self, seconds: float, step: float = 0.5) -> None:
        """Let so many wall seconds pass."""
        end = self.clock.offset + seconds
        while self.clock.offset < end:
            self.clock.offset = min(end, self.clock.offset + step)
            self.engine.step()

    def until(self, happened: Callable[[], Any], within: float, step: float = 0.5) -> float:
        """Advance until it happened; the wall seconds that took. Fails when it doesn't."""
        begun = self.clock.offset
        while not happened():
            assert self.clock.offset - begun < within, f"not within {within} s"
            self.advance(step, step)
        return self.clock.offset - begun

    def pool(self, name: str) -> list[Instance]:
        return [i for i in self.world.instances.values() if i.pool == name and i.state == "running"]

    def container(self, instance: Instance | str) -> Container:
        return self.world.container_of[instance if isinstance(instance, str) else instance.id]

    def drain(self, instance: Instance, status: str = "DRAINING") -> dict[str, Any]:
        return self.ecs.update_container_instances_state(
            cluster="gpu", containerInstances=[self.container(instance).id], status=status
        )

    def running(self, instance: Instance) -> int:
        answer = self.ecs.describe_container_instances(cluster="gpu", containerInstances=[self.container(instance).id])
        row = answer["containerInstances"][0]
        return row["runningTasksCount"] + row["pendingTasksCount"]

    def stop(self) -> None:
        self.engine.stop()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Shared by the tests of a module that only read."""
    made = Fleet(tmp_path_factory.mktemp("calm"))
    yield made
    made.stop()


def code_of(action: Callable[[], Any]) -> str:
    """AWS's error code of a call that must be refused."""
    with pytest.raises(ClientError) as caught:
        action()
    return caught.value.response["Error"]["Code"]
