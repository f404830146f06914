"""The map: each instance one cell, its look by health, GPUs and stage, the same filters as the table."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.fleet import drawing
from healthboard.fleet.symbols import State, symbol
from tests import factories as make

HOSTILE = '"><script>alert(1)</script>'
CELL = re.compile(r'<a href="/instances/(\d+)/"><title>([^<]*)</title><use href="#(k\d+)" x="(\d+)"/></a>')


@pytest.fixture
def fleet(home):
    rows = [make.instance(home, verdict="HARDWARE", verdict_code="XID_79", zone="us-east-1a")]
    rows += [make.instance(home, zone="us-east-1b") for _ in range(3)]
    rows += [make.instance(make.pool("infer"), zone="us-east-1b", node_seen_at=make.ago(900))]
    make.gpus(rows[0], 8, bad={0: "lost", 5: "error"})
    for row in rows[1:]:
        make.gpus(row, 8)
    make.repair(rows[1], state="RUNNING")
    make.case(rows[1], state="DECIDED")
    make.source("node", scope="gpu")
    return rows


def _cells(client, address: str) -> dict[int, tuple[str, str]]:
    """Instance -> (title, words of its look)."""
    text = client.get(address).content.decode()
    looks = dict(re.findall(r'<symbol id="(k\d+)"[^>]*data-words="([^"]*)"', text))
    return {int(pk): (title, looks[look]) for pk, title, look, _ in CELL.findall(text)}


def test_every_instance_is_a_cell_that_says_what_it_is(fleet, log_in):
    cells = _cells(log_in("viewer"), "/fleet/map/")
    assert set(cells) == {row.pk for row in fleet}
    assert cells[fleet[0].pk][0] == f"{fleet[0].instance_id} XID_79: Hardware, GPU 0 and 5 of 8 bad"
    assert cells[fleet[1].pk] == (
        f"{fleet[1].instance_id}: Healthy, 8 GPUs good, Repairing",
        "Healthy, 8 GPUs good, Repairing",
    )
    assert cells[fleet[2].pk] == (fleet[2].instance_id, "Healthy, 8 GPUs good")


def test_gpus_of_a_silent_node_are_unknown_and_never_good(fleet, log_in):
    assert _cells(log_in("viewer"), "/fleet/map/")[fleet[4].pk][1] == "Healthy, GPUs unknown"
    looks = symbol("k0", State("HEALTHY", 8, 0, True, "none"))
    assert 'class="m-gpus blind"' in looks


def test_health_and_stage_and_each_gpu_change_the_shape_not_the_colour_alone():
    def shapes(*state) -> tuple[str, ...]:
        return tuple(re.findall(r' d="([^"]+)"', symbol("k0", State(*state))))

    seen = [shapes(verdict, 8, 0, False, "none")
            for verdict in ("HARDWARE", "CORRELATED", "AMBIGUOUS", "UNKNOWN", "WATCH", "WORKLOAD", "HEALTHY")]  # fmt: skip
    seen += [shapes("HEALTHY", 8, 0, False, stage) for stage in ("waiting", "held", "snoozed", "observed", "running")]
    seen += [shapes("HEALTHY", 8, 1 << gpu, False, "none") for gpu in range(8)]
    seen += [shapes("HEALTHY", 8, 0, True, "none"), shapes("HEALTHY", 4, 0, False, "none")]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("group=zone", {"us-east-1a": 1, "us-east-1b": 4}),
        ("group=pool", {"train": 4, "infer": 1}),
        ("group=job", {"run-7": 2, "": 3}),
        ("group=workload", {"llm-train": 3, "": 2}),
        ("group=nonsense", {"us-east-1a": 1, "us-east-1b": 4}),
        ("group=zone&health=HARDWARE", {"us-east-1a": 1}),
        ("group=zone&pool=infer", {"us-east-1b": 1}),
        ("job=run-7", {"us-east-1a": 1, "us-east-1b": 1}),
    ],
)
def test_groups_and_filters(fleet, log_in, query, groups):
    for row in fleet[:2]:
        make.task(row, job="run-7", gpus=8)
        make.task(row, make.workload("node-exporter", "DAEMON"), gpus=0)
    make.task(fleet[2], gpus=8)
    client = log_in("viewer")
    answer = client.get(f"/fleet/map/?{query}")
    assert {one.name: one.size for one in answer.context["map"].groups} == groups
    for one in answer.context["map"].groups:
        assert bool(one.table) is bool(one.name)
        if one.name:
            assert len(client.get(f"/fleet/?{one.table}").context["rows"]) == one.size
    assert 'href="/fleet/?' in answer.content.decode()  # the same as a table


def test_a_cell_keeps_its_place_when_its_health_changes(fleet, log_in):
    client = log_in("viewer")
    before = list(_cells(client, "/fleet/map/"))
    fleet[3].verdict, fleet[3].evidence_at = "AMBIGUOUS", make.ago(0)
    fleet[3].save()
    assert list(_cells(client, "/fleet/map/")) == before
    assert "Ambiguous" in _cells(client, "/fleet/map/")[fleet[3].pk][0]


def test_a_drawing_is_kept_until_the_fleet_changes_and_only_for_the_same_scope(fleet, log_in, monkeypatch):
    drawn = []
    draw = drawing.draw
    monkeypatch.setattr(drawing, "draw", lambda *a: drawn.append(1) or draw(*a))
    monkeypatch.setattr(drawing, "_kept", type(drawing._kept)())
    monkeypatch.setattr(drawing, "MOST_S", 10**9)
    one, other, scoped = log_in("viewer"), log_in("operator"), log_in("viewer", pool="infer")
    for client in (one, one, other):
        assert len(_cells(client, "/fleet/map/")) == 5
    assert len(drawn) == 1
    assert set(_cells(scoped, "/fleet/map/")) == {fleet[4].pk}
    make.case(fleet[2])
    assert "Waits for a person" in _cells(one, "/fleet/map/")[fleet[2].pk][0]
    assert len(drawn) == 3


def test_a_tab_that_counts_otherwise_is_shown_though_the_cells_are_the_same(fleet, log_in):
    client, address = log_in("viewer"), "/fleet/map/?health=HARDWARE"
    shown = re.search(r'"X-Shown": "(\w+)"', client.get(address).content.decode())[1]
    fleet[2].verdict, fleet[2].evidence_at = "WATCH", make.ago(0)
    fleet[2].save()
    answer = client.get(address, headers={"HX-Request": "true", "X-Shown": shown})
    assert answer.status_code == 200 and ("WATCH", 1) in answer.context["counts"]


def test_an_unchanged_map_is_polled_for_nothing_though_the_collectors_came_round(fleet, log_in):
    client = log_in("viewer")
    shown = re.search(r'"X-Shown": "(\w+)"', client.get("/fleet/map/").content.decode())[1]
    fleet[2].seen_at = make.ago(0)
    fleet[2].save()
    headers = {"HX-Request": "true", "X-Shown": shown}
    assert client.get("/fleet/map/", headers=headers).status_code == 204
    make.case(fleet[2])
    assert client.get("/fleet/map/", headers=headers).status_code == 200


def test_the_map_asks_the_same_of_the_database_for_any_fleet(home, log_in):
    client = log_in("viewer")

    def count() -> int:
        drawing._kept.clear()
        with CaptureQueriesContext(connection) as seen:
            client.get("/fleet/map/?group=workload")
        return len([q for q in seen if "clock_timestamp" not in q["sql"]])

    def more(times: int) -> None:
        for _ in range(times):
            row = make.instance(home)
            make.gpus(row, 2, bad={1: "lost"})
            make.task(row)

    more(3)
    count()
    few = count()
    more(20)
    assert count() == few <= 30


def test_hostile_names_are_shown_and_never_executed(home, log_in):
    row = make.instance(home, verdict="HARDWARE", verdict_code=HOSTILE[:60], zone=HOSTILE[:32])
    make.task(row, make.workload(HOSTILE), job=HOSTILE)
    client = log_in("operator")
    for group in ("zone", "pool", "job", "workload"):
        text = client.get(f"/fleet/map/?group={group}").content.decode()
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text


def test_a_map_of_many_stays_small(home, log_in):
    proto = make.instance(home)
    fields = {f.attname: getattr(proto, f.attname) for f in proto._meta.concrete_fields if f.attname != "id"}
    type(proto).objects.bulk_create(
        type(proto)(**{**fields, "instance_id": f"i-{n * 0xC2B2AE3D27D4EB4F % 16**17:017x}"}) for n in range(1, 1000)
    )
    answer = log_in("viewer").get("/fleet/map/", headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    assert len(answer.content) < 24_000  # 1,000 cells; 10,000 stay under 200 kB
