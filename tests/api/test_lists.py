import csv
import io

import pytest

from tests import factories

pytestmark = pytest.mark.django_db
CONTRACT = {"id", "instances", "codes", "verdict", "action", "state", "resolution", "plan_version", "evidence_hash"}


def test_cases_have_the_shape_that_others_rely_on(calling):
    row = factories.case()
    body = calling("viewer").get("/cases").json()
    [item] = body["items"]
    assert set(item) >= CONTRACT and body["next"] is None
    assert item["instances"] == [row.instance.instance_id] and item["codes"] == ["XID_119"]
    assert (item["verdict"], item["action"], item["state"], item["resolution"]) == (
        "AMBIGUOUS",
        "REBOOT",
        "WAITING",
        "",
    )
    assert (item["plan_version"], item["evidence_hash"]) == (1, "ab" * 32)


def test_a_group_case_names_its_members_and_is_found_by_each(calling):
    group = factories.case(verdict="CORRELATED", action="HOLD", code="XID_79")
    members = [factories.case(factories.instance(), state="HELD", parent=group) for _ in range(3)]
    viewer = calling("viewer")
    ids = [m.instance.instance_id for m in members]
    assert viewer.get(f"/cases/{group.pk}").json()["instances"] == ids
    found = viewer.get("/cases", instance=ids[1]).json()["items"]
    assert [item["id"] for item in found] == [members[1].pk, group.pk]


def test_a_storm_that_holds_nothing_is_found_by_each_of_its_instances(calling):
    ids = [factories.instance().instance_id for _ in range(3)]
    storm = factories.case(verdict="CORRELATED", action="HOLD", code="XID_45", victims=ids[:2], instance=None)
    viewer = calling("viewer")
    [item] = viewer.get("/cases", instance=ids[1]).json()["items"]
    assert (item["id"], item["instances"]) == (storm.pk, ids[:2])
    assert viewer.get("/cases", instance=ids[2]).json()["items"] == []
    assert viewer.get("/cases", instance=ids[1][:-3]).json()["items"] == []


def test_cases_are_filtered_by_instance_and_state(calling):
    one, two = factories.case(), factories.case(state="CLOSED", resolution="DISMISSED")
    viewer = calling("viewer")
    assert [i["id"] for i in viewer.get("/cases", instance=one.instance.instance_id).json()["items"]] == [one.pk]
    [closed] = viewer.get("/cases", state="CLOSED").json()["items"]
    assert (closed["id"], closed["resolution"]) == (two.pk, "DISMISSED") and closed["closed_at"].endswith("Z")
    assert viewer.get("/cases", instance="i-0nothing").json()["items"] == []


def test_repairs_show_the_case_that_they_belong_to(calling):
    row = factories.case()
    made = factories.repair(row.instance, state="SUCCEEDED", outcome="replaced")
    factories.decision(row, repair=made)
    factories.steps(made, "drain", "launch")
    by_hand = factories.repair(action="DRAIN")
    viewer = calling("viewer")
    hand, item = viewer.get("/repairs").json()["items"]
    assert set(item) >= CONTRACT and set(hand) >= CONTRACT
    assert (item["case"], item["codes"], item["state"], item["resolution"]) == (
        row.pk,
        ["XID_119"],
        "SUCCEEDED",
        "replaced",
    )
    assert (hand["id"], hand["case"], hand["codes"], hand["plan_version"]) == (by_hand.pk, None, [], None)
    assert [i["id"] for i in viewer.get("/repairs", case=row.pk).json()["items"]] == [made.pk]
    assert [s["name"] for s in viewer.get(f"/repairs/{made.pk}").json()["steps"]] == ["drain", "launch"]
    assert viewer.get(f"/cases/{row.pk}").json()["repairs"] == [made.pk]


def test_instances_show_health_and_what_is_under_way(calling):
    on = factories.instance(verdict="HARDWARE", verdict_code="XID_79")
    row, made = factories.case(on), factories.repair(on)
    factories.instance(gone_at=factories.ago(60))
    viewer = calling("viewer")
    [item] = viewer.get("/instances").json()["items"]
    assert (item["instance_id"], item["verdict"], item["code"]) == (on.instance_id, "HARDWARE", "XID_79")
    assert (item["case"], item["repair"], item["pool"], item["owner"]) == (row.pk, made.pk, "train", "GROUP")
    assert len(viewer.get("/instances", gone="true").json()["items"]) == 2


def test_pages_follow_each_other_without_gaps_or_repeats(calling):
    ids = [factories.case().pk for _ in range(5)]
    viewer, seen, after = calling("viewer"), [], None
    for _ in range(4):
        body = viewer.get("/cases", limit=2, **({"after": after} if after else {})).json()
        seen += [item["id"] for item in body["items"]]
        factories.case()  # a new one in between moves nothing
        after = body["next"]
        if after is None:
            break
    assert seen == ids[::-1]


def test_a_list_takes_the_same_number_of_queries_however_long_it_is(calling, django_assert_max_num_queries):
    viewer = calling("viewer")
    for _ in range(8):
        row = factories.case()
        factories.decision(row, repair=factories.repair(row.instance))
    for path in ("/cases", "/repairs", "/instances"):
        with django_assert_max_num_queries(9):
            assert len(viewer.get(path).json()["items"]) == 8


def test_csv_has_the_same_rows_and_no_formula_runs(calling):
    row = factories.case(title='=HYPERLINK("http://evil")', why="@SUM(1)")
    factories.case()
    answer = calling("viewer").get("/cases", format="csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8" and "cases.csv" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [int(r["id"]) for r in rows] == [row.pk + 1, row.pk]
    assert rows[1]["title"] == '\'=HYPERLINK("http://evil")' and rows[1]["why"] == "'@SUM(1)"
    assert rows[1]["instances"] == row.instance.instance_id


def test_an_empty_csv_still_has_its_header(calling):
    assert calling("viewer").get("/repairs", format="csv").content.decode().startswith("id,instances,codes,verdict,")


def test_what_is_out_of_scope_is_not_there(calling):
    seen, hidden = (factories.case(factories.instance(factories.pool(name))) for name in ("train", "infer"))
    made = factories.repair(hidden.instance)
    viewer = calling("viewer", pool="train")
    assert [i["id"] for i in viewer.get("/cases").json()["items"]] == [seen.pk]
    assert viewer.get(f"/cases/{hidden.pk}").status_code == 404
    assert viewer.get(f"/repairs/{made.pk}").status_code == 404
    assert viewer.get("/repairs").json()["items"] == []
    assert [i["pool"] for i in viewer.get("/instances").json()["items"]] == ["train"]


@pytest.mark.parametrize("path", ["/cases", "/repairs", "/instances", "/cases/1", "/repairs/1"])
def test_without_a_right_token_nothing_is_told(client, calling, path):
    for headers in ({}, {"HTTP_AUTHORIZATION": "Bearer wrong"}, {"HTTP_AUTHORIZATION": "Basic eDp5"}):
        answer = client.get(f"/api/v1{path}", **headers)
        assert answer.status_code == 401 and answer["WWW-Authenticate"] == "Bearer"
        assert set(answer.json()) == {"error", "detail"}
    refused = calling("").get(path)
    assert refused.status_code == 403 and "no role" in refused.json()["detail"]


def test_a_nodes_token_opens_no_list(client):
    from healthboard.people import tokens
    from healthboard.people.actors import system

    token = tokens.issue_node(factories.instance(), actor=system("test"))
    assert client.get("/api/v1/cases", HTTP_AUTHORIZATION=f"Bearer {token}").status_code == 401


def test_a_session_reads_too(client):
    client.force_login(factories.person("viewer"))
    assert client.get("/api/v1/cases").json()["items"] == []


@pytest.mark.parametrize(
    "path, query",
    [
        ("/cases", {"state": "SLEEPING"}),
        ("/cases", {"limit": 0}),
        ("/cases", {"after": "x"}),
        ("/cases", {"after": 2**70}),
        ("/cases", {"format": "xml"}),
        ("/cases", {"instance": "a\x00b"}),
        ("/repairs", {"state": "WAITING"}),
        ("/instances", {"gone": "perhaps"}),
        ("/instances", {"pool": "a\x00b"}),
        (f"/cases/{2**70}", {}),
    ],
)
def test_a_question_that_makes_no_sense_is_422_with_the_reason(calling, path, query):
    answer = calling("viewer").get(path, **query)
    assert answer.status_code == 422 and answer.json()["error"] == "invalid" and answer.json()["detail"]


def test_the_description_names_every_operation_and_its_refusals(client):
    body = client.get("/api/v1/openapi.json").json()
    operations = {(path, method): op for path, item in body["paths"].items() for method, op in item.items()}
    for path in ("/api/v1/cases", "/api/v1/repairs", "/api/v1/instances", "/api/v1/cases/{case_id}"):
        assert {"200", "401", "403", "422", "429"} <= set(operations[path, "get"]["responses"])
    decide = operations["/api/v1/cases/{case_id}/decisions", "post"]
    assert {"200", "400", "401", "403", "404", "409", "413", "415", "422", "429"} == set(decide["responses"])
    states = {p["name"]: p["schema"] for p in operations["/api/v1/repairs", "get"]["parameters"]}["state"]
    assert "ASKING" in states["enum"]


def test_jobs_are_the_rows_of_the_page_and_end_at_ones_pools(calling):
    nodes = [factories.instance() for _ in range(2)]
    for node in nodes:
        factories.task(node, job="run-7", gpus=8)
    case = factories.case(nodes[0], code="XID_79", verdict="HARDWARE", victims=[nodes[1].instance_id])
    [item] = calling("viewer").get("/jobs").json()["items"]
    assert (item["job"], item["state"], item["account"], item["idle_gpus"]) == ("run-7", "still", "111122223333", 16)
    assert (item["case"], item["first_fault"], item["victims"]) == (
        case.pk,
        nodes[0].instance_id,
        [nodes[1].instance_id],
    )
    assert calling("viewer").get("/jobs", state="running").json()["items"] == []
    assert calling("viewer").get("/jobs", state="nonsense").status_code == 422
    assert ",run-7," in "," + calling("viewer").get("/jobs", format="csv").content.decode().splitlines()[1]
    assert calling("viewer", pool="infer").get("/jobs").json()["items"] == []
