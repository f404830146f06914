from __future__ import annotations

import json

import pytest
from django.test import Client

from healthboard.cases import second as cases
from healthboard.cases.models import Decision
from healthboard.people.models import Request
from healthboard.repairs import brakes
from healthboard.repairs import second as repairs
from healthboard.repairs.models import Breaker, Switch
from tests import factories as make

LISTS = [
    "/",
    "/?tab=running",
    "/fleet/",
    "/repairs/",
    "/audit/",
    "/system/",
    "/condemned/",
    "/explain/",
    "/fleet/map/",
    "/find/",
    "/jobs/",
    "/handover/",
    "/wall/",
    "/quiet/",
]


@pytest.fixture
def addresses(home) -> list[str]:
    case = make.case(make.instance(home))
    group = make.case(None, verdict="CORRELATED", breaker=make.breaker(), pool=home)
    repair = make.repair(make.instance(home))
    return [
        *LISTS,
        f"/cases/{case.pk}/",
        f"/cases/{group.pk}/",
        f"/cases/{group.pk}/release/",
        *[f"/cases/{case.pk}/answer/{kind}/" for kind in ("approve", "override", "dismiss", "snooze")],
        f"/instances/{case.instance_id}/",
        f"/instances/{case.instance_id}/act/drain/",
        f"/instances/{case.instance_id}/pause/",
        f"/repairs/{repair.pk}/",
    ]


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "admin"])
def test_every_role_reads_every_page(addresses, log_in, role):
    client = log_in(role)
    assert {a: client.get(a).status_code for a in addresses} == dict.fromkeys(addresses, 200)


def test_a_person_without_a_role_is_told_so(addresses, log_in):
    client = log_in("")
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 403
        assert b"has no role yet" in answer.content


def test_a_stranger_is_sent_to_the_log_in_page_and_htmx_by_header(addresses):
    for address in addresses:
        answer = Client().get(address)
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/accounts/login/")
        polled = Client().get(address, headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/fleet/"})
        assert polled.status_code == 401
        assert polled["HX-Redirect"].startswith("/accounts/login/?next=")
        assert polled.content == b""


def test_nothing_is_kept_by_caches(addresses, log_in):
    client = log_in("viewer")
    assert {client.get(a)["Cache-Control"] for a in addresses} == {"no-store"}


def test_a_scoped_viewer_sees_only_that_pool(home, log_in):
    mine, other = make.case(make.instance(home)), make.case(make.instance(make.pool("infer")))
    client = log_in("viewer", pool="train")
    assert client.get(f"/cases/{mine.pk}/").status_code == 200
    assert client.get(f"/cases/{other.pk}/").status_code == 404
    assert client.get(f"/instances/{other.instance_id}/").status_code == 404
    assert [c.case.pk for c in client.get("/").context["rows"]] == [mine.pk]
    assert {r.pool.name for r in client.get("/fleet/").context["rows"]} == {"train"}


def test_what_one_may_not_do_is_disabled_and_says_why(home, log_in):
    case = make.case(make.instance(home))
    text = log_in("viewer").get(f"/cases/{case.pk}/").content.decode()
    assert 'aria-disabled="true"' in text
    assert "takes the role operator" in text
    assert "data-dialog" not in text


@pytest.mark.parametrize("role", ["viewer", ""])
def test_the_server_refuses_what_a_button_would_not_offer(home, log_in, role):
    case = make.case(make.instance(home))
    client = log_in(role)
    form = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash, "reason": "because"}
    assert client.post(f"/cases/{case.pk}/answer/dismiss/", form).status_code == 403
    assert client.post("/system/stop/", {"reason": "because"}).status_code == 403
    row = f"{case.pk}:{case.plan_version}:{case.evidence_hash}"
    assert client.post("/bulk/", {"kind": "dismiss", "reason": "because", "row": row}).status_code in (403, 409)
    assert not Decision.objects.exists()
    assert not Switch.objects.get().stopped


def test_releasing_wants_an_admin_with_a_fresh_log_in(home, log_in):
    tripped = make.breaker()
    group = make.case(None, verdict="CORRELATED", breaker=tripped, pool=home)
    make.case(make.instance(home), state="HELD", parent=group)
    assert log_in("operator").post(f"/cases/{group.pk}/release/", {"reason": "fixed"}).status_code == 403
    client = log_in("admin")
    session = client.session
    session["auth_at"] = make.ago(1000).isoformat()
    session.save()
    answer = client.post(f"/cases/{group.pk}/release/", {"reason": "fixed"})
    assert (answer.status_code, answer["Location"]) == (
        303,
        f"/accounts/again/?next=%2Fcases%2F{group.pk}%2Frelease%2F",
    )
    tripped.refresh_from_db()
    assert tripped.released_at is None
    assert log_in("admin").post(f"/cases/{group.pk}/release/", {"reason": "fixed"}).status_code == 303
    tripped.refresh_from_db()
    assert tripped.released_at is None, "it takes two people"
    asked = Request.objects.get(state="WAITING")
    assert log_in("approver").post(f"/requests/{asked.pk}/confirm/").status_code == 303
    tripped.refresh_from_db()
    assert tripped.release_reason == "fixed"


def test_changes_go_by_post_with_a_token_only(home):
    case = make.case(make.instance(home))
    client = Client(enforce_csrf_checks=True)
    client.force_login(make.person("operator"))
    form = {"plan_version": 1, "evidence_hash": case.evidence_hash, "reason": "because"}
    assert client.post(f"/cases/{case.pk}/answer/dismiss/", form).status_code == 403
    for address in (
        f"/cases/{case.pk}/undo/",
        "/bulk/",
        "/bulk/confirm/",
        "/system/stop/",
        "/system/resume/",
        "/look/",
    ):
        assert client.get(address).status_code == 405
    assert not Decision.objects.exists()


def test_the_theme_cookie_goes_back_to_this_site_only(log_in):
    client = log_in("viewer")
    assert client.post("/look/", {"theme": "dark", "next": "https://example.org/"})["Location"] == "/"
    assert 'data-theme="dark"' in client.get("/fleet/").content.decode()


def test_json_of_the_fleet_is_json(home, log_in):
    make.instance(home)
    assert set(json.loads(log_in("viewer").get("/fleet/?format=json").content)) == {"items", "more"}


def test_case_and_instance_pages_only_count_what_is_of_other_pools(home, log_in):
    """Neighbours, victims, members, and precedent with its people and reasons."""
    infer, bad = make.pool("infer"), {"verdict": "HARDWARE", "verdict_code": "XID_79", "zone": "us-east-1a"}
    mine, near = make.instance(home, **bad), make.instance(home, **bad)
    theirs = make.instance(infer, **bad)
    make.gpus(mine)
    for on, by in ((near, "ann"), (theirs, "zed")):
        old = make.case(on, code="XID_79", state="CLOSED", resolution="REPAIRED")
        repair = make.repair(on, state="SUCCEEDED")
        make.decision(old, make.person("operator", by), "override", repair=repair, reason=f"{by} knows why")
    case = make.case(mine, code="XID_79", verdict="HARDWARE", victims=[near.instance_id, theirs.instance_id])
    group = make.case(None, verdict="CORRELATED", breaker=make.breaker(), pool=home)
    member, other = (make.case(on, state="HELD", parent=group) for on in (near, theirs))
    spread = make.case(None, verdict="CORRELATED", pool=home, victims=[near.instance_id, theirs.instance_id])
    addresses = [f"/instances/{mine.pk}/", *(f"/cases/{one.pk}/" for one in (case, group, spread))]

    everything = "".join(log_in("viewer").get(address).content.decode() for address in addresses)
    foreign = theirs.instance_id, f"/instances/{theirs.pk}/", f"/cases/{other.pk}/", "zed overrode", "zed knows why"
    assert all(word in everything for word in foreign)

    client = log_in("viewer", pool="train")
    texts = [client.get(address).content.decode() for address in addresses]
    assert not [word for word in foreign for text in texts if word in text]
    own = near.instance_id, f"/cases/{member.pk}/", "ann overrode", "ann knows why"
    assert all(word in "".join(texts) for word in own)
    assert "2 of 2 other instances show" in texts[0] and "and 1 more." in texts[0]
    for said in ("2 earlier cases", "1 of them is of pools that you do not see", "and 1 instance not listed"):
        assert said in texts[1], said
    assert "2 instances ·" in texts[2] and "1 member is not listed" in texts[2]
    assert "2 instances ·" in texts[3] and "1 instance is not listed" in texts[3]


def test_breakers_and_sources_of_other_places_are_neither_counted_nor_named(home, log_in):
    """One of a pool is for who sees the pool; what is wider may hold their machines as well."""
    make.pool("infer")
    theirs, wide = make.breaker("infer", why="4 of infer"), make.breaker("us-east-1b", scope_kind="zone")
    make.breaker("infer", released_at=make.ago(60), released_by="ada", release_reason="found the cable of infer")
    make.source("ecs", scope="west", age=4000, account=make.account("444455556666"))
    client = log_in("admin", account=home.account, pool="train")
    for address in ("/", "/system/", "/handover/", "/handover/?format=text"):
        said = client.get(address).content.decode()
        assert "infer" not in said and "west" not in said, address
    assert "1 breaker is open" in client.get("/").content.decode()
    assert "zone us-east-1b" in client.get("/system/").content.decode()
    assert client.post(f"/system/breakers/{theirs.pk}/release/", {"reason": "x"}).status_code == 404
    assert client.post(f"/system/breakers/{wide.pk}/release/", {"reason": "x"}).status_code == 403
    everywhere = log_in("viewer")
    assert "2 breakers are open" in everywhere.get("/").content.decode()
    assert "pool infer" in everywhere.get("/system/").content.decode()


def test_the_record_of_another_pools_breaker_or_pause_is_not_read(home, log_in):
    ada = make.actor(make.person("admin", "ada"), recent=True)
    place = {"account": home.account, "region": home.region}
    brakes.open_breaker(**place, kind="LAUNCH", scope_kind="pool", scope="infer", why="infer cannot launch", actor=ada)
    brakes.pause(actor=ada, scope_kind="pool", scope="infer", reason="infer moves", until=make.ago(-60), **place)
    asked = repairs.ask_release(Breaker.objects.get().pk, actor=ada, reason="infer has room")
    cases.refuse(asked.pk, actor=ada, reason="")
    for where in (home.account, None):
        answer = log_in("viewer", account=where, pool="train" if where else "").get("/audit/?format=csv")
        said = b"".join(answer.streaming_content).decode()
        assert [verb in said for verb in ("breaker.opened", "pause.set", "second.asked", "second.withdrawn")] == [
            not where
        ] * 4
