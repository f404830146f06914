from __future__ import annotations

import csv
import io
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.cases.models import Case
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


def test_a_state_before_the_end_shows_those_under_way_alone(home, log_in):
    for state in ("RUNNING", "ASKING", "SUCCEEDED"):
        make.repair(make.instance(home), state=state)
    client = log_in("viewer")
    for state, shown in (("", 3), ("ASKING", 1), ("SUCCEEDED", 3), ("nonsense", 3)):
        text = client.get(f"/repairs/?state={state}").content.decode()
        assert len(re.findall(r"data-row=", text)) == shown, state
    rows = client.get("/repairs/?state=RUNNING&format=json").json()["items"]
    assert [row["state"] for row in rows] == ["RUNNING"]
