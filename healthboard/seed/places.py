"""Accounts, clusters, pools and workloads of a made-up fleet."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime

from healthboard.fleet.models import Account, Cluster, Pool, Source, Workload

#: instances of the largest pool
MOST = 250
#: an account's number begins so: none that AWS gives out looks like it
PREFIX = "0099"


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of pool: what its instances are, and what runs on them."""

    name: str
    share: int  # pools of it among ten
    kind: str
    owner: str
    instance_type: str
    gpu: str
    memory_mib: int
    work: tuple[tuple[str, str], ...]  # (name, SERVICE or FAMILY)
    gang: int = 0  # nodes of one job; 0: each task stands alone


KINDS = (
    Kind("train", 4, "GROUP", "GROUP", "p5.48xlarge", "NVIDIA H100 80GB HBM3", 81559,
         (("pretrain-70b", "FAMILY"), ("finetune", "FAMILY")), gang=16),
    Kind("infer", 3, "GROUP", "GROUP", "g6e.48xlarge", "NVIDIA L40S", 46068,
         (("chat-serve", "SERVICE"), ("embed-serve", "SERVICE"), ("rerank-serve", "SERVICE"))),
    Kind("research", 2, "TEMPLATE", "TEMPLATE", "p4d.24xlarge", "NVIDIA A100-SXM4-40GB", 40960,
         (("notebook", "SERVICE"), ("eval-nightly", "FAMILY"))),
    Kind("managed", 1, "MANAGED", "ECS", "p5en.48xlarge", "NVIDIA H200", 143771, (("vision-serve", "SERVICE"),)),
)  # fmt: skip
#: (account's alias, its regions)
ACCOUNTS = (("ml-research", ("us-east-1",)), ("ml-serving", ("us-east-1", "eu-west-1")))


@dataclass(slots=True)
class Home:
    """A pool with what its instances have in common."""

    pool: Pool
    kind: Kind
    size: int
    workloads: list[Workload]
    zones: tuple[str, ...]


@dataclass(slots=True)
class Places:
    accounts: list[Account] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    homes: list[Home] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)


def numbers(seed: int) -> list[str]:
    """The account numbers of a seed."""
    return [f"{PREFIX}{seed % 1_000_000:06d}{n:02d}" for n in range(len(ACCOUNTS))]


def lay_out(instances: int, seed: int, rng: random.Random, now: datetime) -> Places:
    """Pools for `instances` machines in all, largest kinds first; each pool at most `MOST`."""
    found = Places()
    spots = []
    for number, (alias, regions) in zip(numbers(seed), ACCOUNTS, strict=True):
        account = Account(account_id=number, alias=alias if seed == 1 else f"{alias}-{seed}")
        found.accounts.append(account)
        for region in regions:
            arn = f"arn:aws:ecs:{region}:{number}:cluster/gpu"
            spots.append(Cluster(account=account, region=region, name="gpu", arn=arn, seen_at=now))
            found.sources += _sources(account, region, now)
    found.clusters = spots
    order = [kind for kind in KINDS for _ in range(kind.share)]
    rng.shuffle(order)
    order = [*KINDS, *order]  # a small fleet has one of each
    left, n = instances, 0
    each = min(MOST, max(1, -(-instances // len(KINDS))))
    while left:
        kind, spot = order[n % len(order)], spots[n % len(spots)]
        size = min(left, each)
        found.homes.append(_home(kind, spot, size, n // len(order) * len(order) + n % len(order), now))
        left, n = left - size, n + 1
    return found


def _home(kind: Kind, spot: Cluster, size: int, number: int, now: datetime) -> Home:
    name = kind.name if number < len(KINDS) else f"{kind.name}-{number}"
    pool = Pool(account=spot.account, region=spot.region, cluster=spot, name=name, kind=kind.kind, seen_at=now)
    if kind.kind == "GROUP":
        pool.group_name, pool.health_check_type, pool.rolling_out = f"{name}-asg", "EC2", False
        pool.desired, pool.minimum, pool.maximum = size, 0, size + max(2, size // 10)
    elif kind.kind == "TEMPLATE":
        pool.template_id = f"lt-{number:017x}"
    else:
        pool.auto_repair = True
    work = [
        Workload(
            account=spot.account, region=spot.region, cluster=spot, kind=what, seen_at=now, pending=0,
            name=title if number < len(KINDS) else f"{title}-{number}", minimum_percent=50 if what == "SERVICE" else None,
            maximum_percent=150 if what == "SERVICE" else None,
        )
        for title, what in kind.work
    ]  # fmt: skip
    return Home(pool, kind, size, work, tuple(spot.region + letter for letter in "abc"))


def _sources(account: Account, region: str, now: datetime) -> list[Source]:
    return [
        Source(
            account=account, region=region, name=name, scope=scope, interval_s=60, attempted_at=now, succeeded_at=now,
            good_rounds=200, calls=20_000,
        )
        for name, scope in (("ec2", ""), ("autoscaling", ""), ("ecs", "gpu"), ("node", "gpu"))
    ]  # fmt: skip
