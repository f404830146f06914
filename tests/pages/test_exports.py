"""Lists as files: every row of the list, and a header where there is none."""

from __future__ import annotations

import pytest

from healthboard.cases import jobs
from tests import factories as make


def test_the_inbox_gives_every_row_of_its_tab_not_those_of_a_page(home, log_in, monkeypatch):
    monkeypatch.setattr("healthboard.approve.inbox.MOST", 1)
    rows = [make.case(make.instance(home)) for _ in range(2)]
    items = log_in("viewer").get("/?tab=waiting&format=json").json()["items"]
    assert {item["id"] for item in items} == {row.pk for row in rows}


@pytest.mark.parametrize("address", ["/?tab=waiting&", "/cases/?", "/repairs/?", "/fleet/?"])
def test_a_list_without_a_row_is_a_csv_with_its_header(home, log_in, address):
    client = log_in("viewer")
    empty = client.get(f"{address}format=csv").content.decode().splitlines()
    on = make.instance(home)
    make.case(on)
    make.repair(on)
    items = client.get(f"{address}format=json").json()["items"]
    assert [line.split(",") for line in empty] == [list(items[0])]


def test_jobs_without_a_row_are_a_csv_with_its_header(home, log_in):
    assert log_in("viewer").get("/jobs/?format=csv").content.decode() == ",".join(jobs.COLUMNS) + "\r\n"


@pytest.mark.parametrize("address", ["/?tab=waiting&", "/cases/?", "/repairs/?", "/fleet/?"])
def test_an_export_that_is_cut_says_so(home, log_in, monkeypatch, address):
    client, where = log_in("viewer"), f"{address}format="
    for _ in range(2):
        make.case(on := make.instance(home))
        make.repair(on, state="SUCCEEDED")
    for most, more, name in ((2, False, ".csv"), (1, True, "-first-1.csv")):
        monkeypatch.setattr("healthboard.exports.MOST", most)
        told = client.get(f"{where}json").json()
        assert (len(told["items"]), told["more"]) == (most, more)
        assert client.get(f"{where}csv")["Content-Disposition"].endswith(f'{name}"')
        assert ("-first-" in client.get(f"{where}csv")["Content-Disposition"]) is more
