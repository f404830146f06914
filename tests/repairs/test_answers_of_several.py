"""An answer that goes further than what was decided takes as many people, and of the group, as the policy wants."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from healthboard.audit.models import AuditRow
from healthboard.people.models import Grant
from healthboard.refusals import NotAllowed, Withdrawn
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Repair
from tests import factories
from tests.cases import scene
from workers.repair.turns import order_of


@pytest.fixture(autouse=True)
def time(db):
    with scene.at() as turned:
        yield turned


def who(role: str, name: str, *groups: str):
    user = factories.person(role, name)
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return factories.actor(user)


@pytest.fixture
def slow():
    """A reboot under a policy of two people of one group, which asks since the machine does not come back."""
    scene.acting()
    scene.policy(approvals=2, approver_group="owners")
    return asks()


def asks(**fields) -> Repair:
    choices = [{"key": key, "title": title, "needs": "decide"}
               for key, title in (("wait_longer", "Wait longer"), ("replace", "Replace it"))]  # fmt: skip
    values = {"facts": {"choices": choices}, "why_waiting": "no new boot id", "irreversible": True, **fields}
    row = factories.repair(scene.machine(), state="ASKING", action="REBOOT", **values)
    factories.call(factories.steps(row, "reboot", "boot")[0], "RebootInstances")
    return row


def choose(row: Repair, actor, choice: str = "replace") -> int:
    more = lifecycle.answer(row.pk, actor=actor, choice=choice, reason="it is dead")
    row.refresh_from_db()
    return more


def test_one_person_or_one_outside_the_group_does_not_replace_it(slow):
    with pytest.raises(NotAllowed, match="of the group owners"):
        choose(slow, who("operator", "otto"))
    olga = who("operator", "olga", "owners")
    assert choose(slow, olga) == 1 and slow.state == "ASKING" and not slow.facts.get("answer")
    with pytest.raises(NotAllowed, match="You have chosen this already"):
        choose(slow, olga)
    with pytest.raises(NotAllowed, match="takes the role approver"):
        choose(slow, who("operator", "oscar", "owners"))
    assert AuditRow.objects.get(verb="repair.agreed").summary.startswith("olga, 1 of 2")
    assert choose(slow, who("approver", "anna", "owners")) == 0
    assert (slow.state, slow.facts["answer"]) == ("RUNNING", "replace")
    assert [(w["name"], w["group"]) for w in slow.facts["words"]] == [("olga", "owners"), ("anna", "owners")]


def test_what_the_policy_wants_when_it_is_answered_counts_and_no_less_than_when_it_was_decided():
    scene.policy(approvals=1)
    decided = asks(settings={"approvals": 2, "approver_group": "owners"})
    assert choose(decided, who("operator", "olga", "owners")) == 1
    with pytest.raises(NotAllowed, match="of the group owners"):
        choose(decided, who("operator", "otto"))


def test_a_word_that_no_longer_holds_is_none_of_the_two(slow):
    olga = who("operator", "olga", "owners")
    choose(slow, olga)
    olga.user.groups.clear()
    assert choose(slow, who("approver", "anna", "owners")) == 1, "hers is the first now"


def test_another_answer_ends_what_was_chosen_so_far(slow):
    choose(slow, who("operator", "olga", "owners"))
    assert choose(slow, who("operator", "otto"), "wait_longer") == 0
    assert slow.facts["agreed"] == []


def test_a_new_question_begins_anew(slow):
    olga = who("operator", "olga", "owners")
    choose(slow, olga)
    choices = slow.facts["choices"]
    Repair.objects.filter(pk=slow.pk).update(state="RUNNING", next_at=factories.ago(1))
    lifecycle.ask(lifecycle.claim(slow.pk, "host:1"), "again no boot id", choices)
    assert choose(slow, olga) == 1, "it was another question that she answered"


@pytest.mark.parametrize("automatic", [True, False])
def test_who_chose_it_must_still_be_able_to_when_the_machine_is_ended(automatic):
    scene.acting()
    row, olga = asks(automatic=automatic), who("operator", "olga")
    assert choose(row, olga) == 0
    held = lifecycle.claim(row.pk, "host:1")
    lifecycle.change_action(held, "REPLACE", "recheck", "chosen by a person")
    Grant.objects.filter(user=olga.user).delete()
    end = {"service": "ec2", "operation": "TerminateInstances", "target": row.instance.instance_id, "request": {}}
    with pytest.raises(Withdrawn, match="olga, whose word"):
        lifecycle.intend(held, irreversible=True, **end)


def test_another_action_has_none_of_the_exceptions_that_were_of_the_first():
    row = asks(allowed=["dead_host", "force_tasks", "terminate_first"])
    Repair.objects.filter(pk=row.pk).update(state="RUNNING", next_at=factories.ago(1))
    lifecycle.change_action(lifecycle.claim(row.pk, "host:1"), "REPLACE", "recheck", "chosen by a person")
    row.refresh_from_db()
    assert row.allowed == ["dead_host"], "what still takes every proof each time"
    assert order_of(row).index("replacement") < order_of(row).index("terminate")


def test_the_page_says_whom_it_takes_and_who_has_chosen(client, slow):
    olga, where = who("operator", "olga", "owners"), reverse("repair", args=[slow.pk])
    client.force_login(olga.user)
    assert "takes 2 people of the group owners" in client.get(where).content.decode()
    answered = client.post(
        reverse("repair_answer", args=[slow.pk]), {"choice": "replace", "reason": "dead"}, follow=True
    )
    page = answered.content.decode()
    assert "1 more must choose the same" in page and "chosen by olga so far" in page
    assert "You have chosen this already" in page
