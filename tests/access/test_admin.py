"""The admin: every table is listed with what it takes to change a row, and nobody but an admin comes in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib import admin
from django.test import RequestFactory

from healthboard.people import access, grants
from healthboard.policies import versions
from healthboard.policies.models import Policy
from healthboard.repairs import brakes
from tests import factories
from tests.access import routes

pytestmark = pytest.mark.django_db
LISTED = dict(
    line.split()
    for line in Path(__file__).with_name("admin.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
TABLES = {name: takes for name, takes in LISTED.items() if not name.startswith("/")}
#: what Django has for each table
OF_A_TABLE = ("", "add/", "<>/", "<>/change/", "<>/delete/", "<>/history/")


def test_every_address_of_the_admin_is_listed():
    there = {re.sub(r"<[^>]*>", "<>", route) for route in routes.admin()}
    of_tables = {f"/admin/{name}/{end}" for name in TABLES for end in OF_A_TABLE}
    assert there == of_tables | {name for name in LISTED if name.startswith("/")}


@pytest.fixture
def as_(client):
    def log_in(role, **scope):
        user = factories.person(role, **scope)
        grants.sync(user)
        client.force_login(user)
        return user

    return log_in


def test_nobody_but_an_admin_comes_in(client, as_):
    superuser = factories.person("")
    superuser.is_superuser = True
    superuser.save()
    for user in (superuser, *(factories.person(role) for role in ("viewer", "operator", "approver"))):
        grants.sync(user)
        client.force_login(user)
        for name in TABLES:
            for end, send in (
                ("", client.get),
                ("add/", client.get),
                ("add/", client.post),
                ("1/delete/", client.post),
            ):
                answer = send(f"/admin/{name}/{end}")
                assert answer.status_code == 302 and answer.url.startswith("/admin/login/"), (user, name, end)


def test_what_an_admin_may_change_is_what_is_listed(client, as_):
    user = as_("admin")
    request = RequestFactory().post("/")
    request.user = user
    for model, page in admin.site._registry.items():
        takes = TABLES[model._meta.label_lower.replace(".", "/")]
        may = {
            page.has_add_permission(request),
            page.has_change_permission(request),
            page.has_delete_permission(request),
        }
        if takes == "seen":
            assert may == {False}, model
        else:
            assert page.verb == takes and takes in access.VERBS and True in may, model


def test_a_superuser_who_is_let_in_may_nothing_that_a_role_does_not_give(client):
    user = factories.person("viewer")
    user.is_superuser = user.is_staff = True
    user.save()
    client.force_login(user)
    for name, takes in TABLES.items():
        answer = client.post(f"/admin/{name}/add/", {})
        assert answer.status_code == 403, name
        if takes != "seen":
            assert client.get(f"/admin/{name}/").status_code == 403, name


def test_who_has_a_role_for_one_pool_reads_nothing_of_another(client, as_):
    """As on the pages: rows of pools, what holds them, the policies that match them, and the record of it."""
    home = factories.pool("train")
    place = {"account": home.account, "region": home.region}
    factories.pool("infer")
    ada = factories.actor(factories.person("admin", "ada"), recent=True)
    brakes.open_breaker(**place, kind="LAUNCH", scope_kind="pool", scope="infer", why="no room in infer", actor=ada)
    brakes.pause(actor=ada, scope_kind="pool", scope="infer", reason="infer moves", until=factories.ago(-600), **place)
    policy = Policy(name="of infer", pool="infer", settings={"undo_s": 60})
    versions.save(policy, actor=ada, reason="slower there")
    pages = [
        f"/admin/{name}/"
        for name in ("fleet/pool", "repairs/breaker", "repairs/pause", "policies/policy", "policies/policyversion")
    ]
    for scope in ({}, {"account": home.account, "pool": "train"}):
        as_("admin", **scope)
        told = {page: "infer" in client.get(page).content.decode() for page in pages}
        assert told == dict.fromkeys(pages, not scope)
        record = client.get("/admin/audit/auditrow/").content.decode()
        assert ("breaker.opened" in record) == ("pause.set" in record) == (not scope)
        assert client.get(f"/admin/policies/policyversion/{policy.current_id}/change/").status_code == (
            302 if scope else 200
        )
