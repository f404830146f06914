"""Targets in the admin: kept by admins with a fresh log-in, checked, tested by a button, their secrets never shown."""

from __future__ import annotations

import re

import pytest

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.notices.models import Delivery, Notice, QuietHours, Target
from tests import factories as make
from workers.notify import send

ADD = "/admin/notices/target/add/"
SECRET = "a-secret-of-enough-characters-1"


@pytest.fixture
def admin(client, db):
    from healthboard.people import grants

    user = make.person("admin", "ada")
    grants.sync(user)
    client.force_login(user)
    session = client.session
    session["auth_at"] = clock.now().isoformat()
    session.save()
    return client


def form(**changed):
    data = {
        "name": "ops", "kind": "webhook", "enabled": "on", "url": "http://127.0.0.1:9/hook/TOKENPART", "addresses": "",
        "new_secret": SECRET, "kinds": [], "minimum": "info", "receivers": "operators", "pools": "", "workloads": "",
    }  # fmt: skip
    return {**data, **changed}


def change(row: Target) -> str:
    return f"/admin/notices/target/{row.pk}/change/"


def errors(answer) -> str:
    return " ".join(re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', answer.content.decode(), re.S))


def test_a_target_is_made_and_nothing_secret_is_ever_shown_again(admin, caplog):
    assert admin.post(ADD, form(pools="train, solo\ninfer")).status_code == 302
    row = Target.objects.get()
    assert (row.address, row.secret, row.pools) == (
        "http://127.0.0.1:9/hook/TOKENPART",
        SECRET,
        ["train", "solo", "infer"],
    )
    seen = [admin.get(change(row)).content.decode(), admin.get("/admin/notices/target/").content.decode()]
    seen.append(admin.get(f"/admin/notices/target/{row.pk}/history/").content.decode())
    seen += [caplog.text, *[f"{a.summary} {a.payload}" for a in AuditRow.objects.all()]]
    assert not any("TOKENPART" in text or SECRET in text for text in seen)
    assert "http://127.0.0.1:9/…" in seen[0]
    bad = admin.post(ADD, form(name="other", minimum="nonsense"))  # nor in a form that comes back
    assert bad.status_code == 200 and SECRET not in bad.content.decode()
    assert AuditRow.objects.get(verb="target.made").actor == "ada"


@pytest.mark.parametrize("field", ["secret", "secret_before", "address", "name", "pools"])
@pytest.mark.parametrize("how", ["", "__startswith", "__regex", "__isnull"])
def test_a_list_is_asked_by_its_filters_alone(admin, field, how):
    """Guessed letter by letter, a secret would be told by whether its row is listed."""
    Target.objects.create(name="x", kind="webhook", address="http://127.0.0.1:9/", secret=SECRET)
    assert admin.get("/admin/notices/target/?enabled__exact=1&kind__exact=webhook").status_code == 200
    assert admin.get(f"/admin/notices/target/?{field}{how}={SECRET[:1]}").status_code == 400


def test_what_is_left_empty_stays_and_secrets_are_rotated_with_two_live(admin):
    admin.post(ADD, form())
    row = Target.objects.get()
    admin.post(change(row), form(url="", new_secret="", name="renamed"))
    row.refresh_from_db()
    assert (row.name, row.secret, row.secret_before) == ("renamed", SECRET, "") and "TOKENPART" in row.address
    admin.post(change(row), form(new_secret="another-secret-of-some-length", keep_old="on"))
    row.refresh_from_db()
    assert (row.secret, row.secret_before) == ("another-secret-of-some-length", SECRET)
    admin.post(change(row), form(new_secret=""))
    row.refresh_from_db()
    assert (row.secret, row.secret_before) == ("another-secret-of-some-length", "")


def test_another_kind_keeps_nothing_of_the_old_one(admin):
    admin.post(ADD, form())
    row = Target.objects.get()
    assert "Enter the address" in errors(admin.post(change(row), form(kind="slack", url="", new_secret="")))
    assert "Enter it" in errors(admin.post(change(row), form(kind="pagerduty", url="", new_secret="")))
    admin.post(change(row), form(kind="email", url="", new_secret="", addresses="team@example.com"))
    row.refresh_from_db()
    assert (row.kind, row.address, row.secret) == ("email", "team@example.com", "")


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"url": "https://hooks.slack.com/services/x"}, "loopback"),
        ({"url": "http://169.254.169.254/latest"}, "loopback"),
        ({"url": "javascript:alert(1)"}, "must begin with https"),
        ({"url": ""}, "Enter the address"),
        ({"new_secret": "short"}, "At least 24"),
        ({"kind": "pagerduty", "new_secret": ""}, "Enter it"),
        ({"kind": "email", "addresses": ""}, "Enter an address, or choose people"),
        ({"kind": "email", "addresses": "not an address"}, "is not an e-mail address"),
        ({"kind": "email", "addresses": "a" * 243 + "@example.com"}, "is longer than an e-mail address can be"),
        ({"kind": "email", "addresses": "a@example.com\r\nBcc: x"}, "is not an e-mail address"),
        ({"kinds": ["nonsense"]}, "nonsense"),
        ({"pools": "x" * 300}, "at most 255"),
    ],
)
def test_bad_input_is_said_and_nothing_is_kept(admin, changed, said):
    assert said in errors(admin.post(ADD, form(**changed)))
    assert not Target.objects.exists()


def test_outside_of_the_sandbox_internal_addresses_are_refused_at_once(admin, settings):
    settings.SANDBOX = False
    settings.SECURE_SSL_REDIRECT = False
    for url in ("https://169.254.169.254/", "https://10.0.0.1/", "https://[::1]/", "http://hooks.example.com/"):
        assert "Nothing can be sent there" in errors(admin.post(ADD, form(url=url)))


def test_the_test_button_goes_the_way_of_every_notice(admin, receiver):
    admin.post(ADD, form(url=receiver.url, kinds=["breaker"], minimum="critical"))
    row = Target.objects.get()
    assert "Send a test" in admin.get(change(row)).content.decode()
    where = f"/admin/notices/target/{row.pk}/test/"
    assert admin.get(where).status_code == 405
    assert admin.post(where).status_code == 302
    assert send.sweep() == 1 and len(receiver.got) == 1
    text = admin.get(change(row)).content.decode()
    assert "ada sends a test to ops" in text and "sent" in text
    admin.post("/admin/notices/target/", {"action": "test", "_selected_action": [row.pk]})
    assert send.sweep() == 1 and len(receiver.got) == 2
    assert AuditRow.objects.filter(verb="target.tested").count() == 2


@pytest.mark.parametrize("role, scope", [("operator", {}), ("approver", {}), ("admin", {"pool": "train"})])
def test_only_an_admin_of_everything_keeps_targets(client, db, role, scope):
    from healthboard.people import grants

    user = make.person(role, **scope)
    grants.sync(user)
    client.force_login(user)
    session = client.session
    session["auth_at"] = clock.now().isoformat()
    session.save()
    row = Target.objects.create(name="x", kind="slack", address="http://127.0.0.1:9/")
    assert client.get("/admin/notices/target/").status_code in (302, 403), "not even where they lead"
    assert client.get(change(row)).status_code in (302, 403)
    assert client.post(ADD, form()).status_code in (302, 403)
    assert client.post(change(row), form(kind="slack")).status_code in (302, 403)
    assert client.post(f"/admin/notices/target/{row.pk}/test/").status_code in (302, 403)
    row.refresh_from_db()
    assert row.name == "x" and Target.objects.count() == 1 and not Notice.objects.exists()


def test_an_old_log_in_is_asked_for_anew(admin):
    session = admin.session
    session["auth_at"] = make.ago(1000).isoformat()
    session.save()
    assert "/accounts/again/" in admin.get(ADD)["Location"]
    row = Target.objects.create(name="x", kind="slack", address="http://127.0.0.1:9/")
    admin.post(f"/admin/notices/target/{row.pk}/test/")
    admin.post(ADD, form())
    admin.post(change(row), form(kind="slack", name="y"))
    admin.post(f"/admin/notices/target/{row.pk}/delete/", {"post": "yes"})
    admin.post("/admin/notices/target/", {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    assert list(Target.objects.values_list("name", flat=True)) == ["x"] and not Notice.objects.exists()


def test_a_target_is_deleted_with_what_was_on_its_way(admin):
    row = Target.objects.create(name="x", kind="slack", address="http://127.0.0.1:9/")
    admin.post(f"/admin/notices/target/{row.pk}/test/")
    send.make_deliveries()
    admin.post(f"/admin/notices/target/{row.pk}/delete/", {"post": "yes"})
    assert not Target.objects.exists() and not Delivery.objects.exists()
    assert AuditRow.objects.get(verb="target.deleted").actor == "ada"


def test_quiet_hours_are_kept_with_their_zone(admin):
    person = make.person("operator", "otto")
    data = {"user": person.pk, "starts": "22:00", "ends": "07:00", "zone": "Europe/Berlin", "critical_through": "on"}
    assert admin.post("/admin/notices/quiethours/add/", data).status_code == 302
    assert str(QuietHours.objects.get()) == "otto: 22:00 to 07:00 Europe/Berlin"
    other = make.person("operator")
    answer = admin.post("/admin/notices/quiethours/add/", {**data, "user": other.pk, "zone": "Mars/Base"})
    assert answer.status_code == 200 and QuietHours.objects.count() == 1


def test_notices_and_deliveries_are_read_and_never_edited(admin):
    row = Target.objects.create(name="x", kind="slack", address="http://127.0.0.1:9/")
    admin.post(f"/admin/notices/target/{row.pk}/test/")
    send.make_deliveries()
    for name, pk in (("notice", Notice.objects.get().pk), ("delivery", Delivery.objects.get().pk)):
        assert admin.get(f"/admin/notices/{name}/").status_code == 200
        assert admin.get(f"/admin/notices/{name}/{pk}/change/").status_code == 200
        assert admin.post(f"/admin/notices/{name}/{pk}/change/", {"subject": "x"}).status_code == 403
        assert admin.post(f"/admin/notices/{name}/{pk}/delete/", {"post": "yes"}).status_code == 403


def test_what_was_given_up_is_sent_again_once_it_is_mended(admin, receiver):
    row = Target.objects.create(name="x", kind="slack", address=receiver.url)
    receiver.answer = (410, {}, b"gone")
    admin.post(f"/admin/notices/target/{row.pk}/test/")
    send.sweep()
    assert Delivery.objects.get().state == "FAILED"
    receiver.answer = (200, {}, b"ok")
    admin.post("/admin/notices/target/", {"action": "again", "_selected_action": [row.pk]})
    assert send.sweep() == 1 and Delivery.objects.get().state == "SENT"
    assert AuditRow.objects.get(verb="target.again").actor == "ada"
