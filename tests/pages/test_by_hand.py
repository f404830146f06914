"""Actions by hand: one plan, one decision, the same guards; and a requester by name."""

from __future__ import annotations

import pytest

from healthboard.audit.models import AuditRow
from healthboard.cases import answers, by_hand, ends, readings
from healthboard.cases.models import Case, Decision
from healthboard.notices.models import Notice
from healthboard.policies.defaults import ensure_default
from healthboard.policies.models import PolicyVersion
from healthboard.policies.reading import reread
from healthboard.repairs.models import Pause, Repair
from tests import factories as make
from workers.decide import breadth


@pytest.fixture
def on(home):
    ensure_default()
    found = make.instance(home)
    make.gpus(found, 8)
    make.task(found)
    return found


def _act(client, on, action="drain", reason="firmware", **more):
    where = f"/instances/{on.pk}/act/{action}/"
    form = {"seen": client.get(where).context["seen"], "reason": reason, **more}
    return client.post(where, form)


def test_a_hand_asked_drain_is_a_case_with_a_plan_a_decision_and_a_requester(on, log_in):
    client = log_in("operator", "ona")
    text = client.get(f"/instances/{on.pk}/act/drain/").content.decode()
    for said in ("leave it drained for a person", "1 × llm-train", "allowed are out", "At any time"):
        assert said in text, said
    answer = _act(client, on)
    case = Case.objects.get(instance=on)
    assert (answer.status_code, answer["Location"]) == (303, f"/cases/{case.pk}/")
    repair = Repair.objects.get(instance=on)
    assert (repair.action, repair.requested_by, repair.automatic) == ("DRAIN", "ona", False)
    assert (case.code, case.state, case.by_hand, case.why) == ("BY_HAND", "DECIDED", True, "firmware")
    assert repair.not_before > repair.opened_at, "there is an undo window"
    assert repair.facts["insisted"], "a good machine does not end its own repair by being good"
    assert {"case.opened", "case.approve", "repair.scheduled"} <= set(
        AuditRow.objects.filter(actor="ona").values_list("verb", flat=True)
    )
    page = client.get(f"/cases/{case.pk}/").content.decode()
    assert "asked for by ona" in page and "Nothing has been changed yet" in page
    assert "repair" in client.get(f"/instances/{on.pk}/act/reboot/").context["why_not"]
    assert client.post(f"/cases/{case.pk}/undo/").status_code == 303
    case.refresh_from_db()
    assert (case.state, case.resolution) == ("CLOSED", "WITHDRAWN")


def test_what_stands_against_it_refuses_it_and_the_refusal_is_on_record(on, log_in):
    make.switch(stopped=True, changed_by="ann", reason="fire")
    answer = _act(log_in("operator"), on)
    assert answer.status_code == 409 and b"stop switch" in answer.content
    case = Case.objects.get(instance=on)
    assert (case.state, case.resolution) == ("CLOSED", "WITHDRAWN") and "stop switch" in case.resolution_note
    assert AuditRow.objects.filter(verb="case.refused", case_id=case.pk).exists()
    assert not Repair.objects.exists()


def test_roles_reason_and_what_was_seen_are_checked_before_anything_is_written(on, log_in):
    viewer, operator = log_in("viewer"), log_in("operator")
    assert _act(viewer, on).status_code == 403
    assert _act(log_in("operator", pool="infer"), make.instance(make.pool("infer"))).status_code == 303
    refused = _act(operator, on, reason=" ")
    assert refused.status_code == 422 and b'aria-describedby="error"' in refused.content
    seen = operator.get(f"/instances/{on.pk}/act/drain/").context["seen"]
    make.event(on, "XID_79", gpu=on.gpus.first().uuid, at=make.ago(5), seq=1)
    answer = operator.post(f"/instances/{on.pk}/act/drain/", {"seen": seen, "reason": "x"})
    assert answer.status_code == 409 and b"It changed since you saw it" in answer.content
    assert operator.get(f"/instances/{on.pk}/act/terminate/").status_code == 404
    assert not Case.objects.filter(instance=on).exists()
    assert 'aria-disabled="true"' in viewer.get(f"/instances/{on.pk}/").content.decode()


def test_an_open_case_is_answered_by_it_not_passed_by(on, log_in):
    make.event(on, "XID_119", gpu=on.gpus.first().uuid, at=make.ago(5), seq=1)
    case = readings.apply_reading(on, reread(on))
    assert case.state == "WAITING"
    assert _act(log_in("operator"), on, "drain").status_code == 303
    decision = Decision.objects.get()
    assert (decision.case_id, decision.kind, decision.action) == (case.pk, "override", "DRAIN")
    assert Case.objects.count() == 1
    assert "insisted" not in decision.repair.facts


def test_two_people_where_the_policy_says_so_and_nobody_answers_twice(on, log_in):
    default = PolicyVersion.objects.get()
    default.data["settings"] = {**default.data.get("settings", {}), "approvals": 2}
    PolicyVersion.objects.filter(pk=default.pk).update(data=default.data)
    client = log_in("operator", "ona")
    assert _act(client, on, "replace").status_code == 303
    case = Case.objects.get(instance=on)
    assert case.state == "WAITING" and not Repair.objects.exists()
    assert Notice.objects.filter(kind="case_waiting", subject__contains="second person").count() == 1
    readings.apply_reading(on, reread(on))  # good evidence is no answer to what a person asked
    form = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash}
    assert client.post(f"/cases/{case.pk}/answer/approve/", form).status_code == 409, "not by the one who asked"
    assert log_in("approver", "abe").post(f"/cases/{case.pk}/answer/approve/", form).status_code == 303
    assert Repair.objects.get().action == "REPLACE"


def test_unanswered_it_lapses(on, log_in):
    default = PolicyVersion.objects.get()
    default.data["settings"] = {**default.data.get("settings", {}), "approvals": 2}
    PolicyVersion.objects.filter(pk=default.pk).update(data=default.data)
    _act(log_in("operator"), on, "replace")
    case = Case.objects.get(instance=on)
    Case.objects.filter(pk=case.pk).update(expires_at=make.ago(1))
    assert ends.expire(case.pk)
    case.refresh_from_db()
    assert (case.state, case.resolution) == ("CLOSED", "WITHDRAWN")
    assert Decision.objects.get().outcome == "REFUSED"


def test_many_by_hand_are_no_storm(home):
    ensure_default()
    rows = [make.instance(home) for _ in range(4)]
    person = make.actor(make.person("operator"))
    for one in rows:
        by_hand.ask(one.pk, actor=person, action="DIAGNOSE", reason="a look", seen=by_hand.offer(one, "DIAGNOSE").seen)
    assert Case.objects.filter(code="BY_HAND", state="DECIDED").count() == 4
    assert breadth.look() == []


def test_an_admin_pauses_one_instance_with_a_reason_and_an_end(on, log_in):
    where = f"/instances/{on.pk}/pause/"
    form = {"length": "3600", "reason": "a look at its cables"}
    assert log_in("operator").post(where, form).status_code == 403
    scoped = log_in("admin", pool="train")
    for wrong in (
        {**form, "reason": ""},
        {**form, "length": "99"},
        {**form, "length": "x"},
        {**form, "length": "²"},
        {},
    ):
        assert scoped.post(where, wrong).status_code == 422, wrong
    assert scoped.post(where, form).status_code == 303
    pause = Pause.objects.get()
    assert (pause.scope_kind, pause.scope) == ("instance", on.instance_id)
    assert log_in("admin", pool="infer").post(f"/system/pauses/{pause.pk}/end/").status_code == 404  # not theirs to see
    assert _act(log_in("operator"), on).status_code == 409, "it holds people's own repairs too"
    assert scoped.post(f"/system/pauses/{pause.pk}/end/").status_code == 303


def test_what_is_nobodys_to_touch_offers_a_look_at_most(home, log_in):
    on = make.instance(make.pool("managed", "MANAGED", auto_repair=True))
    buttons = log_in("operator").get(f"/instances/{on.pk}/").context["buttons"]
    assert {b["action"]: bool(b["why_not"]) for b in buttons} == {"DRAIN": True, "RETURN": True, "DIAGNOSE": False}
    on.pool.auto_repair = False
    on.pool.save()
    buttons = log_in("operator").get(f"/instances/{on.pk}/").context["buttons"]
    assert {b["action"]: bool(b["why_not"]) for b in buttons} == {"DRAIN": False, "RETURN": True, "DIAGNOSE": False}


def test_one_that_did_not_end_well_waits_for_an_answer_and_then_lapses(on, log_in):
    _act(log_in("operator"), on, "replace")
    case, repair = Case.objects.get(instance=on), Repair.objects.get(instance=on)
    Repair.objects.filter(pk=repair.pk).update(
        state="FAILED", outcome="NO_ROOM", outcome_why="the group is at its maximum", closed_at=make.ago(1)
    )
    repair.refresh_from_db()
    ends.carry_back(repair)
    case.refresh_from_db()
    assert (case.state, case.tries, case.why_waiting) == ("WAITING", 1, "the group is at its maximum")
    for _ in range(2):
        readings.apply_reading(on, reread(on))  # good evidence does not close what a person asked
    case.refresh_from_db()
    assert case.state == "WAITING" and case.clear_since is None and case.expires_at is not None
    Case.objects.filter(pk=case.pk).update(expires_at=make.ago(1))
    ends.expire(case.pk)
    case.refresh_from_db()
    assert (case.state, case.resolution) == ("CLOSED", "WITHDRAWN")


def test_bad_evidence_takes_over_what_was_asked_by_hand(on, log_in):
    _act(log_in("operator"), on)
    make.event(on, "XID_119", gpu=on.gpus.first().uuid, at=make.ago(5), seq=1)
    readings.apply_reading(on, reread(on))
    case = Case.objects.get(instance=on)
    assert (case.code, case.by_hand, case.state) == ("XID_119", False, "DECIDED")
    Repair.objects.update(state="SUCCEEDED", outcome="DONE", outcome_why="drained", closed_at=make.ago(1))
    ends.carry_back(Repair.objects.get())
    case.refresh_from_db()
    assert (case.state, case.verdict) == ("WAITING", "AMBIGUOUS"), "what is broken is still to be answered"


@pytest.mark.parametrize("stopped", [False, True])
def test_asking_by_hand_does_not_undo_a_dismissal(on, log_in, stopped):
    """Neither one that is carried out nor one that is refused: what was dismissed is not decided by policy then."""
    make.event(on, "XID_119", gpu=on.gpus.first().uuid, at=make.ago(60), seq=1)
    case = readings.apply_reading(on, reread(on))
    person = make.actor(make.person("operator", "ona"))
    answers.decide(
        case.pk, actor=person, kind="dismiss", reason="known driver bug", plan_version=case.plan_version,
        evidence_hash=case.evidence_hash,
    )  # fmt: skip
    if stopped:
        make.switch(stopped=True, changed_by="ann", reason="fire")
    answer = _act(log_in("operator"), on)
    assert answer.status_code == (409 if stopped else 303)
    asked = Case.objects.exclude(pk=case.pk).get()
    readings.apply_reading(on, reread(on))
    asked.refresh_from_db()
    assert asked.by_hand, "the dismissed evidence takes no other case over"
    if not stopped:
        Case.objects.filter(pk=asked.pk).update(state="CLOSED", resolution="DONE", closed_at=make.ago(0))
    readings.apply_reading(on, reread(on))
    assert Case.objects.filter(instance=on).count() == 2, "and opens none"


def test_evidence_that_takes_a_case_by_hand_over_begins_then(on, log_in):
    default = PolicyVersion.objects.get()
    default.data["settings"] = {**default.data.get("settings", {}), "approvals": 2}
    PolicyVersion.objects.filter(pk=default.pk).update(data=default.data)
    _act(log_in("operator"), on)
    Case.objects.update(opened_at=make.ago(3600), evidence_at=make.ago(3600))
    make.event(on, "XID_119", gpu=on.gpus.first().uuid, at=make.ago(5), seq=1)
    case = readings.apply_reading(on, reread(on))
    assert case.code == "XID_119" and case.evidence_at > make.ago(60), "many are compared by when it began"


def test_each_reason_of_a_greyed_action_is_written(home, log_in):
    on = make.instance(home)
    text = log_in("operator").get(f"/instances/{on.pk}/").content.decode()
    assert '<p class="quiet">Return to service: ECS shows it as ACTIVE: it is in service.</p>' in text
    text = log_in("viewer").get(f"/instances/{on.pk}/").content.decode()
    assert text.count('<p class="quiet">To drain or return an instance takes the role') == 1, "of all of them"
