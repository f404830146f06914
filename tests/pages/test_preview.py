"""The button of the policy form: what it would have done, before anything is saved."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.audit.models import AuditRow
from healthboard.people import grants
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.policies.versions import ensure_default
from tests import factories as make
from tests.cases import scene
from tests.policies.test_admin import form

PREVIEW = "/policies/preview/"
CHANGES = ("INSERT", "UPDATE", "DELETE")


@pytest.fixture
def cases(db):
    ensure_default()
    return [scene.asked(home=make.pool("train", "GROUP")), scene.asked(home=scene.solo())]


def wanted(**changed):
    return form(workload="", pool="train", s_codes="XID_119: auto REBOOT", reason="", **changed)


def test_the_form_is_tried_on_recorded_evidence_and_nothing_is_written(cases, log_in):
    client = log_in("admin", "ada")
    grants.sync(get_user_model().objects.get(username="ada"))
    assert 'formaction="/policies/preview/"' in client.get("/admin/policies/policy/add/").content.decode()
    before = Policy.objects.count(), PolicyVersion.objects.count(), AuditRow.objects.count()
    with CaptureQueriesContext(connection) as seen:
        answer = client.post(PREVIEW, wanted(_days="1"))
    said = answer.content.decode()
    assert answer.status_code == 200, said
    assert "in the last 1 day" in said and "1 case: 0 decided as they were, 1 otherwise." in said
    assert "Drain and reboot: asks a person" in said and "Drain and reboot: by itself" in said
    assert f"/cases/{cases[0].pk}/" in said and f"/cases/{cases[1].pk}/" not in said
    assert [q["sql"] for q in seen if q["sql"].lstrip().upper().startswith(CHANGES)] == []
    assert (Policy.objects.count(), PolicyVersion.objects.count(), AuditRow.objects.count()) == before


def test_an_edit_of_a_saved_policy_is_tried_in_its_own_place(cases, log_in):
    default = Policy.objects.get(is_default=True)
    data = form(name=default.name, workload="", s_mode_ambiguous="observe", _policy=str(default.pk), reason="")
    said = log_in("admin").post(PREVIEW, data).content.decode()
    assert "2 cases: 0 decided as they were, 2 otherwise." in said and "observes only" in said
    default.refresh_from_db()
    assert default.settings == {}


def test_what_cannot_be_saved_is_not_tried(cases, log_in):
    answer = log_in("admin").post(PREVIEW, wanted(s_mode_hardware="ask", s_mode_ambiguous="auto"))
    assert answer.status_code == 422 and "Nothing was tried" in answer.content.decode()


def test_where_nothing_was_recorded_the_page_says_what_to_do(db, log_in):
    ensure_default()
    said = log_in("admin").post(PREVIEW, wanted()).content.decode()
    assert "nothing was recorded" in said and "try a longer time" in said


def test_only_who_keeps_policies_there_may_try_them(cases, log_in):
    for role in ("viewer", "operator", "approver"):
        assert log_in(role).post(PREVIEW, wanted()).status_code == 403
    of_solo = log_in("admin", pool="solo")
    assert of_solo.post(PREVIEW, wanted()).status_code == 422  # another pool's policy
    default = Policy.objects.get(is_default=True)
    assert of_solo.post(PREVIEW, form(name=default.name, _policy=str(default.pk))).status_code == 403
    assert log_in("admin").get(PREVIEW).status_code == 405


def test_a_length_that_is_not_offered_is_the_usual_one_and_a_policy_that_is_not_there_a_new_one(cases, log_in):
    client = log_in("admin")
    for days in ("", "0", "8", "-1", "9999999999", "٣"):
        assert "in the last 7 days" in client.post(PREVIEW, wanted(_days=days)).content.decode()
    for pk in ("x", "-1", "99999999999999999999", "424242"):
        assert client.post(PREVIEW, wanted(_policy=pk)).status_code == 200
