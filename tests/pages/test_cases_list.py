"""The list of cases: open and closed ones, by the filters of an address, and what a precedent's counts link to."""

from __future__ import annotations

import csv
import io
import re

import pytest

from healthboard.cases.models import Case
from tests import factories as make


@pytest.fixture
def cases(home):
    """0 open and 1 closed of the same signature, 2 dismissed of the same code alone, 3 of another code, 4 elsewhere."""
    infer = make.pool("infer")
    two = ["XID_119", "XID_45"]
    rows = [
        make.case(make.instance(home), codes=two),
        _closed(home, "REPAIRED", "approve", codes=two),
        _closed(home, "DISMISSED", "dismiss", codes=["XID_119"], reason="a driver bug"),
        _closed(home, "CLEARED", "override", code="XID_48", codes=["XID_48"]),
        _closed(infer, "REPAIRED", "approve", codes=two),
    ]
    make.case(make.instance(infer, instance_type="g6e.12xlarge"), state="OBSERVED", codes=["XID_109"], code="XID_109")
    return [*rows, Case.objects.latest("pk")]


def _closed(home, resolution, kind, *, reason="", **fields):
    on = make.instance(home, gone_at=make.ago(90))
    case = make.case(
        on, state="CLOSED", resolution=resolution, closed_at=make.ago(80), opened_at=make.ago(900), **fields
    )
    repair = None if kind == "dismiss" else make.repair(on, state="SUCCEEDED", action="REBOOT")
    action = "" if kind == "dismiss" else "REBOOT"
    make.decision(case, None, kind, action=action, repair=repair, reason=reason, outcome="DONE")
    return case


def _shown(client, query: str) -> set[int]:
    answer = client.get(f"/cases/?{query}")
    assert answer.status_code == 200
    return {int(pk) for pk in re.findall(r'data-row="(\d+)"', answer.content.decode())}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {0, 5}),
        ("state=closed", {1, 2, 3, 4}),
        ("state=all", {0, 1, 2, 3, 4, 5}),
        ("state=OBSERVED", {5}),
        ("state=all&code=XID_119", {0, 1, 2, 4}),
        ("state=all&codes=XID_119,XID_45", {0, 1, 4}),
        ("state=all&q=119", {0, 1, 2, 4}),
        ("state=all&q=xid_119+45", {0, 1, 4}),
        ("state=all&q=infer+119", {4}),
        ("state=all&q=XID_1", set()),
        ("state=all&type=g6e.12xlarge", {5}),
        ("state=all&pool=infer", {4, 5}),
        ("state=all&end=helped", {1, 4}),
        ("state=all&end=DISMISSED", {2}),
        ("state=all&answer=override", {3}),
        ("state=all&done=REBOOT", {1, 3, 4}),
        ("state=all&since=2999-01-01", set()),
        ("state=all&since=nonsense&until=nonsense&of=nonsense&but=nonsense", {0, 1, 2, 3, 4, 5}),
        ("state=all&until=2001-01-01", set()),
        ("state=all&since=2001-01-01&until=2998-12-31", {0, 1, 2, 3, 4, 5}),
        ("state=all&verdict=NONSENSE", set()),
        ("state=all&q=%00%27%22%3Bdrop+table", set()),
    ],
)  # fmt: skip
def test_filters_choose_and_csv_and_json_give_the_same(cases, log_in, query, found):
    client = log_in("viewer")
    wanted = {cases[n].pk for n in found}
    assert _shown(client, query) == wanted
    text = client.get(f"/cases/?{query}&format=csv").content.decode()
    assert {int(row["id"]) for row in csv.DictReader(io.StringIO(text))} == wanted
    assert {row["id"] for row in client.get(f"/cases/?{query}&format=json").json()["items"]} == wanted


def test_a_case_is_found_by_its_machine_its_gpu_and_its_number(cases, log_in):
    client = log_in("viewer")
    Case.objects.filter(pk=cases[2].pk).update(gpu="GPU-0badf00d-1111")
    assert _shown(client, f"state=all&q={cases[1].instance.instance_id[2:9]}") == {cases[1].pk}
    assert _shown(client, f"state=all&q=%23{cases[3].pk}") == {cases[3].pk}
    assert _shown(client, "state=all&q=gpu-0BADF00D") == {cases[2].pk}


def test_only_what_a_person_may_see_is_listed_counted_and_offered(cases, log_in):
    client = log_in("operator", pool="infer")
    assert _shown(client, "state=all") == {cases[4].pk, cases[5].pk}
    context = client.get("/cases/?state=all").context
    assert [count for _, _, count in context["tabs"]] == [1, 1, 2]
    assert context["pools"] == ["infer"] and context["codes"] == ["XID_109", "XID_119"]
    assert len(client.get("/cases/?state=all&format=json").json()["items"]) == 2


def test_the_answer_that_stands_is_told_and_none_that_was_called_off(cases, log_in):
    called_off = make.repair(cases[0].instance, state="CANCELLED", action="REBOOT")
    make.decision(cases[0], None, "auto", repair=called_off, outcome="REFUSED")
    rows = {row["id"]: row for row in log_in("viewer").get("/cases/?state=all&format=json").json()["items"]}
    assert [rows[case.pk]["decided"] for case in cases[:4]] == ["", "approve", "dismiss", "override"]
    assert rows[cases[2].pk]["reason"] == "a driver bug" and rows[cases[1].pk]["decided_action"] == "REBOOT"


def test_pages_by_key_show_each_case_once(cases, log_in, monkeypatch):
    monkeypatch.setattr("healthboard.approve.cases.PAGE_SIZE", 2)
    client, seen, address = log_in("viewer"), [], "/cases/?state=all"
    while address:
        context = client.get(address).context
        seen += [row.pk for row in context["rows"]]
        address = f"/cases/?state=all&after={context['next']}" if context["next"] else ""
    assert seen == sorted((case.pk for case in cases), reverse=True)


def test_each_count_of_a_precedent_is_the_number_of_rows_behind_its_link(cases, log_in):
    client = log_in("viewer")
    text = client.get(f"/cases/{cases[0].pk}/").content.decode()
    links = re.findall(r'<a href="/cases/\?([^"]+)">(\d+)', text)
    assert {int(count) for _, count in links} == {1, 2, 3}
    for query, count in links:
        assert len(_shown(client, query.replace("&amp;", "&"))) == int(count), query


def test_the_precedent_of_a_closed_case_leaves_itself_out_of_what_it_links_to(cases, log_in):
    client = log_in("viewer")
    text = client.get(f"/cases/{cases[1].pk}/").content.decode()
    query, count = re.search(r'<a href="/cases/\?([^"]+)">(\d+) earlier', text).groups()
    assert _shown(client, query.replace("&amp;", "&")) == {cases[2].pk, cases[4].pk}
    assert count == "2"


def test_the_search_leads_to_closed_cases_of_a_code(cases, log_in):
    found = log_in("viewer").get("/find/?q=xid+48")
    assert found.headers["Location"] == "/cases/?state=closed&code=XID_48"


def test_an_unchanged_list_is_not_sent_again(cases, log_in):
    client = log_in("viewer")
    shown = client.get("/cases/").context["shown"]
    asked = {"HX-Request": "true", "X-Shown": shown}
    assert client.get("/cases/", headers=asked).status_code == 204
    make.case(make.instance(cases[0].pool))
    assert client.get("/cases/", headers=asked).status_code == 200
