from __future__ import annotations

import re
from html import unescape

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.audit.models import AuditRow
from healthboard.cases import groups, readings
from healthboard.cases.models import Case, Decision
from healthboard.fleet.models import JobStop
from healthboard.policies.defaults import ensure_default
from healthboard.policies.models import PolicyVersion
from healthboard.policies.reading import reread
from healthboard.repairs.models import Repair
from tests import factories as make


@pytest.fixture
def case(home):
    on = make.instance(home, verdict="AMBIGUOUS", verdict_code="XID_119")
    gpus = make.gpus(on, 8, bad={3: "error"})
    make.event(on, "XID_119", gpu=gpus[3].uuid, text="NVRM: Xid (PCI:0000:3d:00): 119, Timeout")
    make.reading(on, "EC2_SYSTEM", "OK")
    return make.case(on, gpu=gpus[3].uuid)


def _form(case: Case, **more) -> dict:
    return {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash, **more}


def test_the_page_answers_what_who_what_then_and_at_what_cost(case, log_in):
    text = log_in("operator").get(f"/cases/{case.pk}/").content.decode()
    for said in (
        "Xid 119: GPU system processor did not answer a driver call",  # what, in words
        "NVIDIA", "Amazon ECS", "Amazon EKS", "gpud", "does not act",  # who says what
        "GPU 3" if "GPU 3" in text else "class=\"n\">3", "System status",  # which GPU, which checks
        "2 × llm-train", "standalone", "1 protected",  # tasks that move
        "1 of 4 allowed are out", "there is room", "Lost for good", "If nobody answers",  # cost
        "ami-0gpu-new", "Undo", "expires in",
    ):  # fmt: skip
        assert said in text, said


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
    assert (
        "starts once" not in client.post(f"/cases/{case.pk}/answer/approve/", _form(case), follow=True).content.decode()
    )
    Repair.objects.update(state="RUNNING")
    text = client.post(f"/cases/{case.pk}/undo/", follow=True).content.decode()
    assert (
        "It had begun: it stops after this step, and what it did is undone." in text
        and "nothing was changed" not in text
    )


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


def test_a_question_that_is_put_anew_is_not_called_expired(case, log_in):
    client = log_in("operator")
    for expires, page, inbox in ((None, "expired", "expired"), (make.ago(-3600), "asked anew", "expired once")):
        Case.objects.update(expired_at=make.ago(600), expires_at=expires)
        text = client.get(f"/cases/{case.pk}/").content.decode()
        assert page in text and ("expires in" in text) == (expires is not None)
        rows = client.get("/").content.decode()
        assert inbox in rows and ("expired once" in rows) == (expires is not None)


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


def test_precedent_counts_what_was_done_and_whether_it_helped(case, home, log_in):
    for resolution, kind in (("REPAIRED", "approve"), ("REPAIRED", "override"), ("DISMISSED", "dismiss")):
        old = make.case(make.instance(home), state="CLOSED", resolution=resolution)
        make.decision(old, make.person("operator"), kind)
    make.case(make.instance(home, instance_type="p4d.24xlarge"), state="CLOSED", resolution="REPAIRED")
    found = log_in("operator").get(f"/cases/{case.pk}/").context["precedent"]
    assert (found["total"], found["helped"], found["dismissed"], found["overridden"]) == (3, 2, 1, 1)


def test_a_job_that_stops_is_told_by_the_next_poll(case, log_in):
    client, where = log_in("viewer"), f"/cases/{case.pk}/"
    shown = re.search(r'"X-Shown": "(\w+)"', client.get(where).content.decode())[1]
    headers = {"HX-Request": "true", "X-Shown": shown}
    assert client.get(where, headers=headers).status_code == 204
    on = case.instance
    JobStop.objects.create(
        account=on.account, region=on.region, cluster=on.cluster, name="pretrain/7", left=0, at=case.evidence_at,
        nodes={on.instance_id: 8},
    )  # fmt: skip
    answer = client.get(where, headers=headers)
    assert answer.status_code == 200 and "Job pretrain/7 stands still" in answer.content.decode()


def test_the_timeline_has_evidence_and_deeds_in_order_with_actors(case, log_in):
    Case.objects.filter(pk=case.pk).update(evidence_at=make.ago(3600))
    client = log_in("operator", "ona")
    client.post(f"/cases/{case.pk}/answer/snooze/", _form(case, snooze_s=900, reason="after lunch"))
    moments = client.get(f"/cases/{case.pk}/").context["timeline"]
    assert next(m.kind for m in moments) == "XID_119"
    assert moments == sorted(moments, key=lambda m: m.at)
    assert {"kernel", "ona"} <= {m.actor for m in moments}


def test_a_node_that_never_answered_says_so(case, log_in):
    make.request(case.instance, answered=False, expires_at=make.ago(5))
    assert "the node never answered" in log_in("viewer").get(f"/cases/{case.pk}/").content.decode()


def test_a_group_case_shows_members_cause_and_release_only(home, log_in):
    group = make.case(None, verdict="CORRELATED", action="HOLD", breaker=make.breaker(), pool=home)
    member = make.case(make.instance(home), state="HELD", parent=group)
    text = log_in("admin").get(f"/cases/{group.pk}/").content.decode()
    assert member.instance.instance_id in text
    assert "XID_79 on 5 of 20 instances" in text
    assert f"/cases/{group.pk}/release/" in text
    assert "/answer/" not in text


def test_a_storm_that_holds_nothing_shows_its_instances_and_offers_nothing(home, log_in):
    some = [make.instance(home) for _ in range(3)]
    storm = groups.observe(
        account_id=home.account_id, region=home.region, scope=("driver", "610.48.02"), code="XID_31",
        why="XID_31 on 3 of 3 instances", instances=[on.instance_id for on in some],
    )  # fmt: skip
    client = log_in("admin")
    text = client.get(f"/cases/{storm.pk}/").content.decode()
    for said in ("3 instances of driver 610.48.02 show XID_31", "Nothing is held", *(on.instance_id for on in some)):
        assert said in text, said
    assert "/release/" not in text and "/answer/" not in text
    assert client.post(f"/cases/{storm.pk}/release/", {"reason": "away"}).status_code == 422
    assert "3 instances" in client.get("/?tab=observed").content.decode()


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


def test_why_nothing_is_done_names_each_reason(home, log_in):
    make.switch(stopped=True, reason="fire", changed_by="ann")
    make.pause("pool", "train", reason="roll-out")
    on = make.instance(home, owner="BATCH", is_self=True, paused_by_tag=True)
    case = make.case(on, state="SNOOZED", snoozed_until=make.ago(-600))
    why = " ".join(row.text for row in log_in("viewer").get(f"/instances/{on.pk}/").context["waiting"])
    for said in (
        "healthboard itself",
        "AWS Batch",
        "stop switch",
        "roll-out",
        "healthboard:pause",
        f"Case {case.pk} is snoozed",
    ):
        assert said in why, said


def test_a_repair_that_asks_offers_its_choices_and_stops_on_request(home, log_in):
    repair = make.repair(
        make.instance(home), state="ASKING", why_waiting="Two tasks have not left",
        facts={"choices": [{"key": "wait", "title": "Wait on", "needs": "decide"},
                           {"key": "terminate_first", "title": "Terminate first", "needs": "terminate_first"}]},
    )  # fmt: skip
    client = log_in("operator", "ona")
    choices = client.get(f"/repairs/{repair.pk}/").context["choices"]
    assert [bool(c["why_not"]) for c in choices] == [False, False], "what takes two people may be asked for"
    assert client.post(f"/repairs/{repair.pk}/answer/", {"reason": "x"}).status_code == 422
    asked = client.post(f"/repairs/{repair.pk}/answer/", {"choice": "terminate_first", "reason": "x"})
    repair.refresh_from_db()
    assert (asked.status_code, repair.state) == (303, "ASKING"), "asked for, and nothing is done before a second person"
    assert "Waits for a second person; expires in" in client.get(f"/repairs/{repair.pk}/").content.decode()
    assert (
        client.post(f"/repairs/{repair.pk}/answer/", {"choice": "wait", "reason": "they finish soon"}).status_code
        == 303
    )
    other = make.repair(make.instance(home))
    assert client.post(f"/repairs/{other.pk}/stop/").status_code == 303
    other.refresh_from_db()
    assert other.stop_asked_by == "ona"
    assert "It had begun" in client.get(f"/repairs/{other.pk}/").content.decode()
    waits = make.repair(make.instance(home), state="SCHEDULED")
    answer = client.post(f"/repairs/{waits.pk}/stop/", follow=True)
    assert "Cancelled: nothing was changed." in answer.content.decode()


def test_what_a_silent_node_last_said_is_grey_not_green(home, log_in):
    make.source("node", age=120, interval_s=5)
    on = make.instance(home)
    for gpu in make.gpus(on, 2):
        gpu.measured_at = make.ago(120)
        gpu.save()
    make.reading(on, "NVML", "ok", channel="node", last=make.ago(120))
    make.reading(on, "EC2_SYSTEM", "OK", channel="ec2", last=make.ago(2))
    client = log_in("viewer")
    context = client.get(f"/instances/{on.pk}/").context
    assert [gpu.shown for gpu in context["gpus"]] == ["", ""]
    assert {c.title: c.status for c in context["checks"]} == {"System status": "OK", "NVML": "INSUFFICIENT_DATA"}


def test_the_case_and_the_instance_show_the_reading_and_what_would_change_it(home, log_in):
    ensure_default()
    on = make.instance(home)
    gpus = make.gpus(on, 8)
    make.event(on, "XID_79", gpu=gpus[3].uuid, at=make.ago(5), seq=7)
    case = readings.apply_reading(on, reread(on))
    client = log_in("viewer")
    for page in (f"/cases/{case.pk}/", f"/instances/{on.pk}/"):
        text = unescape(client.get(page).content.decode())
        for said in (
            "XID_79", "said by kernel", "rule: catalogue", "leads to: drain and replace",  # the finding
            "NVIDIA", "Amazon ECS", "Amazon EKS", "gpud", "RESTART_BM",  # who says what
            "May act by itself", "only kernel says so", "kernel reports XID_79",  # witnesses, and what is missing
            "A second witness would let it act alone: NVML reads the GPU as lost", "Without one by then, a person",
            "NVML reading the GPU again since",  # what would clear it
        ):  # fmt: skip
            assert said in text, (page, said)


def test_a_page_takes_the_same_queries_however_much_evidence_there_is(home, log_in):
    ensure_default()
    on = make.instance(home)
    gpus = make.gpus(on, 8)
    case = make.case(on)
    repair = make.repair(make.instance(home))
    client = log_in("viewer")
    pages = (f"/cases/{case.pk}/", f"/instances/{on.pk}/", f"/repairs/{repair.pk}/")

    def count() -> list[int]:
        found = []
        for page in pages:
            with CaptureQueriesContext(connection) as seen:
                assert client.get(page).status_code == 200
            found.append(len(seen))
        return found

    few = count()
    for n in range(20):
        make.event(on, f"XID_{n + 60}", gpu=gpus[n % 8].uuid, seq=n)
        make.reading(on, f"EC2_{n}", "OK")
        make.task(on)
    assert max(b - a for a, b in zip(few, count(), strict=True)) <= 2  # a question that only evidence raises
    assert max(few) <= 48, few
