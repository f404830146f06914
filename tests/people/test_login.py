from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.people import limits
from healthboard.people.models import FailedLogin, Grant
from healthboard.people.sandbox import ensure_sandbox_people
from healthboard.people.web import AUTH_AT, actor_of
from tests import factories

pytestmark = pytest.mark.django_db
LOGIN, AGAIN = "/accounts/login/", "/accounts/again/"


def log_in(client, name, password=factories.PASSWORD, **extra):
    return client.post(LOGIN, {"username": name, "password": password, **extra})


def actor(client, settings):
    from django.test import RequestFactory

    request = RequestFactory().get("/")
    request.session, request.user = client.session, get_user_model().objects.get(pk=client.session["_auth_user_id"])
    return actor_of(request)


def test_a_log_in_is_stamped_and_on_record(client, settings):
    user = factories.person("operator", name="otto")
    assert log_in(client, "otto", next="/system/").url == "/system/"
    who = actor(client, settings)
    assert (who.name, who.user, who.recent, who.via) == ("otto", user, True, "web")
    assert AuditRow.objects.get(verb="login").actor == "otto"


def test_each_wrong_password_is_logged_and_no_name_that_may_be_one(client, caplog):
    factories.person("operator", name="otto")
    with caplog.at_level("WARNING", "healthboard.people.limits"):
        log_in(client, "OTTO", "not it")
        log_in(client, "correct horse battery", "otto")
    assert [record.getMessage() for record in caplog.records] == [
        "a wrong password for otto from 127.0.0.1",
        "a wrong password for a name that nobody has from 127.0.0.1",
    ]


def test_a_log_in_is_recent_for_a_quarter_of_an_hour(client, settings):
    factories.person("operator", name="otto")
    log_in(client, "otto")
    for minutes, recent in ((14, True), (16, False), (-1, False)):
        with clock.virtual(clock.now() + timedelta(minutes=minutes)):
            assert actor(client, settings).recent is recent


def test_a_session_without_a_stamp_is_not_recent(client, settings):
    client.force_login(factories.person("operator"))
    assert actor(client, settings).recent is False


def test_a_log_in_never_leads_to_another_site(client):
    factories.person("operator", name="otto")
    assert log_in(client, "otto", next="https://evil.example/").url == "/"


def test_logging_in_again_renews_the_stamp_and_returns(client, settings):
    client.force_login(factories.person("operator"))
    assert client.get(f"{AGAIN}?next=/system/").status_code == 200
    wrong = client.post(AGAIN, {"password": "wrong", "next": "/system/"})
    assert wrong.status_code == 200 and not actor(client, settings).recent
    right = client.post(AGAIN, {"password": factories.PASSWORD, "next": "/system/"})
    assert right.url == "/system/" and actor(client, settings).recent
    elsewhere = client.post(AGAIN, {"password": factories.PASSWORD, "next": "//evil.example/"})
    assert elsewhere.url == "/"


def test_again_is_for_people_who_are_logged_in(client):
    assert client.get(AGAIN).url.startswith(LOGIN)


def test_guessing_is_stopped_but_the_person_is_not_locked_out_elsewhere(client):
    factories.person("operator", name="otto")
    for _ in range(limits.PER_NAME):
        assert log_in(client, "otto", "wrong").status_code == 200
    stopped = log_in(client, "OTTO")
    assert stopped.status_code == 429 and "Too many wrong passwords" in stopped.content.decode()
    assert AuditRow.objects.filter(verb="login.limited").count() == 1
    answer = client.post(LOGIN, {"username": "otto", "password": factories.PASSWORD}, REMOTE_ADDR="10.9.8.7")
    assert answer.status_code == 302


@pytest.mark.parametrize("name", ["otto ", " \t otto", "OTTO", "\uff4ftto", "otto" + " " * 200])
def test_a_name_that_is_written_otherwise_is_not_another_one(client, name):
    """The form reads all of these as the same person."""
    factories.person("operator", name="otto")
    answer = client.post(LOGIN, {"username": name, "password": factories.PASSWORD})
    assert answer.status_code == (200 if name == "OTTO" else 302), "names are told apart by their case"
    client.logout()
    client.cookies.clear()
    for _ in range(limits.PER_NAME):
        limits.failed(name, "127.0.0.1")
    assert log_in(client, "otto").status_code == 429


def test_the_limit_ends_after_a_quarter_of_an_hour(client):
    factories.person("operator", name="otto")
    for _ in range(limits.PER_NAME):
        limits.failed("otto", "127.0.0.1")
    assert limits.limited("otto", "127.0.0.1")
    with clock.virtual(clock.now() + timedelta(minutes=16)):
        assert not limits.limited("otto", "127.0.0.1")
        limits.failed("otto", "127.0.0.1")
        assert limits.wait_until("otto", "127.0.0.1") == clock.now() + 2 * limits.WINDOW, "each further one doubles it"
    with clock.virtual(clock.now() + timedelta(hours=25)):
        assert not limits.limited("otto", "127.0.0.1")
        limits.failed("other", "127.0.0.1")
        assert FailedLogin.objects.count() == 1


def test_a_delay_never_grows_beyond_four_hours():
    for _ in range(60):
        limits.failed("otto", "10.0.0.1")
    assert limits.wait_until("otto", "10.0.0.1") <= clock.now() + limits.LONGEST


def test_strangers_everywhere_do_not_lock_out_who_has_been_here_before(client):
    factories.person("operator", name="otto")
    log_in(client, "otto")
    client.post("/accounts/logout/")
    for number in range(limits.PER_ACCOUNT):
        limits.failed("otto", f"10.0.{number}.1")
    for _ in range(limits.PER_ADDRESS):
        limits.failed(f"somebody-{_}", "127.0.0.1")
    assert AuditRow.objects.filter(verb="login.limited", summary__contains="many places").count() == 1
    other = Client()
    refused = other.post(LOGIN, {"username": "otto", "password": factories.PASSWORD}, REMOTE_ADDR="10.1.1.1")
    assert refused.status_code == 429, "a new browser waits, though the password is right"
    assert log_in(client, "otto").status_code == 302, "the browser that is known does not"


def test_a_mark_is_one_persons_and_cannot_be_made_up(client, rf, settings):
    factories.person("operator", name="otto")
    log_in(client, "otto")
    raw = client.cookies[settings.KNOWN_COOKIE_NAME].value
    request = rf.get("/")
    request.COOKIES[settings.KNOWN_COOKIE_NAME] = raw
    assert limits.origin_of(request, "OTTO").startswith("known:")
    assert limits.origin_of(request, "ada") == "127.0.0.1"
    for wrong in (raw[:-2], "x", ""):
        request.COOKIES[settings.KNOWN_COOKIE_NAME] = wrong
        assert limits.origin_of(request, "otto") == "127.0.0.1"


def test_a_known_browser_is_limited_by_itself(client):
    factories.person("operator", name="otto")
    log_in(client, "otto")
    client.post("/accounts/logout/")
    for _ in range(limits.PER_NAME):
        assert log_in(client, "otto", "wrong").status_code == 200
    assert log_in(client, "otto").status_code == 429


def test_a_right_password_forgets_the_wrong_ones(client):
    factories.person("operator", name="otto")
    log_in(client, "otto", "wrong")
    log_in(client, "otto")
    assert not FailedLogin.objects.exists()


def test_behind_a_proxy_the_address_is_the_one_that_the_proxy_saw(rf, settings):
    request = rf.get("/", HTTP_X_FORWARDED_FOR="1.1.1.1, 2.2.2.2", REMOTE_ADDR="10.0.0.1")
    settings.SANDBOX = False
    assert limits.address_of(request) == "2.2.2.2"
    settings.SANDBOX = True
    assert limits.address_of(request) == "10.0.0.1"


@pytest.mark.parametrize(
    "said", ["known:x", "fe80::1%known:x", "", "unknown", "1.1.1.1, known:", "x" * 300, "1.2.3.4:5"]
)
def test_what_is_no_address_is_not_taken_for_one(rf, settings, said):
    settings.SANDBOX = False
    request = rf.get("/", HTTP_X_FORWARDED_FOR=said, REMOTE_ADDR="10.0.0.1")
    assert limits.address_of(request) == limits.origin_of(request, "otto") == "10.0.0.1"


def test_one_address_is_counted_once_however_it_is_written(rf, settings):
    settings.SANDBOX = False
    for said in ("2001:DB8:0:0::1", " 2001:db8::1"):
        assert limits.address_of(rf.get("/", HTTP_X_FORWARDED_FOR=said)) == "2001:db8::1"


def test_a_whole_network_of_ipv6_is_one_place(client, settings, rf):
    """Who has one address of it has 2⁶⁴: counted one by one no limit of an address would ever hold."""
    settings.SANDBOX = False
    for number in range(limits.PER_ADDRESS):
        limits.failed(
            f"name{number}", limits.origin_of(rf.get("/", HTTP_X_FORWARDED_FOR=f"2001:db8:0:1::{number:x}"), "x")
        )
    factories.person("operator", name="otto")

    def status(address):
        sent = {"username": "otto", "password": factories.PASSWORD}
        return Client().post(LOGIN, sent, HTTP_X_FORWARDED_FOR=address).status_code

    assert status("2001:db8:0:1:ffff::1") == 429 and status("2001:db8:0:2::1") == 302
    request = rf.get("/", HTTP_X_FORWARDED_FOR="::ffff:192.0.2.7")
    assert limits.origin_of(request, "x") == limits.address_of(request) == "192.0.2.7"
    assert limits.address_of(rf.get("/", HTTP_X_FORWARDED_FOR="2001:db8:0:1::7")) == "2001:db8:0:1::7", "as it is told"


def test_a_made_up_header_does_not_switch_the_limits_off(client, settings):
    factories.person("operator", name="otto")
    settings.SANDBOX = False
    for number in range(limits.PER_NAME):
        client.post(LOGIN, {"username": "otto", "password": "wrong"}, HTTP_X_FORWARDED_FOR=f"known:{number}")
    answer = client.post(
        LOGIN, {"username": "otto", "password": factories.PASSWORD}, HTTP_X_FORWARDED_FOR="known:another"
    )
    assert answer.status_code == 429


def test_a_name_that_no_database_can_keep_is_a_wrong_one(client):
    answer = log_in(client, "otto\0")
    assert answer.status_code == 200 and "That name and password do not match" in answer.content.decode()
    assert FailedLogin.objects.get().name == "otto"


def test_logging_out_takes_a_post(client):
    client.force_login(factories.person("operator"))
    assert client.get("/accounts/logout/").status_code == 405
    assert client.post("/accounts/logout/").status_code == 302 and "_auth_user_id" not in client.session


def test_the_sandbox_has_four_people_with_their_roles(client):
    names = ensure_sandbox_people("a long password")
    hashed = set(get_user_model().objects.values_list("password", flat=True))
    assert ensure_sandbox_people("a long password") == names == ["viewer", "operator", "approver", "admin"]
    assert {u.password for u in get_user_model().objects.all()} == hashed and len(hashed) == 1, "hashed once"
    assert Grant.objects.count() == 4
    users = {u.username: u for u in get_user_model().objects.all()}
    assert [n for n, u in users.items() if u.is_staff] == ["admin"] and not any(u.is_superuser for u in users.values())
    assert log_in(client, "operator", "a long password").status_code == 302
    ensure_sandbox_people("another password")
    assert get_user_model().objects.get(username="viewer").check_password("another password")


def test_the_sandboxs_people_do_not_exist_in_aws_mode(settings):
    settings.SANDBOX = False
    with pytest.raises(RuntimeError):
        ensure_sandbox_people("a long password")
    assert not get_user_model().objects.exists()


def test_the_admins_own_log_in_page_leads_to_the_one_with_limits(client):
    assert client.get("/admin/login/?next=/admin/").url == "/accounts/login/?next=/admin/"
    assert client.post("/admin/login/", {"username": "x", "password": "y"}).status_code == 302
    assert AUTH_AT not in client.session
