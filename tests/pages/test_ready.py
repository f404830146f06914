"""The page that compares what was only observed with what people did."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.urls import reverse

from healthboard.cases.models import WouldHave
from healthboard.people import grants
from healthboard.policies.models import Policy
from healthboard.policies.versions import ensure_default
from healthboard.repairs.models import Switch
from tests import factories as make
from tests.cases import scene


def page(client, query=""):
    return client.get(f"/ready/{query}").content.decode().replace("<wbr>", "")


@pytest.fixture
def observed(db):
    scene.policy(codes={"XID_119": {"mode": "observe", "action": "REBOOT"}})
    scene.acting()
    on = scene.machine()
    scene.shows(on)
    return scene.read(on)


def test_the_page_says_what_would_have_been_done_and_whether_that_is_enough(observed, log_in):
    said = page(log_in("viewer"))
    assert "XID_119" in said and "1× drain and reboot" in said and "1 not known yet" in said
    assert "Too few cases" in said and "16 more cases without a false alarm would do" in said
    scene.decided(observed, "dismiss", reason="a driver bug", by=make.actor(make.person("operator", "olga")))
    said = page(log_in("viewer"), "?days=7")
    assert "1 of 1" in said and f"/cases/{observed.pk}/" in said


def test_a_policy_is_asked_for_from_its_form(observed, log_in):
    client = log_in("admin", "ada")
    grants.sync(get_user_model().objects.get(username="ada"))
    policy = Policy.objects.get()
    form = client.get(reverse("admin:policies_policy_change", args=[policy.pk])).content.decode()
    assert f'href="/ready/?policy={policy.pk}"' in form
    said = page(client, f"?policy={policy.pk}")
    assert "XID_119" in said and "All policies" in said


def test_the_empty_page_teaches_what_observing_is_for(db, log_in):
    ensure_default()
    make.switch()
    client = log_in("viewer")
    assert "Set a code or a verdict to <code>observe</code>" in page(client)
    Switch.objects.update(acting=False)
    said = page(client)
    assert "This installation observes" in said and "What it would have done" in said


def test_another_pools_rehearsals_are_not_shown_and_odd_addresses_are_the_usual_page(observed, log_in):
    assert "XID_119" not in page(log_in("viewer", pool="train"))
    client = log_in("viewer")
    for query in ("days=8", "days=-1", "days=x", "policy=x", "policy=99999999999999", "days=٣"):
        assert "XID_119" in page(client, f"?{query}"), query
    WouldHave.objects.update(policy_version=None)
    assert "built-in defaults" in page(client)
