"""What takes two people: asked for by one, confirmed by another who neither asked nor last edited the policy in force."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases import groups, invariants, second
from healthboard.cases.models import Case
from healthboard.fleet.models import Instance
from healthboard.people import second as people_second
from healthboard.people.access import given
from healthboard.people.models import Grant, Request
from healthboard.people.web import AUTH_AT
from healthboard.policies import versions
from healthboard.policies.models import Policy
from healthboard.refusals import AlreadyDecided, Closed, Held, Invalid, NotAllowed, NotFound
from healthboard.repairs import lifecycle, waiting
from healthboard.repairs import second as repairs
from healthboard.repairs.models import Breaker, Repair
from tests import factories
from tests.cases import scene


@pytest.fixture
def asking(time):
    """A repair that asks whether to terminate first."""
    scene.acting()
    choices = [{"key": "terminate_first", "title": "Terminate first", "needs": "terminate_first"},
               {"key": "wait_longer", "title": "Wait", "needs": "decide"}]  # fmt: skip
    row = factories.repair(scene.machine(), state="ASKING", why_waiting="no capacity", facts={"choices": choices})
    factories.steps(row, "launch")
    return row


@pytest.fixture
def asked(asking, operator):
    return repairs.ask_answer(asking.pk, actor=operator, choice="terminate_first", reason="full")


def last_refusal(subject: str) -> str:
    return AuditRow.objects.filter(verb="second.refused", subject=subject).latest("pk").summary


def edited_by(actor, **settings):
    default = Policy.objects.filter(is_default=True).first() or versions.ensure_default()
    default.settings = {**default.settings, **settings}
    return versions.save(default, actor=actor, reason="for this test")


def test_an_approver_confirms_and_it_is_carried_out_once(asking, asked, approver):
    assert Repair.objects.get(pk=asking.pk).state == "ASKING", "nothing happens before the second person"
    second.confirm(asked.pk, actor=approver)
    asking.refresh_from_db()
    asked.refresh_from_db()
    assert (asking.state, asking.allowed, asking.facts["answer"]) == ("RUNNING", ["terminate_first"], "terminate_first")
    assert (asked.state, asked.asked_by, asked.answered_by) == ("CONFIRMED", "olga", "anna")
    assert "olga and anna" in AuditRow.objects.get(verb="repair.answered").summary
    with pytest.raises(Closed):
        second.confirm(asked.pk, actor=approver)


def test_asking_and_answer_are_on_record_with_the_repair(asking, asked, approver):
    second.refuse(asked.pk, actor=approver, reason="wait for the block")
    rows = AuditRow.objects.filter(repair_id=asking.pk, verb__startswith="second.").order_by("pk")
    assert [row.verb for row in rows] == ["second.asked", "second.refused"] and "drain and replace" in rows[0].summary


def test_nobody_confirms_what_they_asked_for(asking, approver):
    mine = repairs.ask_answer(asking.pk, actor=approver, choice="terminate_first", reason="full")
    with pytest.raises(NotAllowed, match="You asked for it"):
        second.confirm(mine.pk, actor=approver)
    assert last_refusal(f"repair:{asking.pk}") == "anna refused: You asked for it: another person must confirm it."
    assert Request.objects.get().state == "WAITING"


def test_nor_what_concerns_a_repair_that_they_asked_for(asking, asked, approver):
    Repair.objects.filter(pk=asking.pk).update(automatic=False, requested_by="anna")
    with pytest.raises(NotAllowed, match="You asked for the repair"):
        second.confirm(asked.pk, actor=approver)


@pytest.mark.parametrize("automatic", [True, False])
def test_nor_does_anybody_whose_word_the_repair_rests_on(asking, asked, approver, automatic):
    """One of several approvers, or who chose to replace what was begun by itself."""
    word = given(approver.user, "anna", "decide")
    facts = {**asking.facts, "words": [word, given(None, "otto", "decide")]}
    Repair.objects.filter(pk=asking.pk).update(automatic=automatic, requested_by="otto", facts=facts)
    with pytest.raises(NotAllowed, match="You asked for the repair"):
        second.confirm(asked.pk, actor=approver)


def test_who_confirmed_one_exception_may_confirm_the_next(asking, asked, operator, approver):
    second.confirm(asked.pk, actor=approver)
    asking.refresh_from_db()
    assert [word["name"] for word in asking.facts["words"]] == ["olga", "anna"]
    choices = [{"key": "force_tasks", "title": "Give them up", "needs": "terminate_first"}]
    Repair.objects.filter(pk=asking.pk).update(state="ASKING", facts={**asking.facts, "choices": choices})
    later = repairs.ask_answer(asking.pk, actor=operator, choice="force_tasks", reason="stuck")
    second.confirm(later.pk, actor=approver)
    assert "force_tasks" in Repair.objects.get(pk=asking.pk).allowed


def test_nor_does_the_last_editor_of_the_policy_in_force(asking, asked, approver, admin):
    Grant.objects.create(user=approver.user, role="admin")
    edited_by(approver, undo_s=60)
    with pytest.raises(NotAllowed, match="last to edit the policy"):
        second.confirm(asked.pk, actor=approver)
    edited_by(admin, undo_s=90)
    second.confirm(asked.pk, actor=approver)


@pytest.mark.parametrize("role", ["viewer", "operator", "admin", ""])
def test_only_an_approver_confirms(asking, asked, role):
    with pytest.raises(NotAllowed):
        second.confirm(asked.pk, actor=factories.actor(factories.person(role)))
    assert Repair.objects.get(pk=asking.pk).state == "ASKING" and last_refusal(f"repair:{asking.pk}")


def test_superusers_are_not_exempt(asking, asked):
    user = factories.person("")
    user.is_superuser = True
    user.save()
    with pytest.raises(NotAllowed, match="no role"):
        second.confirm(asked.pk, actor=factories.actor(user))


def test_an_approver_of_another_pool_does_not(asking, asked):
    with pytest.raises(NotAllowed, match="elsewhere"):
        second.confirm(asked.pk, actor=factories.actor(factories.person("approver", pool="train")))


def test_both_need_a_recent_log_in(asking, asked, operator, approver):
    with pytest.raises(NotAllowed) as caught:
        second.confirm(asked.pk, actor=factories.actor(approver.user, recent=False))
    assert caught.value.details["again"]
    Request.objects.all().delete()
    with pytest.raises(NotAllowed) as caught:
        repairs.ask_answer(
            asking.pk, actor=factories.actor(operator.user, recent=False), choice="terminate_first", reason="x"
        )
    assert caught.value.details["again"]


def test_a_viewer_cannot_even_ask_and_nobody_asks_twice(asking, asked, viewer, operator):
    for actor, error in ((viewer, NotAllowed), (operator, AlreadyDecided)):
        with pytest.raises(error):
            repairs.ask_answer(asking.pk, actor=actor, choice="terminate_first", reason="full")
    with pytest.raises(Invalid):
        repairs.ask_answer(asking.pk, actor=operator, choice="dead_host", reason="full")


def test_it_expires_after_an_hour_and_can_be_asked_anew(time, asking, asked, operator, approver):
    time.turn(3601)
    with pytest.raises(Closed, match="expired"):
        second.confirm(asked.pk, actor=approver)
    assert people_second.expire_due() == 1 and people_second.expire_due() == 0
    assert AuditRow.objects.filter(verb="second.expired").count() == 1
    again = repairs.ask_answer(asking.pk, actor=operator, choice="terminate_first", reason="still full")
    second.confirm(again.pk, actor=approver)


def test_a_question_that_became_another_is_not_answered(asking, asked, approver):
    Repair.objects.filter(pk=asking.pk).update(why_waiting="something else")
    with pytest.raises(Closed, match="not what was asked"):
        second.confirm(asked.pk, actor=approver)


def test_an_asker_who_lost_the_role_counts_no_more(asking, asked, operator, approver):
    Grant.objects.filter(user=operator.user).delete()
    with pytest.raises(NotAllowed, match="olga, whose word"):
        second.confirm(asked.pk, actor=approver)


def test_another_answer_makes_it_moot(asking, asked, operator, approver):
    lifecycle.answer(asking.pk, actor=operator, choice="wait_longer", reason="it comes")
    asked.refresh_from_db()
    assert asked.state == "WITHDRAWN"
    with pytest.raises(Closed):
        second.confirm(asked.pk, actor=approver)


def test_it_is_taken_back_or_refused_with_a_reason(asking, asked, operator, approver, viewer):
    with pytest.raises(NotAllowed):
        second.refuse(asked.pk, actor=viewer, reason="no")
    with pytest.raises(Invalid):
        second.refuse(asked.pk, actor=approver, reason=" ")
    assert second.refuse(asked.pk, actor=approver, reason="wait for the weekend").state == "REFUSED"
    mine = repairs.ask_answer(asking.pk, actor=operator, choice="terminate_first", reason="full")
    assert second.refuse(mine.pk, actor=operator, reason="").state == "WITHDRAWN"
    with pytest.raises(NotFound):
        second.refuse(10**6, actor=operator, reason="x")


# --- a breaker --------------------------------------------------------------------------------------------------------


def test_a_breaker_is_asked_for_by_an_admin_and_confirmed_by_an_approver(time, admin, operator, approver):
    row = factories.breaker("solo", kind="LAUNCH", scope_kind="pool")
    with pytest.raises(NotAllowed):
        repairs.ask_release(row.pk, actor=operator, reason="fine")
    asked = repairs.ask_release(row.pk, actor=admin, reason="mended")
    with pytest.raises(NotAllowed):
        second.confirm(asked.pk, actor=admin)
    second.confirm(asked.pk, actor=approver)
    row.refresh_from_db()
    assert row.released_by == "ada and anna"
    told = AuditRow.objects.get(verb="breaker.released")
    assert (told.actor, told.payload["asked_by"]) == ("anna", "ada")
    with pytest.raises(Closed):
        repairs.ask_release(row.pk, actor=admin, reason="again")


def test_an_admin_who_approves_too_does_not_release_what_their_policy_tripped(time, admin):
    both = factories.actor(factories.person("admin", "bert"))
    Grant.objects.create(user=both.user, role="approver")
    edited_by(both, undo_s=60)
    row = factories.breaker("solo", kind="LAUNCH", scope_kind="pool")
    asked = repairs.ask_release(row.pk, actor=admin, reason="mended")
    with pytest.raises(NotAllowed, match="last to edit"):
        second.confirm(asked.pk, actor=both)
    assert Breaker.objects.get().released_at is None


# --- a group case -----------------------------------------------------------------------------------------------------


@pytest.fixture
def other(time):
    """A case that no group holds yet."""
    return scene.asked()


@pytest.fixture
def held(other):
    """A group case that holds one member."""
    return hold(scene.asked(), "pool", "solo")


def hold(member, kind, scope, **more):
    return groups.hold(account=member.account, region=member.region, scope=(kind, scope), code=member.code, why="many",
                       members=[member], **more)  # fmt: skip


def test_a_group_that_spread_after_its_release_was_asked_for_is_not_released_and_is_asked_for_anew(
    held, admin, approver
):
    asked = second.ask_release(held.pk, actor=admin, reason="mended")
    hold(held.members.get(), "zone", "eu-central-1a", part_of=held)
    with pytest.raises(Closed, match="over"):
        second.confirm(asked.pk, actor=approver)
    assert Breaker.objects.filter(released_at=None).count() == 2
    anew = second.ask_release(held.pk, actor=admin, reason="both mended")
    second.confirm(anew.pk, actor=approver)
    assert not Breaker.objects.filter(released_at=None).exists()


def test_nor_is_one_that_holds_another_member_than_was_asked_about(held, other, admin, approver):
    asked = second.ask_release(held.pk, actor=admin, reason="mended")
    Case.objects.filter(pk=other.pk).update(parent=held, state="HELD")  # committed just before the confirmation
    with pytest.raises(Closed, match="not what was asked"):
        second.confirm(asked.pk, actor=approver)
    other.refresh_from_db()
    assert other.state == "HELD" and Breaker.objects.get().released_at is None


def test_a_member_that_joins_ends_what_was_asked_for_and_one_that_closes_does_not(held, other, admin, approver):
    asked = second.ask_release(held.pk, actor=admin, reason="mended")
    hold(other, "pool", "solo")
    asked.refresh_from_db()
    assert asked.state == "WITHDRAWN" and "is held as well" in asked.answer
    asked = second.ask_release(held.pk, actor=admin, reason="both mended")
    Case.objects.filter(pk=held.members.first().pk).update(state="CLOSED", closed_at=clock.now(), resolution="CLEARED")
    assert second.confirm(asked.pk, actor=approver).state == "CONFIRMED"


# --- one repair over the budget ---------------------------------------------------------------------------------------


@pytest.fixture
def full(time):
    """A pool of four whose budget of one is taken, and a repair that waits for it."""
    scene.acting()
    machines = [scene.machine() for _ in range(4)]
    running = start(machines[0])
    assert running.state == "RUNNING"
    row = start(machines[1])
    assert row.why_waiting.startswith("Budget of solo: 1 of 1")
    return row


def start(on, **settings) -> Repair:
    """A repair, as far as the budget lets it; with what it waits for."""
    row = Repair.objects.filter(instance=on).first()
    if row is None:
        row = factories.repair(
            on, state="SCHEDULED", next_at=factories.ago(1), not_before=factories.ago(1), settings=settings
        )
    held = lifecycle.claim(row.pk, "host:1")
    why = lifecycle.start(held, "recheck")
    lifecycle.settle(held, wait=timedelta(0), why=why or "")
    row.refresh_from_db()
    return row


def over(row, operator, approver):
    second.confirm(repairs.ask_over_budget(row.pk, actor=operator, reason="the job is due").pk, actor=approver)


def test_two_people_let_one_repair_start_over_the_budget(full, operator, approver):
    over(full, operator, approver)
    row = start(full.instance)
    assert (row.state, row.occupancy.note, row.occupancy.units) == ("RUNNING", "over_budget", 1)
    assert [line for line in invariants.check() if line.startswith("INV2")] == []
    third = start(scene.machine())
    assert "2 of 1 allowed are out" in third.why_waiting
    over(third, operator, approver)
    assert "another repair runs over the budget already" in start(third.instance).why_waiting


def test_over_the_budget_without_two_people_is_a_broken_invariant(full, operator, approver):
    over(full, operator, approver)
    start(full.instance)
    Request.objects.update(answered_by="olga")
    assert any(line.startswith("INV2") for line in invariants.check())


def test_it_is_not_asked_for_what_does_not_wait_for_the_budget(time, operator):
    with pytest.raises(Closed):
        repairs.ask_over_budget(factories.repair(scene.machine(), state="RUNNING").pk, actor=operator, reason="x")


def test_nor_for_a_machine_that_is_out_already_which_takes_no_unit(full, operator, approver):
    asked = repairs.ask_over_budget(full.pk, actor=operator, reason="the job is due")
    Instance.objects.filter(pk=full.instance_id).update(agent_connected=False)
    row = start(full.instance)
    assert row.why_waiting.startswith("Out already: of solo 2 of 1 allowed are out"), row.why_waiting
    [told] = [w for w in waiting.waiting_for(row.instance, None, row) if w.kind == "turn"]
    assert "two people" not in told.then
    with pytest.raises(Closed, match="takes no unit"):
        second.confirm(asked.pk, actor=approver)
    people_second.drop(f"repair:{row.pk}", "for this test", actor=operator)
    with pytest.raises(Closed, match="takes no unit"):
        repairs.ask_over_budget(row.pk, actor=operator, reason="the job is due")
    assert not repairs.waits_for_budget(row)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"budget_absolute": 1}, "absolute number"), ({"minimum_healthy": 3}, "3 must stay"), ({}, "not used in time")],
)
def test_bounds_hold_all_the_same(time, full, operator, approver, settings, said):
    Repair.objects.filter(pk=full.pk).update(settings={**full.settings, **settings})
    over(full, operator, approver)
    if not settings:
        time.turn(3601)
    assert said in start(full.instance).why_waiting


def test_the_last_one_that_serves_stays(time, operator, approver):
    scene.acting()
    one, other = scene.machine(), scene.machine()
    start(one)
    row = start(other)
    over(row, operator, approver)
    assert "last one that serves" in start(other).why_waiting


def test_a_permission_falls_with_the_role_of_who_gave_it(full, operator, approver):
    over(full, operator, approver)
    Grant.objects.filter(user=approver.user).delete()
    assert "anna, whose word" in start(full.instance).why_waiting


# --- in the browser's words -------------------------------------------------------------------------------------------


def test_the_pages_ask_show_and_confirm(client, full, operator, approver, viewer):
    def as_(actor):
        client.force_login(actor.user)
        session = client.session
        session[AUTH_AT] = clock.now().isoformat()
        session.save()

    where = reverse("repair", args=[full.pk])
    as_(operator)
    assert "Start over the budget" in client.get(where).content.decode()
    assert client.post(reverse("repair_over_budget", args=[full.pk]), {"reason": "due"}).status_code == 303
    row = Request.objects.get()
    as_(viewer)
    page = client.get(where).content.decode()
    assert "asked for by olga" in page and "takes the role approver" in page
    assert client.post(reverse("second_confirm", args=[row.pk])).status_code == 403
    as_(approver)
    assert client.post(reverse("second_confirm", args=[row.pk])).status_code == 303
    as_(factories.actor(factories.person("approver", pool="train")))
    assert client.post(reverse("second_confirm", args=[row.pk])).status_code == 404, "not seen from another pool"


def test_held_is_what_waits_at_the_irreversible_step_for_words_that_count_no_more(asking, asked, approver):
    second.confirm(asked.pk, actor=approver)
    Repair.objects.filter(pk=asking.pk).update(next_at=factories.ago(1), automatic=True)
    held = lifecycle.claim(asking.pk, "host:1")
    approver.user.is_active = False
    approver.user.save()
    with pytest.raises(Held, match="anna, whose word"):
        lifecycle.intend(
            held, service="ec2", operation="TerminateInstances", target="i-1", request={}, irreversible=True
        )
