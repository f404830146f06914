"""Columns and saved views of the fleet's table: all of it in the address, and a view opens equally for two people."""

from __future__ import annotations

import re

import pytest

from healthboard.people.models import SavedView
from tests import factories as make

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def fleet(home):
    return [make.instance(home, verdict=v) for v in ("HARDWARE", "HEALTHY")] + [make.instance(make.pool("infer"))]


def _save(client, **form):
    return client.post("/fleet/views/", {"page": "fleet", "name": "Sick", "query": "health=HARDWARE", **form})


def _heads(client, address: str) -> list[str]:
    text = client.get(address).content.decode()
    return [re.sub(r"<[^>]+>", "", head) for head in re.findall(r'<th scope="col".*?</th>', text)]


def test_columns_are_chosen_in_the_address(fleet, log_in):
    client = log_in("viewer")
    usual = _heads(client, "/fleet/")
    assert usual[:4] == ["Instance", "Health", "Stage", "Pool"] and "Driver" not in usual
    assert _heads(client, "/fleet/?col=driver&col=ip&col=nonsense") == [
        "Instance",
        "Health",
        "Stage",
        "Private IP",
        "Driver",
    ]
    assert _heads(client, "/fleet/?col=nonsense") == usual
    row = client.get("/fleet/?col=driver&col=ip").content.decode()
    assert "580.95.05" in row and fleet[0].private_ip in row
    assert 'name="col" value="driver"' in row  # a filter keeps the columns


@pytest.mark.parametrize("sort", ["cluster", "-driver", "launched", "-launched"])
def test_further_columns_are_sorted_and_paged(fleet, log_in, sort, monkeypatch):
    monkeypatch.setattr("healthboard.pages.PAGE_SIZE", 2)
    client = log_in("viewer")
    first = client.get(f"/fleet/?sort={sort}")
    second = client.get(f"/fleet/?sort={sort}&after={first.context['next']}")
    rows = [row.pk for row in (*first.context["rows"], *second.context["rows"])]
    assert sorted(rows) == sorted(row.pk for row in fleet)


@pytest.mark.parametrize(
    "key", [["x", "y"], [None, None], [{}, 1], ["2020", "a"], ["a\0b", 1], [1e400, 1], ["\ud800", 2], [10**30, 10**30]]
)
def test_a_made_up_place_in_the_list_breaks_nothing(fleet, log_in, key):
    from healthboard import pages

    client = log_in("viewer")
    for sort in ("health", "since", "pool", "tasks"):
        assert client.get("/fleet/", {"sort": sort, "after": pages.pack(key)}).status_code == 200


def test_a_private_view_is_ones_own_and_a_shared_one_opens_equally_for_two_people(fleet, log_in):
    ann, bob = log_in("operator", "ann"), log_in("viewer", "bob")
    assert _save(ann).status_code == 303
    assert [view.name for view in ann.get("/fleet/?view=none").context["views"]] == ["Sick"]
    assert list(bob.get("/fleet/?view=none").context["views"]) == []
    assert _save(ann, name="Shared", share="shared")["Location"] == "/fleet/?health=HARDWARE"
    (view,) = bob.get("/fleet/").context["views"]
    rows = [[row.pk for row in c.get(f"/fleet/?{view.query}").context["rows"]] for c in (ann, bob)]
    assert rows == [[fleet[0].pk]] * 2
    assert bob.get(f"/fleet/?{view.query}").context["view"] == view


def test_a_pools_default_is_what_its_people_get_and_it_can_be_left(fleet, log_in):
    operator = log_in("operator", pool="train")
    assert _save(operator, share="default", pool="train").status_code == 303
    mate, other = log_in("viewer", pool="train"), log_in("viewer")
    assert mate.get("/fleet/")["Location"] == "/fleet/?health=HARDWARE"
    assert other.get("/fleet/").status_code == 200
    assert len(mate.get("/fleet/?view=none").context["rows"]) == 2
    assert _save(operator, name="Other", query="stage=none", share="default", pool="train").status_code == 303
    assert mate.get("/fleet/")["Location"] == "/fleet/?stage=none"
    assert SavedView.objects.filter(default=True).count() == 1


def test_a_person_starts_with_a_view_of_their_own_before_any_other_default(fleet, log_in):
    _save(log_in("admin"), name="Everybody", query="pool=train", share="default")
    ann, bob = log_in("viewer", "ann"), log_in("viewer", "bob")
    assert _save(ann, share="mine").status_code == 303
    assert ann.get("/fleet/")["Location"] == "/fleet/?health=HARDWARE"
    assert bob.get("/fleet/")["Location"] == "/fleet/?pool=train"
    assert ann.get("/fleet/map/").status_code == 200, "a default is of one page"
    _save(ann, name="Waiting", query="stage=waiting", share="mine")
    assert ann.get("/fleet/")["Location"] == "/fleet/?stage=waiting"
    assert SavedView.objects.filter(own_default=True).count() == 1
    page = ann.get("/fleet/?stage=waiting").content.decode()
    assert "yours to start with" in page and "You start with <strong>Waiting</strong>" in page
    assert "yours to start with" not in bob.get("/fleet/?view=none").content.decode()
    _save(ann, name="Waiting", query="stage=waiting")  # kept, and no longer begun with
    assert ann.get("/fleet/")["Location"] == "/fleet/?pool=train"


def test_who_may_share_and_who_may_set_a_default(fleet, log_in):
    assert _save(log_in("viewer"), share="shared").status_code == 403
    assert _save(log_in("operator", pool="infer"), share="default", pool="train").status_code == 403
    assert _save(log_in("operator"), share="default").status_code == 403
    assert not SavedView.objects.exists()
    assert _save(log_in("admin"), share="default").status_code == 303
    assert log_in("viewer").get("/fleet/")["Location"] == "/fleet/?health=HARDWARE"


def test_only_the_owner_or_an_admin_removes_a_view(fleet, log_in):
    _save(log_in("operator", "ann"), share="shared")
    view = SavedView.objects.get()
    address = f"/fleet/views/{view.pk}/remove/"
    assert log_in("viewer").post(address).status_code == 403
    assert log_in("admin").get(address).status_code == 405
    assert log_in("admin").post(address).status_code == 303
    assert log_in("admin").post(address).status_code == 404
    assert not SavedView.objects.exists()


def test_a_view_holds_parameters_of_its_page_and_nothing_else(fleet, log_in):
    client = log_in("operator")
    _save(
        client,
        query=f"next=//evil.example&health=HARDWARE&format=csv&after=x&q={HOSTILE}",
        name=HOSTILE,
        share="shared",
    )
    view = SavedView.objects.get()
    assert view.query == "q=%3Cscript%3Ealert%281%29%3C%2Fscript%3E&health=HARDWARE"
    text = client.get(f"/fleet/?{view.query}").content.decode()
    assert HOSTILE not in text
    assert client.post("/fleet/views/", {"page": "//evil.example", "name": "x"})["Location"] == "/fleet/?view=none"


@pytest.mark.parametrize("form", [{"name": ""}, {"name": "x" * 61}, {"name": "\0"}, {"query": "q=" + "x" * 2001}])
def test_what_cannot_be_kept_is_refused_with_a_reason(fleet, log_in, form):
    assert _save(log_in("viewer"), **form).status_code == 422
    assert not SavedView.objects.exists()
