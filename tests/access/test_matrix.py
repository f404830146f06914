"""Who may do what: each address of the table is asked by each person, and each address that there is has its rows."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import transaction
from django.test import Client

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.people import access, sessions
from healthboard.people.web import AUTH_AT
from tests import factories
from tests.access import routes, table, world

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def board(django_db_setup, django_db_blocker):
    """One installation for all of this module, taken back at its end."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield world.build()
        transaction.set_rollback(True)


ROWS = table.rows("matrix.txt")


def shape(route: str) -> str:
    return re.sub(r"<[^>]*>|\{[^}]*\}", "<>", route)


def test_every_address_has_its_rows_and_every_row_its_address():
    there = {shape(route) for route in (*routes.pages(), *routes.api())}
    listed = {shape(row.route) for row in ROWS}
    assert listed == there, f"without a row: {sorted(there - listed)}; without an address: {sorted(listed - there)}"
    described = {(method, shape(path)) for method, path in routes.operations()}
    of_api = {(row.method, shape(row.route)) for row in ROWS if row.api}
    assert of_api - described == {("GET", "/api/v1/"), ("GET", "/api/v1/openapi.json")} and described <= of_api
    assert len({(row.method, row.route) for row in ROWS}) == len(ROWS)


def name_of(row: table.Row) -> str:
    names = {shape(route): name for route, name in {**routes.pages(), **routes.api()}.items()}
    return names[shape(row.route)]


def test_each_address_answers_each_person_as_listed(board):
    wrong = []
    for row in ROWS:
        name = name_of(row)
        for who in world.PEOPLE:
            status, why = table.undone(board, who, row, name)
            if status != row.expected(who):
                wrong.append(f"{row.method} {row.route} by {who}: {status}, not {row.expected(who)} {why}")
            if status == 403 and row.takes != "-" and not why:
                wrong.append(f"{row.method} {row.route} by {who}: refused without a reason")
    assert not wrong, "\n".join(wrong)


def test_what_a_known_person_was_refused_is_on_record_once_and_strangers_write_nothing(board):
    row = next(row for row in ROWS if row.route == "/system/resume/")
    with transaction.atomic():
        cache.clear()
        before = AuditRow.objects.count()
        for who in ("anonymous", "viewer", "viewer"):
            table.ask(board, who, row, "resume")
        told = list(AuditRow.objects.filter(verb="request.refused").values_list("actor", "payload"))
        assert told == [
            (
                "viewer",
                {"reason": "To release the stop switch takes the role admin; the log-in viewer has the role viewer."},
            )
        ]
        assert AuditRow.objects.count() == before + 1
        transaction.set_rollback(True)


def test_no_form_is_taken_without_its_token(board):
    """A form posted from another site carries the session's cookie, and not the form's token."""
    client = Client(enforce_csrf_checks=True)
    taken = []
    for row in (row for row in ROWS if row.method == "POST" and "/node/" not in row.route):
        client.cookies.update(board.cookies["admin"])
        name = name_of(row)
        with transaction.atomic():
            kind = {"content_type": "application/json"} if row.api else {}
            status = client.post(table.fill(board, row.route, name), board.forms.get(name, {}), **kind).status_code
            transaction.set_rollback(True)
        if status != 403:
            taken.append(f"{row.route}: {status}")
    assert taken == []


def test_an_address_takes_no_other_method(board):
    """What changes something is never reached by a link or an image."""
    posted = {row.route for row in ROWS if row.method == "POST"}
    read = {row.route for row in ROWS if row.method == "GET"}
    for row in (row for row in ROWS if row.method == "POST" and row.route in posted - read):
        name = name_of(row)
        got = table.Row("GET", row.route, row.takes, 405, 405)
        assert table.undone(board, "admin", got, name)[0] == 405, row.route


def test_a_stolen_session_does_what_its_person_may_but_nothing_that_wants_a_fresh_log_in(board):
    """Whoever has the cookie and no password, a quarter of an hour after the log-in; then the person ends it."""
    grave, refused = {*access.RECENT, "second"}, {"request.refused", "second.refused"}
    rows = [row for row in ROWS if row.method == "POST" and not row.api and row.takes in grave]
    # a policy is tried, not saved; to refuse is the careful answer
    rows = [row for row in rows if name_of(row) not in ("second_refuse", "policy_preview")]
    assert len(rows) >= 5
    for who in ("admin", "approver"):
        with transaction.atomic():
            stolen = board.clients[who]
            stolen.cookies.update(board.cookies[who])
            session = stolen.session
            session[AUTH_AT] = (clock.now() - timedelta(minutes=16)).isoformat()
            session.save()
            done = {row.route: told for row in rows if (told := verbs_of(board, who, row)) - refused}
            assert done == {}, f"{who} without a fresh log-in"
            dismiss = next(
                row for row in ROWS if row.route == "/cases/<int:case_id>/answer/<slug:kind>/" and row.method == "POST"
            )
            assert "case.dismiss" in verbs_of(board, who, dismiss)
            for address in ("/accounts/sessions/", "/accounts/password/"):
                form = {"old_password": "guessed", "new_password1": "x" * 20, "new_password2": "x" * 20}
                assert stolen.post(address, form).status_code in (200, 302)
            owner = User.objects.get(username=who)
            assert owner.check_password(factories.PASSWORD) and stolen.get("/").status_code == 200
            assert sessions.end(owner, actor=factories.actor(owner)) >= 1
            assert stolen.get("/").status_code == 302
            transaction.set_rollback(True)


def verbs_of(board: world.World, who: str, row: table.Row) -> set[str]:
    """What one request leaves on record; everything is taken back."""
    with transaction.atomic():
        cache.clear()
        last = AuditRow.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        table.ask(board, who, row, name_of(row))
        found = set(AuditRow.objects.filter(pk__gt=last).values_list("verb", flat=True))
        transaction.set_rollback(True)
    return found
