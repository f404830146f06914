"""Two accounts and two regions at once: every fact stays where it belongs."""

from __future__ import annotations

from threading import Thread

import pytest
from django.db import connections

from healthboard import aws, clock
from healthboard.fleet import record
from healthboard.fleet.models import Account, Cluster, Head, Instance, Pool, Source, Task
from tests.collect.conftest import ACCOUNTS, REGIONS, again, client, control
from workers.collect import ec2, ecs, store, tasks


@pytest.fixture
def everywhere(sandbox, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", ",".join(ACCOUNTS))
    monkeypatch.setenv("HEALTHBOARD_REGIONS", ",".join(REGIONS))


def collect_all():
    again()
    for account_id, region in aws.places():
        for stage in (ec2, ecs):
            assert stage.collect(store.account_of(account_id), region)


@pytest.mark.django_db
def test_each_place_has_its_own_fleet_with_the_same_names(everywhere):
    collect_all()
    collect_all()
    assert len(aws.places()) == 4
    for account_id, region in aws.places():
        place = {"account__account_id": account_id, "region": region}
        told = {
            item["InstanceId"]
            for r in client("ec2", account_id, region).describe_instances()["Reservations"]
            for item in r["Instances"]
        }
        assert set(Instance.objects.filter(**place).values_list("instance_id", flat=True)) == told
        assert Cluster.objects.filter(name="gpu", **place).count() == 1
        assert Pool.objects.filter(name="train", **place).count() == 1
        for row in Instance.objects.filter(**place).select_related("pool", "cluster"):
            assert (row.pool.account_id, row.pool.region) == (row.account_id, row.region)
            assert (row.cluster.account_id, row.cluster.region) == (row.account_id, row.region)
        assert not Task.objects.filter(**place).exclude(instance__region=region).exists()
        assert not Task.objects.filter(**place).exclude(instance__account__account_id=account_id).exists()


@pytest.mark.django_db
def test_one_place_that_is_blind_leaves_the_others_seeing(everywhere, sandbox):
    collect_all()
    control(sandbox, "rules", rules=[{"account": ACCOUNTS[1], "do": "error"}])
    again()
    results = {place: ec2.collect(store.account_of(place[0]), place[1]) for place in aws.places()}
    assert results == {place: place[0] == ACCOUNTS[0] for place in aws.places()}
    blind = Source.objects.filter(name="ec2").exclude(error="")
    assert set(blind.values_list("account__account_id", flat=True)) == {ACCOUNTS[1]}


@pytest.mark.django_db
def test_the_same_instance_id_in_two_accounts_is_two_instances(db):
    rows = []
    for account_id in ACCOUNTS:
        account = Account.objects.create(account_id=account_id)
        rows.append(
            Instance.objects.create(
                account=account, region=REGIONS[0], instance_id="i-0123456789abcdef0", first_seen_at="2026-01-01T00:00Z"
            )
        )
    record.record(rows[0], "ec2", clock.now(), [], [])
    assert Head.objects.get().instance == rows[0]


@pytest.mark.django_db
def test_a_tick_with_several_places_starts_each_by_its_own_message(everywhere, monkeypatch):
    sent = []
    monkeypatch.setattr("healthboard.wake.send", lambda task, row_id=None: sent.append((task, row_id)))
    tasks.ec2()
    assert len(sent) == 4 and {task for task, _ in sent} == {"workers.collect.read_instances"}
    tasks.ec2(sent[0][1])
    assert set(Instance.objects.values_list("account__account_id", "region")) == {(ACCOUNTS[0], REGIONS[0])}
    tasks.ec2(10**9)  # a source that is gone: nothing happens


@pytest.mark.django_db(transaction=True)
def test_all_places_at_once_never_mix(everywhere):
    for account_id in ACCOUNTS:
        store.account_of(account_id)
    failed = []

    def run(account_id, region):
        try:
            account = Account.objects.get(account_id=account_id)
            assert ec2.collect(account, region) and ecs.collect(account, region)
        except BaseException as error:
            failed.append(error)
        finally:
            connections.close_all()

    threads = [Thread(target=run, args=place) for place in aws.places()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    counts = [Instance.objects.filter(account__account_id=a, region=r).count() for a, r in aws.places()]
    assert len(set(counts)) == 1 and counts[0] >= 12
