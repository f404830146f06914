"""The inbox: what stands first and why, its counts and their links, its rows as files."""

from __future__ import annotations

import csv
import io
import re

from healthboard.cases.models import Case
from healthboard.fleet.models import Instance, JobStop
from tests import factories as make


def test_each_count_of_the_inbox_equals_the_rows_of_its_link(home, log_in):
    for state, times in (("WAITING", 3), ("DECIDED", 2), ("HELD", 1), ("SNOOZED", 1), ("OBSERVED", 2)):
        for _ in range(times):
            make.case(make.instance(home), state=state, snoozed_until=make.ago(-60))
    make.case(make.instance(home), state="CLOSED", resolution="REPAIRED")
    make.case(make.instance(home), state="CLOSED", resolution="REPAIRED", closed_at=make.ago(2 * 86400))
    make.case(make.instance(home), tries=1)
    client = log_in("operator")
    for name, _, count in client.get("/").context["tabs"]:
        assert len(client.get(f"/?tab={name}").context["rows"]) == count, name
    assert dict((n, c) for n, _, c in client.get("/").context["tabs"])["repaired"] == 1


def test_what_is_mine_and_urgent_stands_first(home, log_in):
    calm = make.case(make.instance(home, tasks_running=1), plan={"tasks_total": 1})
    busy = make.case(make.instance(home), plan={"tasks_total": 9})
    soon = make.case(make.instance(home), plan={"tasks_total": 0}, expires_at=make.ago(-120))
    theirs = make.case(make.instance(make.pool("infer")), expires_at=make.ago(-60))
    person = log_in("operator", "ona", pool="train")
    make.Grant.objects.create(user_id=person.session["_auth_user_id"], role="viewer")
    rows = person.get("/").context["rows"]
    assert [row.case.pk for row in rows] == [soon.pk, busy.pk, calm.pk, theirs.pk]
    assert person.get("/").context["for_me"] == 3


def test_jobs_that_stand_still_come_first_then_what_gets_worse_and_the_row_says_so(home, log_in):
    job = make.workload("pretrain", "FAMILY")
    root, mate, needed = (make.instance(home) for _ in range(3))
    for on in (root, mate):
        make.task(on, job, job="pretrain/7", started_at=make.ago(9000))
    for on in (needed, make.instance(home), make.instance(home)):
        make.task(on, job, job="pretrain/8")
    big = make.case(make.instance(home), plan={"tasks_total": 40}, verdict="HARDWARE")
    worse = make.case(make.instance(home), code="XID_48", opened_at=make.ago(900))
    make.event(worse.instance, "XID_48", at=make.ago(200))
    stake = make.case(needed)
    still = make.case(root, victims=[mate.instance_id, "i-0123456789abcdef0"])
    rows = log_in("operator").get("/").context["rows"]
    assert [row.case.pk for row in rows] == [still.pk, stake.pk, worse.pk, big.pk]
    assert [[reason.text for reason in row.reasons] for row in rows] == [
        ["1 job stands still: 2 nodes, 16 GPUs idle"], ["1 job on 3 nodes, 24 GPUs needs it"],
        ["getting worse: XID_48 again 3 min ago"], [],
    ]  # fmt: skip
    # a job whose tasks ECS lists no more is remembered by its stop; one that came long before the fault is not its doing
    gone = make.case(make.instance(home))
    for name, at in (("pretrain/9", 170), ("pretrain/10", 7000)):
        JobStop.objects.create(
            account=home.account,
            region=home.region,
            cluster=home.cluster,
            name=name,
            left=0,
            at=make.ago(at),
            nodes={
                gone.instance.instance_id: 8,
                make.instance(home).instance_id: 8,
                make.instance(home).instance_id: 8,
            },
        )
    first = log_in("operator").get("/").context["rows"][0]
    assert (first.case.pk, first.standing.jobs) == (gone.pk, ("pretrain/9",))
    assert first.reasons[0].text == "1 job stands still: 3 nodes, 24 GPUs idle"
    JobStop.objects.all().delete()
    make.task(mate, make.workload("other"), job="other/1", started_at=make.ago(1))  # it has new work by now
    rows = log_in("operator").get("/").context["rows"]
    assert rows[0].reasons[0].text == "1 job stands still: 1 node, 8 GPUs idle"


def test_a_job_is_told_by_its_cluster_and_counted_in_what_a_person_sees(home, log_in):
    infer, apart = make.pool("infer"), make.pool("apart", cluster=make.cluster("apart"))
    on = [make.instance(home), make.instance(home), make.instance(infer)]
    elsewhere = [make.instance(apart) for _ in range(3)]
    for one in (*on, *elsewhere):
        make.task(one, make.workload("pretrain", "FAMILY", cluster=one.cluster), job="main")
    case = make.case(on[0])

    def told(**scope) -> list[str]:
        client = log_in("operator", **scope)
        assert client.get(f"/cases/{case.pk}/").status_code == 200
        (row,) = client.get("/").context["rows"]
        return [reason.text for reason in row.reasons]

    assert told() == ["1 job on 3 nodes, 24 GPUs needs it"]
    assert told(pool="train") == ["1 job on 2 nodes, 16 GPUs needs it"]
    Case.objects.filter(pk=case.pk).update(victims=[one.instance_id for one in on[1:]])
    assert told() == ["1 job stands still: 3 nodes, 24 GPUs idle"]
    assert told(pool="train") == ["1 job stands still: 2 nodes, 16 GPUs idle"]


def test_what_policies_repaired_today_is_counted_apart(home, log_in):
    for kind in ("auto", "approve"):
        case = make.case(make.instance(home), state="CLOSED", resolution="REPAIRED")
        make.decision(case, make.person(), kind, repair=make.repair(case.instance, state="SUCCEEDED"))
    tabs = {name: count for name, _, count in log_in("viewer").get("/").context["tabs"]}
    assert (tabs["itself"], tabs["repaired"]) == (1, 2)


def test_the_inbox_gives_its_tab_as_csv_and_json(home, log_in):
    waiting = make.case(make.instance(home))
    make.case(make.instance(home), state="OBSERVED")
    client = log_in("viewer")
    assert [row["id"] for row in client.get("/?tab=waiting&format=json").json()["items"]] == [waiting.pk]
    rows = csv.DictReader(io.StringIO(client.get("/?tab=waiting&format=csv").content.decode()))
    assert [row["id"] for row in rows] == [str(waiting.pk)]


def test_a_fault_that_comes_again_and_a_job_that_stops_reach_the_open_inbox(home, log_in):
    on = make.case(make.instance(home)).instance
    client = log_in("operator")

    def shown() -> dict:
        now = re.search(r'"X-Shown": "(\w+)"', client.get("/").content.decode())[1]
        return {"HX-Request": "true", "X-Shown": now}

    was = shown()
    assert client.get("/", headers=was).status_code == 204
    Instance.objects.filter(pk=on.pk).update(evidence_at=make.ago(0))
    assert client.get("/", headers=was).status_code == 200
    was = shown()
    JobStop.objects.create(
        account=home.account, region=home.region, cluster=home.cluster, name="x", left=0, at=make.ago(1), nodes={}
    )
    assert client.get("/", headers=was).status_code == 200
