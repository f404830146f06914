"""An error of ours tells a stranger nothing, is told whole to the log, and carries nothing out."""

from __future__ import annotations

import logging

import pytest
from django.test import Client

from healthboard import clock
from healthboard.audit.models import AuditRow
from tests import factories

pytestmark = pytest.mark.django_db
SECRET = "postgres://healthboard:the-password@db.internal/x"


@pytest.fixture
def broken(monkeypatch):
    """Whatever a page or the API asks first fails as a database would."""

    def fail(*args, **kwargs):
        raise RuntimeError(f"connection to {SECRET} lost")

    monkeypatch.setattr("healthboard.people.access.grants_of", fail)


@pytest.mark.parametrize("path", ["/", "/fleet/?format=csv", "/api/v1/cases", "/admin/auth/user/"])
def test_an_error_is_one_plain_answer_without_its_insides(broken, monkeypatch, path, caplog):
    client = Client(raise_request_exception=False)
    user = factories.person("admin", name="ada")
    user.is_staff = True
    user.save()
    client.force_login(user)
    with caplog.at_level(logging.ERROR, "django.request"):
        answer = client.get(path)
    text = answer.content.decode()
    assert answer.status_code == 500 and "healthboard made an error" in text
    for inside in ("RuntimeError", "Traceback", "the-password", "db.internal", "grants_of", ".py"):
        assert inside not in text
    assert len(answer["X-Request-Id"]) == 32 and "no-store" in answer["Cache-Control"]
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert any(record.exc_info for record in caplog.records), "the log has it whole"


def test_what_fails_in_the_middle_has_carried_nothing_out(monkeypatch):
    """A person is switched off, and the record of it cannot be written: neither is there."""
    client = Client(raise_request_exception=False)
    factories.person("admin", name="eve")
    admin = factories.person("admin", name="ada")
    admin.is_staff = True
    admin.save()
    client.force_login(admin)
    session = client.session
    session["auth_at"] = clock.now().isoformat()
    session.save()
    otto = factories.person("operator", name="otto")
    before = AuditRow.objects.count()
    monkeypatch.setattr("healthboard.people.admin.record", lambda *args, **kwargs: 1 / 0)
    sent = {"username": "otto", "first_name": "", "last_name": "", "email": ""}
    assert client.post(f"/admin/auth/user/{otto.pk}/change/", sent).status_code == 500
    otto.refresh_from_db()
    assert otto.is_active and AuditRow.objects.count() == before
