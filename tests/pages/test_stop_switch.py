"""The stop switch: on every page, thrown with one click, and shown on every page from then on."""

from __future__ import annotations

import re

import pytest

from healthboard.repairs.models import Switch
from tests import factories as make

FORM = re.compile(r'<form method="post" action="/system/stop/" class="stop-now".*?</form>', re.DOTALL)


@pytest.fixture
def addresses(home):
    case = make.case(make.instance(home))
    repair = make.repair(make.instance(home))
    return [
        "/", "/fleet/", "/repairs/", "/audit/", "/system/", f"/cases/{case.pk}/", f"/cases/{case.pk}/answer/override/",
        f"/instances/{case.instance_id}/", f"/repairs/{repair.pk}/",
    ]  # fmt: skip


def test_every_page_has_it_and_one_click_throws_it(addresses, log_in):
    operator = log_in("operator")
    for address in addresses:
        form = FORM.search(operator.get(address).content.decode())
        assert form, address
        reason = re.search(r'name="reason" value="([^"]+)"', form.group(0)).group(1)
    assert operator.post("/system/stop/", {"reason": reason}).status_code == 303
    row = Switch.objects.get()
    assert row.stopped and row.reason == f"one click on {addresses[-1]}"
    for address in addresses:
        text = operator.get(address).content.decode()
        assert "The stop switch is thrown" in text and not FORM.search(text), address


def test_who_may_not_throw_it_sees_its_state_only(addresses, log_in):
    viewer = log_in("viewer")
    for address in addresses:
        text = viewer.get(address).content.decode()
        assert not FORM.search(text) and 'href="/system/#switch"' in text, address
    assert viewer.post("/system/stop/", {"reason": "x"}).status_code == 403
    assert not Switch.objects.get().stopped


def test_the_admin_leads_to_it(home):
    from django.test import Client

    user = make.person("admin")
    user.is_staff = user.is_superuser = True
    user.save()
    client = Client()
    client.force_login(user)
    assert 'href="/system/#switch"' in client.get("/admin/").content.decode()
