"""What people approved is carried out only while they could still approve it; else it is refused and asked again (INV5)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from healthboard import clock
from healthboard.cases import ends, invariants
from healthboard.cases.models import Decision
from healthboard.people import tokens
from healthboard.people.actors import Actor
from healthboard.people.models import ApiToken, Grant
from healthboard.refusals import Held
from healthboard.repairs import lifecycle
from healthboard.repairs.models import WORKLOAD, Call, Repair
from tests import factories
from tests.cases import scene
from workers.repair import engine, leases


@pytest.fixture(autouse=True)
def seen(monkeypatch, db):
    """What is looked at in AWS plays no part here: nothing may be asked of it before the word is looked at."""
    monkeypatch.setattr(engine, "_may_start", lambda run: pytest.fail("went on without a word that holds"))
    with scene.at() as time:
        yield time


def approved(by: Actor) -> Repair:
    case = scene.asked()
    row = scene.decided(case, by=by).repair
    Repair.objects.filter(pk=row.pk).update(next_at=factories.ago(1))
    return row


def by_token() -> tuple[Actor, ApiToken]:
    user = factories.person("operator", "svc")
    tokens.issue_api(user, actor=factories.actor(user))
    token = ApiToken.objects.get(user=user)
    return Actor(name="svc", via="api", user=user, token=token), token


def gone(user) -> None:
    Grant.objects.filter(user=user).delete()


def switched_off(user) -> None:
    user.is_active = False
    user.save()


def deleted(user) -> None:
    user.delete()


def moved(user) -> None:
    Grant.objects.filter(user=user).update(pool="train")


@pytest.mark.parametrize("change", [gone, switched_off, deleted, moved])
def test_a_person_who_may_no_more_is_asked_again(change):
    user = factories.person("operator", "olga")
    row = approved(factories.actor(user))
    change(user)
    refused(row, "olga, whose word this rests on,")


def refused(row: Repair, why: str) -> None:
    assert engine.advance(row.pk) == "closed: NOT_APPROVED"
    row.refresh_from_db()
    assert row.state == "CANCELLED" and row.outcome_why.startswith(why), row.outcome_why
    assert not Call.objects.exists()
    ends.carry_back(row)
    decision = Decision.objects.get(repair=row)
    assert (decision.outcome, decision.case.state) == ("REFUSED", "WAITING") and decision.outcome_why == row.outcome_why
    assert decision.case.plan_version == decision.plan_version + 1, "the question is put anew"
    assert decision.case.tries == 0, "what was not carried out is no try"
    assert [line for line in invariants.check() if line.startswith("INV5")] == []


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_token_that_lives_no_more_is_no_word(how):
    actor, token = by_token()
    row = approved(actor)
    if how == "revoked":
        tokens.revoke_api(token, actor=actor)
    else:
        ApiToken.objects.update(expires_at=factories.ago(1))
    refused(row, "The token by which svc")


def test_the_group_that_the_policy_names_counts_until_the_end():
    group = Group.objects.create(name="owners")
    scene.policy(approver_group="owners", approvals=2)
    one, two = factories.person("operator", "olga"), factories.person("approver", "anna")
    for user in (one, two):
        user.groups.add(group)
    case = scene.asked()
    scene.decided(case, by=factories.actor(one))
    row = scene.decided(case, by=factories.actor(two)).repair
    Repair.objects.filter(pk=row.pk).update(next_at=factories.ago(1))
    one.groups.clear()
    assert engine.advance(row.pk) == "closed: NOT_APPROVED"
    row.refresh_from_db()
    assert row.outcome_why == "olga, whose word this rests on, is no longer in the group owners."


def test_an_approval_that_could_not_start_in_time_is_asked_again(seen):
    row = approved(factories.actor(factories.person("operator")))
    seen.turn(float(row.settings["expiry_s"]) + 31)
    refused(row, "It was approved at")


def test_a_started_repair_that_changed_nothing_is_undone(monkeypatch):
    user = factories.person("operator", "olga")
    row = approved(factories.actor(user))
    held = lifecycle.claim(row.pk, leases.worker_name())
    assert lifecycle.start(held, "recheck") is None
    gone(user)
    with pytest.raises(Held, match="olga, whose word"):
        lifecycle.intend(held, service="ecs", operation="UpdateContainerInstancesState", target="i-1", request={})
    lifecycle.settle(held, wait=timedelta(seconds=-1))
    assert engine.advance(row.pk) == "closed: NOT_APPROVED"
    row.refresh_from_db()
    assert row.state == "CANCELLED" and not Call.objects.exists()


#: calls that changed nothing: what was only asked of the workload, not sent, or refused by AWS
NOTHING = [(WORKLOAD, "wait"), (WORKLOAD, "ok"), ("ecs", lifecycle.NOT_SENT), ("ecs", "AccessDeniedException")]


def begun(row: Repair, service: str, outcome: str) -> Repair:
    """Started, with one call that came to this."""
    held = lifecycle.claim(row.pk, leases.worker_name())
    assert lifecycle.start(held, "checkpoint") is None
    target = row.instance.instance_id
    call = lifecycle.intend(held, service=service, operation="Asked", target=target, request={})
    lifecycle.answered(held, call, outcome)
    return held


@pytest.mark.parametrize(("service", "outcome"), NOTHING)
def test_a_call_that_changed_nothing_carries_no_word_on(service, outcome):
    user = factories.person("operator", "olga")
    held = begun(approved(factories.actor(user)), service, outcome)
    gone(user)
    drain = {"service": "ecs", "operation": "UpdateContainerInstancesState", "target": "i-1", "request": {}}
    with pytest.raises(Held, match="olga, whose word"):
        lifecycle.intend(held, **drain)
    lifecycle.settle(held, wait=timedelta(seconds=-1))
    assert engine.advance(held.pk) == "closed: NOT_APPROVED"
    assert Repair.objects.get(pk=held.pk).state == "CANCELLED"
    assert not Call.objects.exclude(operation="Asked").exists(), "nothing was drained and nothing launched"


@pytest.mark.parametrize(("service", "outcome"), NOTHING)
def test_nor_does_it_start_again_much_later(seen, service, outcome):
    held = begun(approved(factories.actor(factories.person("operator"))), service, outcome)
    lifecycle.put_off(held, "a window closed")
    seen.turn(float(held.settings["expiry_s"]) + 31)
    assert engine.advance(held.pk) == "closed: NOT_APPROVED"
    assert Repair.objects.get(pk=held.pk).outcome_why.startswith("It was approved at")


@pytest.mark.parametrize("outcome", ["", "ok", "unknown"])
def test_what_has_begun_to_change_something_goes_on_to_the_irreversible_step(outcome):
    user = factories.person("operator", "olga")
    held = begun(approved(factories.actor(user)), "ecs", outcome)
    gone(user)
    assert lifecycle.not_approved(held) is None
    with pytest.raises(lifecycle.IllegalMove):
        lifecycle.put_off(held, "a window closed")


def test_a_word_that_holds_is_carried_out(monkeypatch):
    monkeypatch.setattr(engine, "_may_start", lambda run: engine.Wait(7, "went on"))
    row = approved(factories.actor(factories.person("operator")))
    assert engine.advance(row.pk) == "went on" and clock.now() >= row.not_before - timedelta(seconds=60)
