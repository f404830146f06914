"""The four answers, undo and bulk as a person gives them on the pages: what is posted, what is said, what is refused."""

from __future__ import annotations

import re

import pytest

from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case, Decision
from healthboard.policies.defaults import ensure_default
from healthboard.policies.models import PolicyVersion
from healthboard.repairs.models import Repair
from tests import factories as make


def _form(case: Case, **more) -> dict:
    return {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash, **more}


def test_each_form_carries_what_was_seen(case, log_in):
    text = log_in("operator").get(f"/cases/{case.pk}/").content.decode()
    assert text.count(f'name="evidence_hash" value="{case.evidence_hash}"') == 4
    assert text.count('name="plan_version" value="1"') == 4


def test_approving_opens_a_repair_with_an_undo_window(case, log_in):
    client = log_in("operator", "ona")
    answer = client.post(f"/cases/{case.pk}/answer/approve/", _form(case, action="REBOOT"))
    assert (answer.status_code, answer["Location"]) == (303, f"/cases/{case.pk}/")
    text = client.get(f"/cases/{case.pk}/").content.decode()
    assert "Nothing has been changed yet" in text
    assert "ona" in text
    answer = client.post(f"/cases/{case.pk}/undo/", follow=True)
    assert "Undone: nothing was changed." in answer.content.decode()
    case.refresh_from_db()
    assert case.state == "WAITING"


def test_an_undo_that_comes_too_late_for_that_says_what_it_does(case, log_in):
    client = log_in("operator", "ona")
    started = client.post(f"/cases/{case.pk}/answer/approve/", _form(case), follow=True).content.decode()
    assert "Approved." in started and "starts once" not in started
    Repair.objects.update(state="RUNNING")
    text = client.post(f"/cases/{case.pk}/undo/", follow=True).content.decode()
    assert "It had begun: it stops after this step, and what it did is undone." in text
    assert "nothing was changed" not in text


def test_an_approval_that_is_not_enough_says_so_there_and_on_the_case(case, log_in):
    ensure_default()
    version = PolicyVersion.objects.get()
    version.data["settings"] = {**version.data.get("settings", {}), "approvals": 2}
    PolicyVersion.objects.filter(pk=version.pk).update(data=version.data)
    client = log_in("operator", "ona")
    text = client.post(f"/cases/{case.pk}/answer/approve/", _form(case), follow=True).content.decode()
    assert "Approved. It starts once another person has approved it." in text and "waits for another person" in text
    Case.objects.update(plan_version=2)
    assert "counts no more: the plan changed" in client.get(f"/cases/{case.pk}/").content.decode()


@pytest.mark.parametrize("kind", ["override", "dismiss"])
def test_an_empty_reason_is_refused_on_the_form_beside_its_field(case, log_in, kind):
    answer = log_in("operator").post(f"/cases/{case.pk}/answer/{kind}/", _form(case, action="DIAGNOSE", reason=" "))
    assert answer.status_code == 422
    assert 'aria-invalid="true" aria-describedby="error-page"' in answer.content.decode()
    assert not Decision.objects.exists()


def test_dismissing_closes_with_the_reason_in_the_audit_list(case, log_in):
    client = log_in("operator", "ona")
    client.post(f"/cases/{case.pk}/answer/dismiss/", _form(case, reason="a known driver bug"))
    case.refresh_from_db()
    assert (case.state, case.resolution) == ("CLOSED", "DISMISSED")
    assert "a known driver bug" in client.get("/audit/?verb=case").content.decode()


def test_a_changed_world_answers_409_with_the_fresh_case(case, log_in):
    plan = {**case.plan, "changed": [{"version": 2, "what": ["action REBOOT → REPLACE"]}]}
    Case.objects.filter(pk=case.pk).update(plan_version=2, plan=plan)
    answer = log_in("operator").post(f"/cases/{case.pk}/answer/approve/", _form(case))
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "action REBOOT → REPLACE" in text
    assert 'name="plan_version" value="2"' in text
    assert AuditRow.objects.filter(verb="case.refused", case_id=case.pk).exists()


def test_the_second_of_two_approvals_learns_who_was_first(case, log_in):
    assert log_in("operator", "ann").post(f"/cases/{case.pk}/answer/approve/", _form(case)).status_code == 303
    answer = log_in("operator", "bob").post(f"/cases/{case.pk}/answer/approve/", _form(case))
    assert answer.status_code == 409
    assert "ann" in answer.content.decode()
    assert Decision.objects.exclude(repair=None).count() == 1


def test_a_damaged_form_is_refused_in_words(case, log_in):
    client = log_in("operator")
    for form in ({}, {"plan_version": "x", "evidence_hash": "y"}, _form(case, snooze_s="soon")):
        assert client.post(f"/cases/{case.pk}/answer/snooze/", form).status_code == 422
    assert client.post(f"/cases/{case.pk}/answer/nonsense/", _form(case)).status_code == 404
    assert client.get("/cases/999999/").status_code == 404


def test_bulk_refuses_nothing_unlike_damaged_or_too_many(case, home, log_in):
    client = log_in("operator")
    row = f"{case.pk}:{case.plan_version}:{case.evidence_hash}"
    other = make.case(make.instance(home), action="REPLACE")
    unlike = f"{other.pk}:{other.plan_version}:{other.evidence_hash}"
    for form in (
        {"row": []},
        {"row": "nonsense"},
        {"row": row.replace(f"{case.pk}:", "²:", 1)},
        {"row": row.replace(f"{case.pk}:", f"{'9' * 5000}:", 1)},
        {"row": [f"{n}:1:{'a' * 64}" for n in range(51)]},
        {"row": [row, unlike]},
    ):
        assert client.post("/bulk/", {"kind": "approve", **form}).status_code == 422
    assert client.post("/bulk/", {"kind": "dismiss", "row": row}).status_code == 422  # no reason
    assert not Decision.objects.exists()
    text = client.post("/bulk/confirm/", {"kind": "approve", "row": [row, unlike]}).content.decode()
    assert "These are not all alike" in text
    assert case.instance.instance_id in text


def test_bulk_shows_each_plan_before_it_is_approved(home, log_in):
    other = make.instance(make.pool("infer"))
    first, second = (make.case(make.instance(home)) for _ in range(2))
    first.plan |= {"blockers": ["no room in <group>"], "warnings": [f"waits for {other.instance_id}"], "tasks_total": 3}
    first.save()
    second.plan |= {"blockers": [], "warnings": [], "tasks_total": 1}
    second.save()
    rows = [f"{case.pk}:{case.plan_version}:{case.evidence_hash}" for case in (first, second)]
    client = log_in("operator", pool="train")
    text = client.post("/bulk/confirm/", {"kind": "approve", "row": rows}).content.decode()
    for said in (
        "no room in &lt;group&gt;",
        "waits for an instance outside your scope",
        "3 tasks move",
        "1 task moves",
    ):
        assert text.count(said) == 1, said
    assert other.instance_id not in text and text.count(f"plan version {first.plan_version}") == 2
    text = client.post("/bulk/confirm/", {"kind": "dismiss", "row": rows}).content.decode()
    assert "no room" not in text and "tasks move" not in text, "a dismissal carries out no plan"


def test_each_reason_of_a_greyed_answer_is_written_once(home, log_in):
    case = make.case(make.instance(home), action="HOLD")
    case.plan |= {"choices": []}
    case.save()
    text = log_in("operator").get(f"/cases/{case.pk}/").content.decode()
    assert '<p class="quiet">Approve: No action is proposed; override to choose one.</p>' in text
    assert '<p class="quiet">Override: There is no other action for this owner.</p>' in text
    text = log_in("viewer").get(f"/cases/{case.pk}/").content.decode()
    assert len(re.findall(r'<p class="quiet">To decide a case takes the role', text)) == 1, "of all answers"


def test_bulk_answers_each_row_by_itself_and_says_so_row_by_row(home, log_in):
    ensure_default()
    cases = [make.case(make.instance(home)) for _ in range(3)]
    Case.objects.filter(pk=cases[1].pk).update(
        plan_version=2, plan={**cases[1].plan, "changed": [{"version": 2, "what": ["a protected task came"]}]}
    )
    rows = [f"{case.pk}:{case.plan_version}:{case.evidence_hash}" for case in cases]
    client = log_in("operator")
    answer = client.post("/bulk/", {"kind": "approve", "row": rows})
    text = answer.content.decode()
    assert (answer.status_code, answer.context["done"], answer.context["refused"]) == (200, 2, 1)
    assert "2 cases were answered, 1 refused" in text and "a protected task came" in text
    assert [Decision.objects.filter(case=case).exclude(repair=None).count() for case in cases] == [1, 0, 1]
    again = client.post("/bulk/", {"kind": "approve", "row": rows})
    assert (again.status_code, again.context["refused"]) == (409, 3)
