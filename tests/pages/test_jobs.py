"""Jobs: what stands still, why and since when; what belongs to no fault; and only what a person may see."""

from __future__ import annotations

import csv
import io
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.diagnosis import catalogue
from healthboard.fleet.models import JobStop
from tests import factories as make

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def nodes(home):
    return [make.instance(home) for _ in range(4)]


def _run(nodes, name: str = "run-7", **fields) -> None:
    for node in nodes:
        make.task(node, make.workload("llm-train", "FAMILY"), job=name, gpus=8, **fields)


def _stop(nodes, name: str = "run-7", *, ago: float = 170, left: int = 0) -> JobStop:
    on = nodes[0]
    return JobStop.objects.create(
        account=on.account, region=on.region, cluster=on.cluster, name=name, family="llm-train",
        nodes={node.instance_id: 8 for node in nodes}, left=left, at=make.ago(ago),
    )  # fmt: skip


def _rows(client, tab: str = "still"):
    return client.get(f"/jobs/?tab={tab}").context["rows"]


def test_a_job_whose_tasks_are_gone_stands_still_with_its_first_fault_and_victims(nodes, log_in):
    case = make.case(
        nodes[1], code="XID_79", verdict="HARDWARE", victims=[n.instance_id for n in nodes if n is not nodes[1]]
    )
    stop = _stop(nodes)
    client = log_in("viewer")
    (job,) = _rows(client)
    assert (job.name, job.case, job.since) == ("run-7", case, stop.at)
    assert (job.idle_nodes, job.idle_gpus, len(job.victims)) == (4, 32, 3)
    text = client.get("/jobs/").content.decode()
    assert "4 nodes with 32 GPUs stand still" in text
    assert catalogue.get("XID_79").title in text and f'href="/cases/{case.pk}/"' in text
    assert [count for _, _, count in client.get("/jobs/").context["tabs"]] == [1, 0, 0, 0]


def test_a_job_that_hangs_with_its_tasks_still_listed_stands_still(nodes, log_in):
    _run(nodes)
    case = make.case(nodes[0], code="XID_79", verdict="HARDWARE", victims=[nodes[1].instance_id])
    (job,) = _rows(log_in("viewer"))
    assert (job.state, job.since, job.idle_nodes) == ("still", case.evidence_at, 4)


def test_nodes_that_have_new_work_are_not_idle_and_without_any_idle_it_is_over(nodes, log_in):
    make.case(nodes[0], code="XID_79", verdict="HARDWARE")
    _stop(nodes)
    client = log_in("viewer")
    make.task(nodes[1], make.workload("exporter", "DAEMON"), started_at=make.ago(5), gpus=0)
    assert _rows(client)[0].idle_nodes == 4
    for node, left in ((nodes[1], 3), (nodes[2], 2), (nodes[3], 1)):
        make.task(node, job="run-8", started_at=make.ago(5))
        assert _rows(client)[0].idle_nodes == left
    make.task(nodes[0], started_at=make.ago(5))
    assert _rows(client) == []


def test_a_stop_without_a_fault_is_an_end_and_so_is_one_long_before_or_after_it(nodes, log_in):
    client = log_in("viewer")
    _stop(nodes[:2], "done", ago=7200)
    _stop(nodes[2:], "long-ago", ago=2 * 86400)
    assert [job.name for job in _rows(client, "ended")] == ["done"]
    make.case(nodes[0], evidence_at=make.ago(180))
    assert _rows(client) == []
    JobStop.objects.filter(name="done").update(at=make.ago(100))
    assert [job.name for job in _rows(client)] == ["done"]
    make.case(nodes[1], evidence_at=make.ago(5000))
    JobStop.objects.filter(name="done").update(at=make.ago(3000))
    assert [job.name for job in _rows(client, "ended")] == ["done"]


def test_a_job_on_a_machine_with_a_case_is_named_before_it_stops(nodes, log_in):
    _run(nodes[:2], "run-1")
    _run(nodes[2:], "run-2")
    case = make.case(nodes[3])
    client = log_in("viewer")
    assert [(job.name, job.case) for job in _rows(client, "risk")] == [("run-2", case)]
    assert [job.name for job in _rows(client, "running")] == ["run-1"]
    assert len(client.get("/fleet/?job=run-1").context["rows"]) == 2
    assert b"No job stands still" in client.get("/jobs/").content


def test_a_job_that_lost_some_of_its_nodes_stands_still_as_a_whole(nodes, log_in):
    _run(nodes[1:])
    _stop(nodes, left=3)
    make.case(nodes[0], code="XID_79", verdict="HARDWARE")
    (job,) = _rows(log_in("viewer"))
    assert (job.running, len(job.nodes), job.idle_nodes) == (3, 4, 4)


def test_a_job_of_several_families_is_one_job_and_one_that_never_began_is_told_all_the_same(nodes, log_in):
    for number, node in enumerate(nodes):
        make.task(node, make.workload(f"rank-{number // 2}", "FAMILY"), job="run-7", gpus=8, started_at=None)
    client = log_in("viewer")
    (job,) = _rows(client, "running")
    assert (job.name, job.running, job.gpus, job.family) == ("run-7", 4, 32, "rank-0")
    case = make.case(nodes[0], code="XID_79", verdict="HARDWARE", victims=[nodes[3].instance_id])
    (job,) = _rows(client)
    assert (job.running, job.since, job.idle_nodes) == (4, case.evidence_at, 4)


def test_victims_whose_job_is_not_known_are_told_all_the_same(nodes, log_in):
    make.case(nodes[0], code="XID_79", verdict="HARDWARE", victims=[nodes[1].instance_id])
    client = log_in("viewer")
    assert [(job.name, job.idle_nodes) for job in _rows(client)] == [("", 2)]
    text = client.get("/jobs/").content.decode()
    assert "a job that ECS lists no more" in text


def test_only_ones_own_pools_are_shown(nodes, log_in):
    other = [make.instance(make.pool("infer")) for _ in range(2)]
    case = make.case(other[0], code="XID_79", verdict="HARDWARE", victims=[other[1].instance_id])
    _stop(other, "theirs")
    _run(other, "theirs-too")
    _stop([nodes[0], other[0]], "across")
    client = log_in("viewer", pool="train")
    for tab in ("still", "risk", "running", "ended"):
        text = client.get(f"/jobs/?tab={tab}").content.decode()
        assert "theirs" not in text and other[0].instance_id not in text and f"/cases/{case.pk}/" not in text
    assert [(job.name, list(job.nodes)) for job in _rows(client, "ended")] == [("across", [nodes[0].instance_id])]


def test_csv_and_json_give_the_same_rows(nodes, log_in):
    case = make.case(nodes[0], code="XID_79", verdict="HARDWARE")
    _stop(nodes)
    _run([make.instance(nodes[0].pool)], "other")
    client = log_in("viewer")
    (row,) = client.get("/jobs/?format=json").json()["items"]
    assert (row["job"], row["idle_gpus"], row["case"]) == ("run-7", 32, case.pk)
    assert [
        r["job"] for r in csv.DictReader(io.StringIO(client.get("/jobs/?tab=running&format=csv").content.decode()))
    ] == ["other"]
    assert client.get("/jobs/?q=nothing").context["rows"] == []
    node = client.get("/fleet/?job=other").context["rows"][0].instance_id
    assert [job.name for job in client.get(f"/jobs/?tab=running&q={node}").context["rows"]] == ["other"]


def test_paging_shows_each_job_once(nodes, log_in, monkeypatch):
    monkeypatch.setattr("healthboard.approve.jobs.PAGE_SIZE", 2)
    for n, node in enumerate((*nodes, make.instance(nodes[0].pool))):
        _run([node], f"run-{n}")
    client, seen, after = log_in("viewer"), [], ""
    for _ in range(5):
        answer = client.get("/jobs/", {"tab": "running", "after": after})
        seen += [job.name for job in answer.context["rows"]]
        if not (after := answer.context["next"]):
            break
    assert sorted(seen) == [f"run-{n}" for n in range(5)]


def test_queries_do_not_grow_and_an_unchanged_page_is_polled_for_nothing(nodes, log_in, monkeypatch):
    client = log_in("viewer")

    def more(times: int) -> None:
        for n in range(times):
            pair = [make.instance(nodes[0].pool) for _ in range(2)]
            name = f"more-{JobStop.objects.count()}-{n}"
            _stop(pair, name)
            _run([make.instance(nodes[0].pool)], f"live-{name}")
            make.case(pair[0], code="XID_79", verdict="HARDWARE", victims=[pair[1].instance_id])

    def count() -> int:
        with CaptureQueriesContext(connection) as seen:
            client.get("/jobs/")
        return len([q for q in seen if "clock_timestamp" not in q["sql"]])

    more(2)
    count()
    few = count()
    more(10)
    assert count() == few <= 30
    monkeypatch.setattr("healthboard.approve.jobs.clock.now", lambda: nodes[0].first_seen_at)  # the same minute
    shown = re.search(r'"X-Shown": "(\w+)"', client.get("/jobs/").content.decode())[1]
    headers = {"HX-Request": "true", "X-Shown": shown}
    assert client.get("/jobs/", headers=headers).status_code == 204
    _stop(nodes)
    assert client.get("/jobs/", headers=headers).status_code == 200


def test_hostile_names_are_shown_and_never_executed(nodes, log_in):
    make.case(nodes[0], code="XID_79", verdict="HARDWARE", victims=[HOSTILE, nodes[1].instance_id])
    _stop(nodes, HOSTILE)
    _run([make.instance(nodes[0].pool)], HOSTILE + "2")
    client = log_in("viewer")
    for tab in ("still", "running"):
        text = client.get(f"/jobs/?tab={tab}").content.decode()
        assert "<script>alert" not in text and "&lt;script&gt;alert" in text
