"""Fill a database: the fleet and its past in one transaction, then the seals."""

from __future__ import annotations

import random
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.db import connection, transaction

from healthboard import clock
from healthboard.cases import plan as plans
from healthboard.fleet.models import Account, Instance
from healthboard.people.actors import Actor
from healthboard.people.models import Role
from healthboard.policies.matching import snapshots
from healthboard.seed import signals
from healthboard.seed.cases import Reader
from healthboard.seed.machines import Machine, machine, put_to_work
from healthboard.seed.past import Past
from healthboard.seed.places import lay_out, numbers
from healthboard.seed.present import Present
from healthboard.seed.rows import Rows


class Refused(Exception):
    """The database cannot be filled; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Made:
    instances: int
    gpus: int
    cases: int
    repairs: int
    audit: int


def fill(instances: int, *, days: int = 30, seed: int = 1, add: bool = False) -> Made:
    """`instances` machines that are there now, and what happened to them and to those before them in `days` days.
    The same seed gives the same fleet, its times counted back from now. Raises Refused."""
    if Instance.objects.exists() and not add:
        raise Refused("there are instances in this database already: add more with --add")
    if taken := Account.objects.filter(account_id__in=numbers(seed)).first():
        raise Refused(f"seed {seed} is in this database already, as account {taken.account_id}: take another --seed")
    rows = Rows()
    rng, now = random.Random(seed), clock.now()
    places = lay_out(instances, seed, rng, now)
    rows.accounts, rows.clusters, rows.sources = places.accounts, places.clusters, places.sources
    rows.pools = [home.pool for home in places.homes]
    rows.workloads = [work for home in places.homes for work in home.workloads]
    pools = [[machine(home, n, rng, now) for n in range(home.size)] for home in places.homes]
    reader, people = Reader(snapshots(), rng), _people()
    past = Past(rows, reader, rng, people, now, days)
    fresh: list[Machine] = []
    for members in pools:
        left = list(members)
        past.of(left)
        put_to_work(members, rng, now)
        fresh += left
    present = Present(rows, reader, rng, people, now, instances)
    live = [one for members in pools for one in members]
    opened = present.fill(fresh, live)
    for one in live:
        fault = present.faults.get(id(one))
        rows.instances.append(one.row)
        rows.gpus += one.gpus
        rows.tasks += one.tasks
        told = fault.seen.readings if fault else signals.readings(one, now)
        heads, intervals = signals.interval_rows(one, list(told), now)
        rows.heads += heads
        rows.intervals += intervals
        if fault and not any(case.instance is one.row for case, _ in opened):
            rows.events += signals.event_rows(one, fault.events)
    with transaction.atomic():
        rows.write_fleet()
        for case, fault in opened:  # as the page would build it: with room, budget and tasks of now
            case.plan = plans.build(fault.one.row, fault.judged, fault.seen.policy.values)
        rows.write_history()
    rows.seal()
    if connection.vendor == "postgresql":  # its planner knows nothing of rows that have just come
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return Made(len(live), len(rows.gpus), len(rows.cases), len(rows.repairs), len(rows.told))


def _people() -> list[Actor]:
    """Whoever may answer here, by the names of the sandbox's log-ins."""
    names = (str(Role.OPERATOR), str(Role.APPROVER))
    users = {user.get_username(): user for user in get_user_model().objects.filter(username__in=names)}
    return [Actor(name=name, via="web", user=users.get(name)) for name in names]
