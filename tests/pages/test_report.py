"""The report of a case: one page to print, with everything that was decided on, and a hash to verify it by."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.audit import chain
from healthboard.policies.versions import ensure_default
from healthboard.repairs.models import Repair
from tests import factories as make


@pytest.fixture
def told(home, monkeypatch, tmp_path):
    """A closed case with a decision, a repair with steps and a call, and rows of the record."""
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    ensure_default()
    on = make.instance(home)
    opened = make.ago(3600)
    case = make.case(on, code="XID_79", verdict="HARDWARE", action="REPLACE", state="CLOSED", opened_at=opened,
                     resolution="REPAIRED", resolution_note="the replacement serves", codes=["XID_79"])  # fmt: skip
    user = make.person("operator", "ann")
    repair = make.repair(on, state="SUCCEEDED", opened_at=opened + timedelta(minutes=10), outcome_why="all good")
    make.call(make.steps(repair, "recheck", "drain", "tasks", "replacement", "verify", last="DONE")[1])
    make.decision(case, user, "override", repair=repair, reason="as last time", at=opened + timedelta(minutes=10),
                  outcome="DONE")  # fmt: skip
    by = make.actor(user)
    for verb, payload in (("case.opened", {}), ("case.decided", {"before": "WAITING"}), ("case.closed", {"before": "DECIDED"})):  # fmt: skip
        make.audit(verb, f"{verb} by somebody", by=by, case_id=case.pk, instance=on, payload=payload)
    return case


def test_it_holds_evidence_sources_decision_plan_steps_outcome_and_times(told, log_in):
    chain.seal()
    text = log_in("viewer").get(f"/cases/{told.pk}/report/").content.decode()
    for part in ("First sign", "Detected", "Decided", "Drained", "Replaced", "Verified", "People's time", "Machines' time",
                 "Who says what", "as last time", "ann", told.evidence_hash, "UpdateContainerInstancesState", "all good",
                 "the replacement serves", "Findings that it was decided on", "Witnesses: kernel and nvml"):  # fmt: skip
        assert part in text, part
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text), "nothing from outside"
    assert "<form" not in text.split('<main id="main"')[1].split("</main>")[0]


def test_the_end_is_called_by_what_was_done_not_by_what_was_proposed(told, log_in):
    Repair.objects.update(action="REBOOT")
    text = log_in("viewer").get(f"/cases/{told.pk}/report/").content.decode()
    assert "<strong>Back</strong>" in text and "<strong>Replaced</strong>" not in text


def test_its_hash_verifies_the_record_and_finds_a_change(told, log_in, capsys):
    chain.seal()
    text = log_in("viewer").get(f"/cases/{told.pk}/report/").content.decode()
    head = re.search(r'<p class="mono hash">([0-9a-f]{64})</p>', text)[1]
    assert head == chain.end().hash
    make.audit("later.row", "after the report", by=make.actor(make.person("viewer")))
    call_command("verify_audit", head=head)
    assert "every row is as it was sealed" in capsys.readouterr().out


def test_a_row_that_no_seal_holds_yet_is_said(told, log_in):
    chain.seal()
    make.audit("case.note", "new", by=make.actor(make.person("viewer")), case_id=told.pk, instance=told.instance)
    assert "1 row is so new that no seal holds it yet" in log_in("viewer").get(f"/cases/{told.pk}/report/").content.decode()  # fmt: skip


def test_it_is_json_too_and_linked_from_case_and_repair(told, log_in):
    client = log_in("viewer")
    found = client.get(f"/cases/{told.pk}/report/?format=json").json()
    assert found["decisions"][0]["reason"] == "as last time"
    assert found["repairs"][0]["steps"][1]["calls"][0]["operation"] == "UpdateContainerInstancesState"
    assert found["times"]["verified"] and found["times"]["human_s"] >= 0
    assert [row["verb"] for row in found["audit"]] == ["case.opened", "case.decided", "case.closed"]
    link = f'href="/cases/{told.pk}/report/"'
    assert link in client.get(f"/cases/{told.pk}/").content.decode()
    assert link in client.get(f"/repairs/{found['repairs'][0]['id']}/").content.decode()


def test_it_is_for_who_sees_the_case(told, log_in, home):
    assert log_in("viewer", pool="train").get(f"/cases/{told.pk}/report/").status_code == 200
    assert log_in("viewer", pool="infer").get(f"/cases/{told.pk}/report/").status_code == 404
    assert log_in("").get(f"/cases/{told.pk}/report/").status_code == 403


def test_a_sentence_names_no_machine_that_the_reader_may_not_see(told, log_in):
    theirs = make.instance(make.pool("infer")).instance_id
    said = f"as on {theirs}"
    told.decisions.update(reason=said)
    told.decisions.get().repair.steps.update(note=said)
    make.audit("case.note", said, by=make.actor(make.person("viewer")), case_id=told.pk, instance=told.instance)
    row = told.evidence.get()
    told.evidence.update(assessment={**row.assessment, "why": said})
    for address in (f"/cases/{told.pk}/report/", f"/cases/{told.pk}/report/?format=json"):
        assert log_in("viewer").get(address).content.decode().count(theirs) >= 3
        text = log_in("viewer", pool="train").get(address).content.decode()
        assert theirs not in text and "an instance outside your scope" in text


def test_a_group_case_and_an_open_one_have_a_report(home, log_in):
    group = make.case(None, verdict="CORRELATED", pool=home, account=home.account, region=home.region, victims=["i-1"])
    mine = make.case(make.instance(home))
    client = log_in("viewer")
    for case in (group, mine):
        assert b"It is open" in client.get(f"/cases/{case.pk}/report/").content
        assert client.get(f"/cases/{case.pk}/report/?format=json").status_code == 200


def test_that_of_a_group_names_its_members_and_counts_those_of_other_pools(home, log_in):
    group = make.case(None, verdict="CORRELATED", pool=home, victims=[(named := make.instance(home)).instance_id])
    mine, theirs = make.instance(home), make.instance(make.pool("infer"))
    for one in (mine, theirs):
        make.case(one, state="HELD", parent=group)
    shown = [mine.instance_id, theirs.instance_id, named.instance_id]
    for pool, left in (("", shown), (home.name, [mine.instance_id, named.instance_id])):
        client = log_in("viewer", pool=pool)
        said = client.get(f"/cases/{group.pk}/report/?format=json").json()
        assert (said["instances"], said["others"]) == (left, 3 - len(left))
        page = client.get(f"/cases/{group.pk}/report/").content.decode()
        assert f'id="members">{" ".join(left)}<' in page and ("1 outside your scope" in page) == bool(pool)


def test_its_queries_do_not_grow_with_the_story(told, log_in):
    client = log_in("viewer")

    def count() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert client.get(f"/cases/{told.pk}/report/").status_code == 200
        return len([q for q in seen if "clock_timestamp" not in q["sql"]])

    count()
    few = count()
    by = make.actor(make.person("viewer"))
    for n in range(12):
        make.audit("case.note", f"{n}", by=by, case_id=told.pk, instance=told.instance)
        make.decision(told, by.user, "snooze")
    assert count() == few <= 40
