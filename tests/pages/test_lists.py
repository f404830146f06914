from __future__ import annotations

import csv
import io
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.cases.models import Case
from healthboard.fleet.models import Instance, JobStop
from healthboard.repairs.models import Breaker
from tests import factories as make

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def fleet(home):
    infer = make.pool("infer")
    rows = [make.instance(home, verdict=v) for v in ("HARDWARE", "AMBIGUOUS", "HEALTHY", "HEALTHY", "UNKNOWN")]
    rows += [make.instance(infer, instance_type="g6e.12xlarge", zone="us-east-1b") for _ in range(3)]
    make.case(rows[0], state="DECIDED")
    make.repair(rows[0], state="RUNNING")
    make.case(rows[1])
    make.gpus(rows[2], 2)
    make.instance(home, gone_at=make.ago(60))
    return rows


def _ids(client, address: str) -> list[str]:
    return [row.instance_id for row in client.get(address).context["rows"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {0, 1, 2, 3, 4, 5, 6, 7}),
        ("health=HARDWARE", {0}),
        ("stage=running", {0}),
        ("stage=waiting", {1}),
        ("stage=none", {2, 3, 4, 5, 6, 7}),
        ("pool=infer", {5, 6, 7}),
        ("type=g6e.12xlarge&zone=us-east-1b", {5, 6, 7}),
        ("health=NONSENSE", set()),
        ("account=999999999999", set()),
        ("q=infer", {5, 6, 7}),
        ("q=%00%27%22%3Bdrop+table", set()),
    ],
)
def test_filters_choose_and_csv_and_json_give_the_same(fleet, log_in, query, found):
    client = log_in("viewer")
    wanted = {fleet[n].instance_id for n in found}
    assert set(_ids(client, f"/fleet/?{query}")) == wanted
    text = client.get(f"/fleet/?{query}&format=csv").content.decode()
    assert {row["instance_id"] for row in csv.DictReader(io.StringIO(text))} == wanted
    assert {row["instance_id"] for row in client.get(f"/fleet/?{query}&format=json").json()["items"]} == wanted


def test_search_finds_by_gpu_by_serial_and_by_task(fleet, log_in):
    client = log_in("viewer")
    gpu = fleet[2].gpus.first()
    task = make.task(fleet[3])
    assert _ids(client, f"/fleet/?q={gpu.uuid}") == [fleet[2].instance_id]
    assert _ids(client, f"/fleet/?q={gpu.serial}") == [fleet[2].instance_id]
    assert _ids(client, f"/fleet/?q={task.arn.rsplit('/')[-1]}") == [fleet[3].instance_id]
    assert _ids(client, f"/fleet/?q={fleet[4].private_ip}") == [fleet[4].instance_id]


def test_the_worst_stands_first_and_order_can_be_turned(fleet, log_in):
    client = log_in("viewer")
    assert _ids(client, "/fleet/")[0] == fleet[0].instance_id
    assert _ids(client, "/fleet/?sort=instance") == sorted(_ids(client, "/fleet/"))
    assert _ids(client, "/fleet/?sort=-instance") == sorted(_ids(client, "/fleet/"), reverse=True)


@pytest.mark.parametrize("sort", ["health", "-health", "instance", "pool", "-since", "since", "tasks", "zone", "type"])
def test_paging_by_key_shows_each_row_once(fleet, log_in, sort, monkeypatch):
    monkeypatch.setattr("healthboard.pages.PAGE_SIZE", 3)
    client, seen, after = log_in("viewer"), [], ""
    for _ in range(10):
        answer = client.get(f"/fleet/?sort={sort}&after={after}")
        seen += [row.instance_id for row in answer.context["rows"]]
        after = answer.context["next"]
        if not after:
            break
    assert sorted(seen) == sorted(row.instance_id for row in fleet)


def test_a_sick_machine_under_repair_shows_both(fleet, log_in):
    text = log_in("viewer").get("/fleet/?health=HARDWARE").content.decode()
    assert ">Hardware<" in text
    assert ">Repairing<" in text


def test_unknown_is_never_shown_green(fleet, log_in):
    text = log_in("viewer").get("/fleet/?health=UNKNOWN").content.decode()
    row = re.search(r"<tbody.*?</tbody>", text, re.S)[0]
    assert 'class="mark blind"' in row
    assert 'class="mark good' not in row


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


@pytest.mark.parametrize(
    "address", ["/fleet/", "/", "/repairs/", "/audit/", "/system/", "/?tab=running", "/handover/", "/wall/"]
)
def test_queries_do_not_grow_with_the_rows(home, log_in, address):
    client = log_in("viewer")

    def more(times: int) -> None:
        for n in range(times):
            on = make.instance(home)
            make.task(on)
            case = make.case(on, state="DECIDED" if n % 2 else "WAITING")
            repair = make.repair(on)
            make.steps(repair, "recheck", "drain")
            make.decision(case, repair=repair)
            make.audit("case.opened", "x", by=make.actor(make.person("viewer")), case_id=case.pk, instance=on)

    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert client.get(address).status_code == 200
        return len([q for q in seen if "clock_timestamp" not in q["sql"]])  # asked now and then, whatever the page

    more(10)
    count()
    few = count()
    more(50)
    assert count() == few
    assert few <= 40


@pytest.mark.parametrize("address", ["/", "/fleet/", "/repairs/", "/system/"])
def test_an_unchanged_page_is_polled_for_nothing(fleet, log_in, address):
    client = log_in("viewer")
    shown = re.search(r'"X-Shown": "(\w+)"', client.get(address).content.decode())[1]
    headers = {"HX-Request": "true", "X-Shown": shown}
    assert client.get(address, headers=headers).status_code == 204
    make.case(make.instance(fleet[0].pool))
    make.repair(make.instance(fleet[0].pool))
    changed = client.get(address, headers=headers)
    assert changed.status_code == 200
    assert b"<html" not in changed.content
    assert b'id="live"' in changed.content
    assert b'hx-swap-oob="true"' in changed.content


def test_a_thrown_switch_reaches_a_page_that_is_open(fleet, log_in):
    client = log_in("viewer")
    shown = re.search(r'"X-Shown": "(\w+)"', client.get("/fleet/").content.decode())[1]
    make.switch(stopped=True, reason="fire")
    answer = client.get("/fleet/", headers={"HX-Request": "true", "X-Shown": shown})
    assert b"The stop switch is thrown" in answer.content


def test_a_blind_source_raises_a_banner(home, log_in):
    make.source("node", scope="gpu", age=500, error=HOSTILE)
    text = log_in("viewer").get("/").content.decode()
    assert "node gpu is blind" in text
    assert HOSTILE not in text


def test_a_lost_queue_shows_with_its_reason_and_what_was_not_used(home, log_in):
    make.source("events", age=500, error="sqs receive_message: AccessDenied", dropped={"too old": 3, HOSTILE: 1})
    text = log_in("viewer").get("/system/").content.decode()
    assert "Blind" in text and "sqs receive_message: AccessDenied" in text
    assert "messages not used: 3 too old, 1 " in text and HOSTILE not in text


def test_empty_lists_explain_themselves(db, log_in):
    client = log_in("operator")
    assert b"No instance has been seen yet" in client.get("/").content
    assert b"simulated fleet" in client.get("/fleet/").content
    assert b"No repair is under way" in client.get("/repairs/").content
    assert b"rows are never changed" in client.get("/audit/").content
    assert b"is the cure" not in client.get("/system/").content


def test_audit_filters_by_who_what_and_where(home, log_in):
    on = make.instance(home)
    ann, bob = make.actor(make.person("operator", "ann")), make.actor(make.person("admin", "bob"))
    make.audit("case.dismiss", "dismissed by ann: a driver bug", by=ann, instance=on, case_id=7)
    make.audit("switch.stopped", "stop switch thrown", by=bob)
    client = log_in("viewer")

    def rows(query: str) -> list[str]:
        return [row.verb for row in client.get(f"/audit/?{query}").context["rows"]]

    assert rows("who=ann") == ["case.dismiss"]
    assert rows("verb=switch") == ["switch.stopped"]
    assert rows(f"instance={on.instance_id}") == ["case.dismiss"]
    assert rows("case=7") == ["case.dismiss"]
    assert rows("since=2999-01-01") == []
    assert rows("since=nonsense&case=x") == ["switch.stopped", "case.dismiss"]
    found = csv.DictReader(io.StringIO(client.get("/audit/?who=ann&format=csv").getvalue().decode()))
    assert [row["summary"] for row in found] == ["dismissed by ann: a driver bug"]


def test_the_inbox_gives_its_tab_as_csv_and_json(home, log_in):
    waiting = make.case(make.instance(home))
    make.case(make.instance(home), state="OBSERVED")
    client = log_in("viewer")
    assert [row["id"] for row in client.get("/?tab=waiting&format=json").json()["items"]] == [waiting.pk]
    rows = csv.DictReader(io.StringIO(client.get("/?tab=waiting&format=csv").content.decode()))
    assert [row["id"] for row in rows] == [str(waiting.pk)]


def test_the_system_page_shows_the_places_of_the_person(home, log_in):
    Breaker.objects.create(
        account=home.account, region=home.region, kind="CORRELATED", scope_kind="pool", scope="train",
        why="a bad batch in this account", opened_at=clock.now(),
    )  # fmt: skip
    elsewhere = make.account("444455556666")
    for scope, shown in ({"account": home.account}, True), ({"account": elsewhere}, False), ({}, True):
        text = log_in("viewer", **scope).get("/system/").content.decode()
        assert ("a bad batch in this account" in text) is shown
        assert (">train<" in text) is shown


def test_a_cell_that_would_run_in_a_spreadsheet_is_defused(home, log_in):
    make.audit("case.note", "=cmd|'/C calc'!A0", by=make.actor(make.person("viewer")))
    assert ",'=cmd|" in log_in("viewer").get("/audit/?format=csv").getvalue().decode()


def test_hostile_text_is_escaped_everywhere(home, log_in):
    on = make.instance(home, verdict_why=HOSTILE, owner_evidence=[HOSTILE], zone=HOSTILE[:30], tags={"Name": HOSTILE})
    make.event(on, text=HOSTILE, gpu=HOSTILE)
    make.task(on, make.workload(HOSTILE))
    make.reading(on, "NVML", HOSTILE, channel="node")
    make.request(on, output=HOSTILE, checks=[{"name": HOSTILE, "ok": False, "detail": HOSTILE}])
    plan = make.plan(sentence=HOSTILE, loses=[HOSTILE], tasks=[{"workload": HOSTILE, "count": 1}], warnings=[HOSTILE])
    case = make.case(on, title=HOSTILE, why=HOSTILE, mode_why=HOSTILE, why_waiting=HOSTILE, plan=plan)
    repair = make.repair(on, why_waiting=HOSTILE, plan=plan)
    make.audit(
        "case.note", HOSTILE, by=make.actor(make.person("viewer", HOSTILE)), case_id=case.pk, payload={"x": HOSTILE}
    )
    client = log_in("operator")
    for address in ("/", "/fleet/", "/repairs/", "/audit/", f"/cases/{case.pk}/", f"/instances/{on.pk}/",
                    f"/repairs/{repair.pk}/", f"/cases/{case.pk}/answer/approve/"):  # fmt: skip
        text = client.get(address).content.decode()
        assert "<script>alert" not in text, address
        assert Case.objects.filter(title=HOSTILE).exists()


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
