"""A source that suddenly tells far less: not believed at once, nor doubted for ever; and nothing gone after a silence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import Value
from django.db.models.functions import Concat

from healthboard import clock
from healthboard.fleet.models import Cluster, Instance, Source
from healthboard.fleet.seeing import WATCH_ROUNDS
from healthboard.fleet.sources import watch_anew
from tests import factories as make
from tests.collect.conftest import again, control, rounds
from workers.collect import ec2, ecs, sources
from workers.collect.sources import DOUBTED_ROUNDS

pytestmark = pytest.mark.django_db
REGION = "us-east-1"
FOR_LONG = 24 * 60


@pytest.fixture
def fleet(sandbox, account):
    rounds(account)
    return account


def ago(minutes: float):
    return clock.now() - timedelta(minutes=minutes)


def untold(account, count: int, minutes: float) -> list[int]:
    """Members of the cluster that neither EC2 nor ECS tells of any more."""
    gpu = Cluster.objects.get(account=account, name__startswith="gpu")
    rows = [
        Instance(account=account, region=REGION, instance_id=f"i-{n:017x}", cluster=gpu, state="running",
                 ecs_status="ACTIVE", agent_connected=True, container_arn=f"arn:aws:ecs:container-instance/gpu/{n}",
                 first_seen_at=ago(FOR_LONG), seen_at=ago(minutes))
        for n in range(count)
    ]  # fmt: skip
    return [row.pk for row in Instance.objects.bulk_create(rows)]


def members() -> int:
    return Instance.objects.filter(cluster__name="gpu", ecs_status="ACTIVE").count()


def states(pks: list[int]) -> set[tuple[str, str, bool]]:
    rows = Instance.objects.filter(pk__in=pks)
    return {(row.state, row.ecs_status, row.gone_at is not None) for row in rows}


@pytest.mark.parametrize("empty", [False, True], ids=["half of them", "nothing"])
@pytest.mark.parametrize("minutes", [6, 62])
def test_the_first_answer_after_a_silence_makes_nobody_gone(sandbox, fleet, minutes, empty):
    lost = untold(fleet, members() - 1, minutes)
    Source.objects.update(succeeded_at=ago(minutes), good_rounds=9)
    Instance.objects.update(seen_at=ago(minutes))
    if empty:
        empties = {"ec2": "DescribeInstances", "ecs": "ListContainerInstances"}
        control(sandbox, "rules", rules=[{"service": s, "operation": o, "do": "empty"} for s, o in empties.items()])
    again()
    told = [ec2.collect(fleet, REGION), ecs.collect(fleet, REGION)]
    assert told == [not empty, not empty]
    assert states(lost) == {("running", "ACTIVE", False)}
    assert not Instance.objects.exclude(gone_at=None).exists()
    assert Source.objects.get(name="ec2").good_rounds == (0 if empty else 1)


def test_machines_and_clusters_of_others_do_not_make_up_for_ours(sandbox, fleet):
    """What the sandbox tells is foreign here: of what is known it tells none."""
    Instance.objects.all().delete()
    Cluster.objects.all().update(name=Concat("name", Value("-of-others")))
    untold_ones = untold(fleet, 10, 1)
    assert listen(ec2, fleet, 1) + listen(ecs, fleet, 1) == [False, False]
    assert Source.objects.get(name="ec2").error.startswith("only 0 of 10 known instances")
    assert Source.objects.get(name="ecs", scope="").error.startswith("only 0 of ")
    assert states(untold_ones) == {("running", "ACTIVE", False)}


def shrunk(name: str, scope: str, told: int) -> None:
    """As it stands one round before its answers, all alike, are enough."""
    Source.objects.filter(name=name, scope=scope).update(
        doubted_rounds=DOUBTED_ROUNDS - 1, doubted_told=told, good_rounds=0, error="not believed"
    )


def listen(collect, account, count: int) -> list[bool]:
    found = []
    for _ in range(count):
        again()
        found.append(collect.collect(account, REGION))
    return found


def test_machines_that_stay_untold_are_gone_in_the_end(sandbox, fleet):
    told = Instance.objects.filter(gone_at=None).count()
    lost = untold(fleet, told + 3, FOR_LONG)
    shrunk("ec2", "", told)
    assert listen(ec2, fleet, 1) == [False] and states(lost) == {("running", "ACTIVE", False)}
    assert listen(ec2, fleet, ec2.ROUNDS_UNTIL_GONE) == [True] * ec2.ROUNDS_UNTIL_GONE
    assert states(lost) == {("running", "ACTIVE", False)}, "gone before the usual rounds"
    assert listen(ec2, fleet, 2) == [True, True]
    assert states(lost) == {("terminated", "ACTIVE", True)}
    source = Source.objects.get(name="ec2")
    assert source.good_rounds >= WATCH_ROUNDS and (source.doubted_rounds, source.error) == (0, "")


def test_clusters_and_members_that_stay_untold_are_gone_in_the_end(sandbox, fleet):
    listed = Cluster.objects.count()
    gone = [
        Cluster.objects.create(account=fleet, region=REGION, name=f"c{n}", arn=f"cluster/c{n}", seen_at=ago(FOR_LONG))
        for n in range(listed + 2)
    ]
    told = members()
    lost = untold(fleet, told + 3, FOR_LONG)
    shrunk("ecs", "", listed)
    shrunk("ecs", "gpu", told)
    assert listen(ecs, fleet, 2) == [False, False]  # the place's own round first, then that of its cluster
    assert states(lost) == {("running", "ACTIVE", False)}
    assert listen(ecs, fleet, ecs.ROUNDS_UNTIL_GONE + 1) == [True] * (ecs.ROUNDS_UNTIL_GONE + 1)
    assert states(lost) == {("running", "INACTIVE", False)}
    assert set(Cluster.objects.exclude(gone_at=None)) == set(gone)
    listen(ecs, fleet, 1)
    for source in Source.objects.filter(name="ecs", scope__in=["", "gpu"]):
        assert source.good_rounds >= WATCH_ROUNDS and (source.doubted_rounds, source.error) == (0, "")


def test_a_cluster_that_is_not_watched_any_more_is_not_gone(sandbox, fleet, monkeypatch):
    Cluster.objects.update(seen_at=ago(FOR_LONG))
    Source.objects.update(good_rounds=9)
    monkeypatch.setenv("HEALTHBOARD_CLUSTERS", "another")
    assert listen(ecs, fleet, 1) == [True]
    assert not Cluster.objects.exclude(gone_at=None).exists()


def believed(*told: int) -> list[bool]:
    """Rounds of a source that knows fifty, and tells so many."""
    found = []
    for count in told:
        again()
        claim = sources.claim(make.account(), REGION, "ec2")
        why = claim.doubt(count, 50, "instances")
        assert not why or why.startswith(f"only {count} of 50 known instances were told: not believed")
        found.append(not why)
    return found


def test_the_same_few_are_believed_after_an_hour_of_answers_until_all_are_told():
    assert believed(50, *[20] * DOUBTED_ROUNDS) == [True, *[False] * DOUBTED_ROUNDS]
    assert believed(20, 21, 19, 12) == [True] * 4
    assert believed(9) == [False], "far fewer than were told so far are a doubt of their own"
    assert believed(*[9] * DOUBTED_ROUNDS, 9, 0) == [*[False] * (DOUBTED_ROUNDS - 1), True, True, False]
    assert believed(25, *[20] * DOUBTED_ROUNDS) == [True, *[False] * DOUBTED_ROUNDS]
    watch_anew(clock.now())
    assert believed(20) == [False]


def test_an_hour_without_answers_is_no_hour_of_answers():
    assert believed(20) == [False]
    with clock.virtual(clock.now() + timedelta(days=2)):
        assert believed(20, 0) == [False, False]


def test_a_round_that_a_later_one_overtook_stores_nothing(fleet, monkeypatch):
    """Its call hung; meanwhile the next tick asked and told. Equal versions: tags and the agent do not raise them."""
    read, before = ecs._read, Source.objects.get(name="ecs", scope="gpu").calls
    agents, told = Instance.objects.filter(cluster__name="gpu").values_list("pk", "agent_connected"), {}

    def hangs(reader, cluster, item):
        monkeypatch.setattr(ecs, "_read", read)
        found = read(reader, cluster, item)
        for one in found.instances:
            one["agentConnected"] = False
        again()
        assert ecs.collect(fleet, REGION)
        told.update(agents)
        return found

    monkeypatch.setattr(ecs, "_read", hangs)
    again()
    clusters = Cluster.objects.filter(account=fleet, gone_at=None)
    late = [ecs.collect_cluster(fleet, REGION, one, {}) for one in clusters.filter(name="gpu")]
    assert late == [False]
    assert dict(agents.all()) == told and list(told.values()).count(True) > 1, "an agent may blink, but not all at once"
    assert Source.objects.get(name="ecs", scope="gpu").calls > before


def test_a_word_from_the_future_overtakes_nothing(fleet):
    """The clock was set back half an hour: the next round tells, not the one after that time."""
    Source.objects.filter(name="ecs", scope="gpu").update(succeeded_at=ago(-30))
    again()
    assert ecs.collect(fleet, REGION)
    assert Source.objects.get(name="ecs", scope="gpu").succeeded_at <= clock.now()
