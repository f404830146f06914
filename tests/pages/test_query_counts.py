"""How many queries each page takes: as written down here, and no more with three times the rows.

Written anew, on purpose, by `QUERY_COUNTS=write python -m pytest tests/pages/test_query_counts.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.cases.models import Case
from healthboard.fleet.models import Account, Cluster, Instance, Pool
from healthboard.people import grants
from healthboard.policies.versions import ensure_default
from healthboard.repairs.models import Repair
from healthboard.seed.fill import fill
from tests import factories as make
from tests.pages.addresses import every

COUNTS = Path(__file__).with_name("query_counts.json")
#: the list pages' other faces
MORE = {
    "inbox: running": "/?tab=running",
    "inbox: repaired": "/?tab=repaired",
    "fleet: filtered": "/fleet/?q=i-&sort=since",
    "admin": "/admin/",
    "admin: policies": "/admin/policies/policy/",
    "admin: a new policy": "/admin/policies/policy/add/",
    "admin: people": "/admin/auth/user/",
}


def _counts(client, addresses: dict[str, str]) -> dict[str, int]:
    found = {}
    for name, address in addresses.items():
        client.get(address)
        with CaptureQueriesContext(connection) as seen:
            answer = client.get(address)
        if answer.status_code == 200:
            found[name] = len([q for q in seen if "clock_timestamp" not in q["sql"]])  # asked now and then
    return found


def _was_there_before(case: Case) -> None:
    """A precedent: what a page shows of none takes fewer queries than what it shows of one."""
    on = make.instance(case.pool, instance_type=case.instance.instance_type)
    old = make.case(on, code=case.code, state="CLOSED", resolution="REPAIRED")
    make.decision(old, repair=make.repair(on, state="SUCCEEDED"))


def test_queries_are_as_written_down_and_do_not_grow_with_the_fleet(db, log_in):
    ensure_default()
    make.switch()
    fill(20, days=10)
    client = log_in("admin", "ada")
    grants.sync(get_user_model().objects.get(username="ada"))  # lets her into the admin
    addresses = {**every(), **MORE}
    _was_there_before(Case.objects.get(pk=addresses["case"].split("/")[2]))
    few = _counts(client, addresses)
    assert MORE.keys() <= few.keys(), "each was shown, and counted"
    before = Instance.objects.count(), Case.objects.count(), Repair.objects.count()
    fill(60, days=60, seed=2, add=True)
    assert all(now > 1.5 * then for now, then in zip(
        (Instance.objects.count(), Case.objects.count(), Repair.objects.count()), before, strict=True
    ))  # fmt: skip
    many = _counts(client, addresses)
    grown = {name: (few[name], count) for name, count in many.items() if count > few[name]}
    assert grown == {}
    if os.environ.get("QUERY_COUNTS") == "write":
        COUNTS.write_text(json.dumps(dict(sorted(few.items())), indent=1) + "\n")
    written = json.loads(COUNTS.read_text())
    more = {name: (written.get(name, 40), count) for name, count in few.items() if count > written.get(name, 40)}
    assert more == {}, "(written down, now): make them fewer, or write them down anew"
    assert Account.objects.count() > 2 < Cluster.objects.count() < Pool.objects.count()
