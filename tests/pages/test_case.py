from __future__ import annotations

import re
from html import unescape

from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.cases import groups, readings
from healthboard.cases.models import Case
from healthboard.fleet.models import JobStop
from healthboard.policies.defaults import ensure_default
from healthboard.policies.reading import reread
from tests import factories as make


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


def test_a_question_that_is_put_anew_is_not_called_expired(case, log_in):
    client = log_in("operator")
    for expires, page, inbox in ((None, "expired", "expired"), (make.ago(-3600), "asked anew", "expired once")):
        Case.objects.update(expired_at=make.ago(600), expires_at=expires)
        text = client.get(f"/cases/{case.pk}/").content.decode()
        assert page in text and ("expires in" in text) == (expires is not None)
        rows = client.get("/").content.decode()
        assert inbox in rows and ("expired once" in rows) == (expires is not None)


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
    client.post(
        f"/cases/{case.pk}/answer/snooze/",
        {
            "plan_version": case.plan_version,
            "evidence_hash": case.evidence_hash,
            "snooze_s": 900,
            "reason": "after lunch",
        },
    )
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
