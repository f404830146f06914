"""Breakers for trouble that lasts: each opens by its own counter, holds what it should, and only a person closes it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.fleet import aws_answers
from healthboard.fleet.models import Source
from healthboard.fleet.seeing import why_blind
from healthboard.notices.models import Notice
from healthboard.people.actors import WORKER
from healthboard.people.models import Request
from healthboard.people.web import AUTH_AT
from healthboard.refusals import Held, NotAllowed
from healthboard.repairs import brakes, launches, lifecycle
from healthboard.repairs.models import Breaker, Launch
from tests import factories, two
from tests.cases import scene
from workers.collect import sources
from workers.repair import engine, trips
from workers.repair.run import Run

pytestmark = pytest.mark.django_db


def trouble(time, minutes: int, *, bad: int = 3, good: int = 0) -> None:
    for _ in range(minutes):
        aws_answers.note(factories.account(), factories.REGION, good=good, bad=bad, error="RequestLimitExceeded")
        time.turn(60)


def opened() -> list[str]:
    trips.look()
    return list(Breaker.objects.filter(released_at=None).values_list("kind", flat=True))


def rounds(time, count: int, *, lost_every: int) -> None:
    """Rounds of all sources; EC2 fails in each of that many, the others tell."""
    for number in range(count):
        time.turn(sources._interval("ec2").total_seconds())
        for name in ("ec2", "ecs", "autoscaling"):
            claim = sources.claim(factories.account(), factories.REGION, name)
            if name == "ec2" and number % lost_every == 0:
                claim.failed("ThrottlingException", calls=1)
            else:
                claim.good(calls=1)


# --- AWS errors


def test_trouble_of_some_minutes_with_aws_opens_nothing(time):
    factories.account()
    trouble(time, trips.MINUTES - 1, bad=50)
    assert opened() == []


def test_lasting_trouble_with_aws_opens_a_breaker_once(time):
    factories.account()
    trouble(time, trips.MINUTES)
    assert opened() == ["AWS_ERRORS"]
    trouble(time, 2)
    assert opened() == ["AWS_ERRORS"] and Breaker.objects.count() == 1
    row = Breaker.objects.get()
    assert "RequestLimitExceeded" in row.why and row.where == f"111122223333 {factories.REGION}"
    assert AuditRow.objects.filter(verb="breaker.opened").count() == 1
    assert Notice.objects.filter(kind="breaker").count() == 1


def test_some_failures_among_many_good_answers_open_nothing(time):
    factories.account()
    trouble(time, trips.MINUTES + 3, bad=3, good=4)
    assert opened() == []


def test_it_stays_open_when_aws_is_well_again_until_a_person_releases_it(time, admin, operator):
    factories.account()
    scene.seeing()
    trouble(time, trips.MINUTES)
    assert opened() == ["AWS_ERRORS"]
    time.turn(3600)
    assert opened() == ["AWS_ERRORS"]
    with pytest.raises(NotAllowed):
        two.release_breaker(Breaker.objects.get().pk, operator, "it looks fine")
    two.release_breaker(Breaker.objects.get().pk, admin, "AWS is well again")
    assert opened() == [], "what was before the release counts no more"
    assert set(Source.objects.values_list("good_rounds", flat=True)) == {0}, "watched anew after it"
    trouble(time, trips.MINUTES + 1)
    assert opened() == ["AWS_ERRORS"]


def test_failed_and_good_rounds_are_what_is_counted(time, monkeypatch):
    from workers.collect import sources

    account = factories.account()
    for well in (True, False, False):
        claim = sources.claim(account, factories.REGION, "ec2")
        claim.good(calls=3) if well else claim.failed("throttled")
        time.turn(60)
    told = aws_answers.since(account, factories.REGION, factories.ago(3600))
    assert (told.good, told.bad, told.minutes) == (1, 2, 2) and "throttled" in told.error


# --- blind for long


def test_sources_that_stay_blind_under_an_open_repair_open_a_breaker(time):
    scene.acting()
    scene.seeing()
    machine = scene.machine()
    time.turn(trips.BLIND_FOR.total_seconds() + 60)
    assert opened() == [], "without an open repair nobody is harmed"
    factories.repair(machine)
    time.turn(11)
    assert opened() == ["BLIND"]
    assert "blind since" in Breaker.objects.get().why


def test_blindness_of_some_minutes_opens_nothing(time):
    scene.seeing()
    factories.repair(scene.machine())
    time.turn(trips.BLIND_FOR.total_seconds() - 60)
    assert opened() == []


def test_the_time_in_which_healthboard_itself_stood_still_is_not_blindness(time):
    scene.seeing()
    factories.repair(scene.machine())
    time.turn(3600)
    Source.objects.update(watched_from=clock.now())
    assert opened() == []
    time.turn(trips.BLIND_FOR.total_seconds() + 1)
    assert opened() == ["BLIND"]


# --- failed launches


def replace(pool=None):
    return factories.repair(scene.machine(pool))


def failed(repair, zone: str = "us-east-1a") -> None:
    launches.note(repair, Launch.Outcome.FAILED, zone=zone, why="it never registered")


def test_launches_that_fail_in_a_row_put_the_pool_into_protected_mode(time):
    rows = [replace() for _ in range(launches.IN_A_ROW)]
    for number, row in enumerate(rows, 1):
        assert not Breaker.objects.exists()
        failed(row)
        assert launches.failed_in_a_row(row) == number
        time.turn(1)
    row = Breaker.objects.get()
    assert (row.kind, row.scope_kind, row.scope) == ("LAUNCH", "pool", "solo")


def test_one_launch_counts_once_however_often_it_is_told(time):
    row = replace()
    for zone in ("us-east-1a", "us-east-1a", "us-east-1b", "us-east-1c"):
        failed(row, zone)
        launches.note(row, Launch.Outcome.NO_CAPACITY, zone=zone)
    assert launches.failed_in_a_row(row) == 1 and not Breaker.objects.exists()


def test_a_launch_that_serves_ends_the_row_and_other_pools_do_not_count(time):
    rows = [replace() for _ in range(launches.IN_A_ROW)]
    other = replace(factories.pool("other", "TEMPLATE"))
    for row in rows[:-1]:
        failed(row)
        time.turn(1)
    failed(other)
    launches.note(rows[0], Launch.Outcome.SERVED, zone="us-east-1a")
    time.turn(1)
    failed(rows[-1])
    assert launches.failed_in_a_row(rows[-1]) == 1 and not Breaker.objects.exists()


def test_released_by_a_person_the_row_begins_anew(time, admin):
    rows = [replace() for _ in range(launches.IN_A_ROW + 1)]
    for row in rows[:-1]:
        failed(row)
    time.turn(1)
    two.release_breaker(Breaker.objects.get().pk, admin, "the template was mended")
    time.turn(1)
    failed(rows[-1])
    assert launches.failed_in_a_row(rows[-1]) == 1
    assert not Breaker.objects.filter(released_at=None).exists()


# --- what all of them do


@pytest.mark.parametrize(
    ("kind", "scope_kind", "scope"), [("AWS_ERRORS", "place", ""), ("BLIND", "place", ""), ("LAUNCH", "pool", "solo")]
)
def test_under_each_breaker_nothing_starts_what_runs_waits_and_undo_works(time, admin, kind, scope_kind, scope):
    scene.acting()
    running, fresh = scene.machine(), scene.machine()
    for _ in range(9):
        scene.machine()
    held = lifecycle.claim(factories.repair(running, state="SCHEDULED", automatic=False).pk, "host:1")
    assert lifecycle.start(held, "drain") is None
    row = brakes.open_breaker(
        account=running.account, region=running.region, kind=kind, scope_kind=scope_kind, scope=scope, why="too many",
        actor=WORKER,
    )  # fmt: skip
    waiting = lifecycle.claim(factories.repair(fresh, state="SCHEDULED", automatic=False).pk, "host:1")
    assert "Breaker open" in lifecycle.start(waiting, "drain")
    call = {
        "service": "ecs",
        "operation": "UpdateContainerInstancesState",
        "target": running.instance_id,
        "request": {},
    }
    with pytest.raises(Held, match="too many"):
        lifecycle.intend(held, **call)
    lifecycle.begin_undo(held, "a person wants it back")
    assert lifecycle.intend(held, **call).pk
    two.release_breaker(row.pk, admin, "understood")
    assert lifecycle.start(waiting, "drain") is None


def test_a_repair_under_way_asks_nothing_more_of_an_aws_that_fails_but_for_what_it_may_have_launched(time):
    scene.acting()
    repair = factories.repair(scene.machine(), step="replacement")
    factories.breaker("", kind="AWS_ERRORS", scope_kind="place", why="too many errors")
    found = engine._blocked(Run(repair))  # there is no AWS in this test to ask
    assert found.seconds == 60 and "too many errors" in found.why
    steps = factories.steps(repair, "launch")
    made = factories.call(steps[0], "RunInstances", "unknown")
    repair.facts["launch_request"] = {"ClientToken": made.token}
    assert engine._launch_unbound(Run(repair))


@pytest.mark.parametrize(("kind", "scope_kind", "scope"), [("AWS_ERRORS", "place", ""), ("LAUNCH", "pool", "solo")])
def test_the_button_on_the_system_page_releases_each_kind(kind, scope_kind, scope):
    row = factories.breaker(scope, kind=kind, scope_kind=scope_kind, why="too many errors")
    factories.source(good_rounds=1, watched_from=clock.now())
    client = Client()
    client.force_login(factories.person("admin"))
    session = client.session
    session[AUTH_AT] = clock.now().isoformat()
    session.save()
    page = client.get(reverse("system")).content.decode()
    assert row.title in page and row.where in page and "too many errors" in page and "Watched first" in page
    answer = client.post(reverse("release_breaker", args=[row.pk]), {"reason": "understood"})
    row.refresh_from_db()
    assert answer.status_code == 303 and row.released_at is None, "it takes a second person"
    asked = Request.objects.get()
    refused = client.post(reverse("second_confirm", args=[asked.pk]))
    assert refused.status_code == 403 and "another person must confirm" in refused.content.decode()
    client.force_login(factories.person("approver"))
    page = client.get(reverse("system")).content.decode()
    assert asked.what in page and reverse("second_confirm", args=[asked.pk]) in page
    stale = client.post(reverse("second_confirm", args=[asked.pk]))
    assert stale.url == "/accounts/again/?next=%2Fsystem%2F"
    session = client.session
    session[AUTH_AT] = clock.now().isoformat()
    session.save()
    answer = client.post(reverse("second_confirm", args=[asked.pk]))
    row.refresh_from_db()
    assert answer.status_code == 303 and row.released_at is not None and row.release_reason == "understood"
    assert AuditRow.objects.filter(verb="breaker.released").exists()


# --- a source that comes and goes


@pytest.fixture
def waiting(time, monkeypatch):
    """A scheduled repair whose sources are read once a minute, as outside of a sandbox."""
    monkeypatch.setattr(sources, "_interval", lambda name: timedelta(seconds=60))
    scene.acting()
    scene.seeing()
    return factories.repair(scene.machine(), state="SCHEDULED", opened_at=clock.now())


def test_a_source_that_fails_and_sees_in_turn_opens_the_breaker_which_stays(time, waiting, admin):
    rounds(time, 14, lost_every=2)
    assert opened() == [] and why_blind(waiting.instance, clock.now()), "it is watched first, again and again"
    rounds(time, 14, lost_every=2)
    assert opened() == ["BLIND"]
    row = Breaker.objects.get()
    assert row.why.startswith("ec2 was lost") and "saw again in between" in row.why and "Throttling" in row.why
    assert Notice.objects.filter(kind="breaker").count() == 1
    rounds(time, 40, lost_every=100)
    assert opened() == ["BLIND"], "latched, though it sees now"
    two.release_breaker(row.pk, admin, "the throttling has ended")
    assert opened() == [], "what was before the release counts no more"


def test_a_source_that_fails_now_and_then_opens_none(time, waiting):
    rounds(time, 60, lost_every=5)
    assert opened() == []


def test_a_source_that_comes_and_goes_opens_none_where_nothing_waits_for_it(time, waiting):
    waiting.delete()
    rounds(time, 40, lost_every=2)
    assert opened() == []
