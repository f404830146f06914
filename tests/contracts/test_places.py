"""Two accounts and two regions at once, the same names in all four places: what is done in one never touches another."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from healthboard import aws, clock, wake
from healthboard.api import node_intake
from healthboard.cases import invariants
from healthboard.cases.answers import decide
from healthboard.cases.models import Case
from healthboard.cases.states import OPEN
from healthboard.fleet.models import Account, Head, Instance, Pool, Source
from healthboard.policies.versions import ensure_default
from healthboard.refusals import NotAllowed
from healthboard.repairs import brakes, budget, lifecycle
from healthboard.repairs.models import Breaker, Repair
from tests import factories, two
from tests.api.node_helpers import gpu, post, report, xid
from tests.collect.conftest import ACCOUNTS, REGIONS
from workers.collect import ec2, ecs, store
from workers.decide import breadth
from workers.decide import instance as reading

pytestmark = pytest.mark.django_db

HERE = (ACCOUNTS[0], REGIONS[0])
PLACES = [(account, region) for account in ACCOUNTS for region in REGIONS]
VALUES = {"budget_share": 0.2, "minimum_healthy": 0}


@pytest.fixture(scope="module")
def collected(sandbox_process, django_db_setup, django_db_blocker):
    """Collected once from all four places, for every test of this file; taken back at its end."""
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock(), transaction.atomic():
        patch.setenv("HEALTHBOARD_HOME", str(sandbox_process.home))
        patch.setattr(aws, "_clients", {})
        patch.setenv("HEALTHBOARD_ACCOUNTS", ",".join(ACCOUNTS))
        patch.setenv("HEALTHBOARD_REGIONS", ",".join(REGIONS))
        patch.setattr(wake, "_quiet_until", float("inf"))
        assert sorted(aws.places()) == sorted(PLACES)
        for stage in (ec2, ecs, ec2, ecs):  # the names of templates come with the second round
            Source.objects.update(attempted_at=None)
            for account_id, region in PLACES:
                assert stage.collect(store.account_of(account_id), region)
        Source.objects.update(good_rounds=9)
        # an agent of the sandbox that blinked just then would count as out
        Instance.objects.exclude(pool=None).update(state="running", ecs_status="ACTIVE", agent_connected=True)
        factories.switch()
        ensure_default()
        yield
        transaction.set_rollback(True)


@pytest.fixture
def fleet(collected, db, monkeypatch):
    node_intake.limiter.buckets.clear()
    for name in ("_measure", "_whole", "_heard"):  # what this process remembers of tests before
        monkeypatch.setattr(node_intake, name, node_intake.Every(getattr(node_intake, name).seconds))


def pool(place, name="train") -> Pool:
    return Pool.objects.get(account__account_id=place[0], region=place[1], name=name)


def members(place, name="train") -> list[Instance]:
    rows = Instance.objects.filter(pool=pool(place, name), gone_at=None)
    return list(rows.select_related("account", "pool__cluster", "cluster").order_by("pk"))


def schedule(instance: Instance) -> Repair:
    return lifecycle.open_repair(
        instance=instance, action="REPLACE", actor=factories.actor(factories.person()), values=VALUES,
        not_before=clock.now(),
    )  # fmt: skip


def token_of(instance: Instance) -> str:
    out = io.StringIO()
    place = {"account": instance.account.account_id, "region": instance.region}
    call_command("node-token", instance.instance_id, stdout=out, **place)
    return out.getvalue().strip()


def falls_off_the_bus(client, instance: Instance, token: str) -> None:
    """The reporter's word of a lost GPU, twice, each GPU under a name of its own; read at once."""

    def told(status: str):
        uuids = [f"GPU-{instance.pk:08d}-0000-0000-0000-{n:012d}" for n in range(8)]
        return [gpu(n, uuid=uuids[n], status=status if n == 3 else "ok") for n in range(8)]

    for seq, kernel in ((1, []), (2, [xid(7)]), (3, [])):
        body = report(seq, boot_id=f"boot-{instance.pk}", gpus=told("lost" if seq > 1 else "ok"), kernel=kernel)
        answer = post(client, body, token)
        assert answer.status_code == 200, answer.content
    reading.read(instance.pk)


def test_a_unit_of_a_pool_is_taken_in_its_own_place_only(fleet):
    first, second = members(HERE)[:2]
    assert budget.take(schedule(first), VALUES) is None
    assert "1 of 1 allowed" in budget.take(schedule(second), VALUES)
    for place in PLACES[1:]:
        seen = budget.usage(pool(place), VALUES)
        assert (seen.size, seen.allowed, seen.out) == (6, 1, 0)
        assert budget.take(schedule(members(place)[0]), VALUES) is None
    assert [budget.usage(pool(place), VALUES).ours for place in PLACES] == [
        (members(place)[0].instance_id,) for place in PLACES
    ]


def test_a_pause_of_a_pool_holds_in_its_own_place_only(fleet):
    admin = factories.actor(factories.person("admin"))
    where = {"scope_kind": "pool", "scope": "train", "reason": "firmware", "until": clock.now() + timedelta(hours=1)}
    brakes.pause(actor=admin, account=Account.objects.get(account_id=HERE[0]), region=HERE[1], **where)
    held = {place: brakes.against(members(place)[0], [], automatic=False) for place in PLACES}
    assert "firmware" in held[HERE][0] and not any(held[place] for place in PLACES[1:])
    assert not brakes.against(members(HERE, "solo")[0], [], automatic=True)

    somewhere = factories.actor(factories.person("admin", account=Account.objects.get(account_id=ACCOUNTS[1])))
    with pytest.raises(NotAllowed):
        brakes.pause(actor=somewhere, account=Account.objects.get(account_id=HERE[0]), region=HERE[1], **where)


def test_equal_faults_open_the_breaker_of_their_own_place_only(fleet, client):
    """Three of six here; one of six, of the same pool name and instance type, in each other place."""
    broken = members(HERE)[:3] + [members(place)[0] for place in PLACES[1:]]
    for instance in broken:
        falls_off_the_bus(client, instance, token_of(instance))
    breadth.look()
    breaker = Breaker.objects.get()
    assert (breaker.account.account_id, breaker.region, breaker.kind) == (*HERE, "CORRELATED")
    group = Case.objects.get(instance=None)
    assert (group.account.account_id, group.region) == HERE
    assert {c.instance_id for c in group.members.all()} == {i.pk for i in broken[:3]}
    held = {c.instance_id: c.state for c in Case.objects.exclude(instance=None)}
    assert [held[i.pk] for i in broken] == ["HELD"] * 3 + ["DECIDED"] * 3
    running = set(Repair.objects.filter(closed_at=None).values_list("instance", flat=True))
    assert running == {i.pk for i in broken[3:]}
    for instance in broken[3:]:
        assert not brakes.against(instance, [], automatic=True)
    # a person of another place may not let these go
    other = factories.person("admin", account=Account.objects.get(account_id=ACCOUNTS[1]))
    with pytest.raises(NotAllowed):
        two.release_breaker(breaker.pk, factories.actor(other), "looks fine")
    assert Breaker.objects.filter(released_at=None).count() == 1


def test_faults_spread_thinly_over_all_places_are_no_breadth(fleet, client):
    """Eight equal ones at once, two of ten in each place: nowhere a storm."""
    for place in PLACES:
        for instance in members(place)[:2]:
            falls_off_the_bus(client, instance, token_of(instance))
    breadth.look()
    assert Case.objects.filter(state__in=OPEN).count() == 8
    assert not Breaker.objects.exists()


def test_a_node_token_speaks_for_one_instance_of_one_place(fleet, client):
    here, there = members(HERE)[0], members(PLACES[3])[0]
    Instance.objects.filter(pk=there.pk).update(instance_id=here.instance_id)
    answer = post(client, report(1, instance_id=members(PLACES[3])[1].instance_id), token_of(here))
    assert answer.status_code == 403 and "cannot speak for" in answer.json()["detail"]
    assert not Head.objects.filter(channel="node").exists()
    # even where the id is the same, the report is the token's
    assert post(client, report(1, instance_id=here.instance_id), token_of(here)).status_code == 200
    assert Head.objects.get(channel="node").instance == here
    assert [s.account_id for s in Source.objects.filter(name="node")] == [here.account_id]


def test_the_same_instance_id_in_two_places_asks_which(fleet, calling):
    here, there = members(HERE)[0], members(PLACES[3])[0]
    Instance.objects.filter(pk=there.pk).update(instance_id=here.instance_id)
    there.refresh_from_db()
    with pytest.raises(CommandError, match="several places") as refused:
        call_command("node-token", here.instance_id)
    assert refused.value.returncode == 2
    assert ACCOUNTS[0] in str(refused.value) and REGIONS[1] in str(refused.value)
    assert token_of(here).startswith("hbn_") and token_of(there) != token_of(here)

    cases = [factories.case(here), factories.case(there)]
    schedule(here), schedule(there)
    caller = calling("viewer")
    for path in ("/cases", "/repairs", "/instances"):
        items = caller.get(path, instance=here.instance_id).json()["items"]
        assert len(items) == 2, path
    told = caller.get("/cases", instance=here.instance_id).json()["items"]
    assert {(i["id"], i["account"], i["region"]) for i in told} == {
        (cases[0].pk, *HERE), (cases[1].pk, *PLACES[3]),
    }  # fmt: skip
    assert list(invariants.inv1()) == []


def test_an_operator_of_one_account_sees_and_decides_there_only(fleet, client, calling):
    own = Account.objects.get(account_id=ACCOUNTS[0])
    cases = {place: factories.case(members(place)[0], action="DIAGNOSE") for place in PLACES}
    caller = calling("operator", account=own)
    seen = caller.get("/cases").json()["items"]
    assert {(i["account"], i["region"]) for i in seen} == {p for p in PLACES if p[0] == ACCOUNTS[0]}
    assert {i["account"] for i in caller.get("/instances").json()["items"]} == {ACCOUNTS[0]}

    def asked(row):
        return {"decision": "dismiss", "reason": "known", "plan_version": row.plan_version,
                "evidence_hash": row.evidence_hash}  # fmt: skip

    foreign = cases[PLACES[2]]
    assert caller.get(f"/cases/{foreign.pk}").status_code == 404
    assert caller.post(f"/cases/{foreign.pk}/decisions", asked(foreign)).status_code == 404
    with pytest.raises(NotAllowed):
        decide(foreign.pk, actor=factories.actor(caller.user), kind="dismiss", reason="x",
               plan_version=foreign.plan_version, evidence_hash=foreign.evidence_hash)  # fmt: skip
    foreign.refresh_from_db()
    assert foreign.state == "WAITING" and not foreign.decisions.filter(outcome="DONE").exists()
    assert caller.post(f"/cases/{cases[HERE].pk}/decisions", asked(cases[HERE])).status_code == 200

    client.force_login(caller.user)
    for path in ("/", "/fleet/"):
        page = client.get(path).content.decode()
        assert members(PLACES[2])[0].instance_id not in page
    assert members(PLACES[1])[0].instance_id in client.get("/fleet/").content.decode()
    assert client.get(f"/cases/{foreign.pk}/").status_code in (403, 404)
    assert client.get(f"/instances/{members(PLACES[2])[0].pk}/").status_code in (403, 404)


def test_an_operator_of_one_region_has_nothing_to_say_in_the_other(fleet, calling):
    cases = {place: factories.case(members(place)[0]) for place in PLACES}
    caller = calling("operator", region=REGIONS[1], pool="train")
    seen = {i["id"] for i in caller.get("/cases").json()["items"]}
    assert seen == {cases[place].pk for place in PLACES if place[1] == REGIONS[1]}
    pools = {(i["region"], i["pool"]) for i in caller.get("/instances").json()["items"]}
    assert pools == {(REGIONS[1], "train")}


def test_a_viewer_of_one_account_finds_nothing_of_the_other_on_any_page(fleet, client):
    own, foreign = members(PLACES[0])[0], members(PLACES[2])[0]
    for instance in (own, foreign):
        case = factories.case(instance, action="REBOOT")
        repair = schedule(instance)
        user = factories.person("operator")
        factories.decision(case, user, repair=repair)
        factories.audit(
            "case.decided", f"decided {instance}", by=factories.actor(user), instance=instance, case_id=case.pk
        )
    client.force_login(factories.person("viewer", account=own.account))
    for path in ("/", "/fleet/", "/repairs/", "/audit/"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert foreign.instance_id not in answer.content.decode(), path
    for path in ("/fleet/", "/repairs/", "/audit/"):
        told = client.get(path, {"format": "csv"}).getvalue().decode()
        assert foreign.instance_id not in told and own.instance_id in told, path
