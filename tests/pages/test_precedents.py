"""The numbers of the past on the case page and in the policy form."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.cases import precedents
from healthboard.people import access, grants
from healthboard.policies.models import Policy
from healthboard.policies.versions import ensure_default
from healthboard.seed.fill import fill
from tests import factories as make
from tests.cases.test_precedents import current, past


def test_the_case_page_shows_what_each_action_came_to_for_its_signature(db, log_in):
    past("REBOOT")
    past("REPLACE", driver_version="570.1")
    case = current()
    said = log_in("viewer").get(f"/cases/{case.pk}/").content.decode()
    assert "Exactly these codes on p5.48xlarge in the last 180 days, driver 580.95.05:" in said
    assert "Back within 7 days" in said and "With any driver" in said


def test_the_policy_form_shows_per_code_what_speaks_for_another_mode(db, log_in):
    ensure_default()
    client = log_in("admin", "ada")
    grants.sync(get_user_model().objects.get(username="ada"))
    where = f"/admin/policies/policy/{Policy.objects.get().pk}/change/"
    assert "No case that this policy matches by name was closed" in client.get(where).content.decode()
    for _ in range(16):
        past("REBOOT")
    said = client.get(where).content.decode()
    assert "<strong>auto</strong>: the proposed repair ended well in 16 of 16" in said
    assert "drain and reboot: 16 of 16" in said and "mostly on p5.48xlarge with driver 580.95.05 (16)" in said
    assert "What was done before, by code" in client.get("/admin/policies/policy/add/").content.decode()


def test_its_queries_do_not_grow_with_the_past(db):
    ensure_default()
    see = access.seeing(make.person("admin"))
    for size in (20, 60):
        fill(size, days=30, seed=size, add=True)
        with CaptureQueriesContext(connection) as seen:
            found = precedents.of_policy(see, Policy.objects.get())
        assert found and len([q for q in seen if "clock_timestamp" not in q["sql"]]) <= 3
