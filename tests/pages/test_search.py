"""The search in the header: what it takes, that one hit goes straight there, and that it ends at one's own pools."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.cases.search import search
from healthboard.fleet.models import JobStop
from tests import factories as make

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def fleet(home):
    other = make.pool("infer")
    rows = [make.instance(home, verdict="HARDWARE", verdict_code="XID_79"), make.instance(home), make.instance(other)]
    make.gpus(rows[0], 8, bad={3: "lost"})
    make.gpus(rows[2], 2)
    return rows


def _address(row) -> str:
    return f"/instances/{row.pk}/"


def test_one_hit_goes_straight_there(fleet, log_in):
    client = log_in("viewer")
    gpu = fleet[0].gpus.get(index=3)
    task = make.task(fleet[1])
    case = make.case(fleet[0], code="XID_95", pk=4711)
    wanted = {
        fleet[0].instance_id: _address(fleet[0]),
        fleet[0].instance_id[:12]: _address(fleet[0]),
        f" {fleet[1].private_ip} ": _address(fleet[1]),
        gpu.uuid: _address(fleet[0]),
        gpu.uuid[:14].lower(): _address(fleet[0]),
        gpu.serial: _address(fleet[0]),
        task.arn: _address(fleet[1]),
        task.arn.rsplit("/")[-1]: _address(fleet[1]),
        "#4711": f"/cases/{case.pk}/",
        "case 4711": f"/cases/{case.pk}/",
        "4711": f"/cases/{case.pk}/",
        "llm-train": "/fleet/?workload=llm-train",
        "infer": "/fleet/?pool=infer",
        **dict.fromkeys(("79", "XID_79", "xid 79", "Xid79"), "/fleet/?q=XID_79"),
        fleet[2].zone: f"/fleet/?zone={fleet[2].zone}",
    }
    found = {text: client.get("/find/", {"q": text})["Location"] for text in wanted}
    assert found == wanted
    for address in set(wanted.values()):
        assert client.get(address).status_code == 200


def test_the_table_behind_a_hit_has_as_many_rows_as_it_says(fleet, log_in):
    make.task(fleet[0])
    make.task(fleet[0])
    make.task(fleet[2], job="run-7")
    client = log_in("viewer")
    for text, rows in (("llm-train", 2), ("run-7", 1), ("train", 2), ("79", 1)):
        hits = [h for h in search(client.get("/find/").wsgi_request.user, text) if h.address.startswith("/fleet/")]
        assert [len(client.get(hit.address).context["rows"]) for hit in hits] == [int(h.note.split()[0]) for h in hits]
        assert rows in [int(h.note.split()[0]) for h in hits]


def test_several_hits_are_listed_with_what_they_are(fleet, log_in):
    case = make.case(fleet[1], code="XID_79", verdict="HARDWARE", pk=79)
    answer = log_in("viewer").get("/find/?q=79")
    assert [(hit.kind, hit.address) for hit in answer.context["hits"]] == [
        ("case", f"/cases/{case.pk}/"),
        ("code", "/fleet/?q=XID_79"),
    ]
    assert "case 79" in answer.content.decode()


def test_no_hit_says_what_can_be_searched(fleet, log_in):
    client = log_in("viewer")
    for text in ("", "nothing-like-it", "i-00000000000000000", "10.9.9.9", "arn:aws:ecs:x", HOSTILE, "a\0b", "9" * 300):
        answer = client.get("/find/", {"q": text})
        assert answer.status_code == 200
        assert "GPU-1a2b3c4d" in answer.content.decode()
        assert HOSTILE not in answer.content.decode()


def test_what_is_outside_ones_pools_is_not_found(fleet, log_in):
    case = make.case(fleet[2], code="XID_119")
    task = make.task(fleet[2], make.workload("secret-sauce"))
    client = log_in("viewer", pool="train")
    gpu = fleet[2].gpus.first()
    for text in (fleet[2].instance_id, gpu.uuid, gpu.serial, task.arn, f"#{case.pk}", "119", "infer", "secret-sauce",
                 str(fleet[2].private_ip)):  # fmt: skip
        assert client.get("/find/", {"q": text}).status_code == 200, text
        assert client.get("/find/", {"q": text}).context["hits"] == [], text
    assert client.get("/find/", {"q": fleet[0].instance_id}).status_code == 302


def test_the_search_asks_the_same_whatever_there_is(home, log_in):
    client = log_in("viewer")

    def count() -> int:
        with CaptureQueriesContext(connection) as seen:
            client.get("/find/?q=serve")
        return len([q for q in seen if "clock_timestamp" not in q["sql"]])

    for n in range(3):
        make.task(make.instance(home), make.workload(f"serve-{n}"))
    few = count()
    for n in range(3, 30):
        make.task(make.instance(home), make.workload(f"serve-{n}"))
    assert count() == few <= 45


def test_a_job_that_stopped_is_found_though_ecs_lists_it_no_more(fleet, log_in):
    on = fleet[1]
    JobStop.objects.create(
        account=on.account, region=on.region, cluster=on.cluster, name="llm/run-7", nodes={on.instance_id: 8}, left=0,
        at=make.ago(60),
    )  # fmt: skip
    where = log_in("viewer").get("/find/?q=LLM/run-7")["Location"]
    assert where == "/jobs/?tab=ended&q=llm%2Frun-7"
    assert [job.name for job in log_in("viewer").get(where).context["rows"]] == ["llm/run-7"]
    assert log_in("viewer", pool="infer").get("/find/?q=llm/run-7").context["hits"] == []
