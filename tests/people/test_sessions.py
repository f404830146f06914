"""Log-ins that last: for how long, which there are, and every way in which they end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.password_validation import CommonPasswordValidator
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.test import Client

from healthboard import clock, config
from healthboard.audit.models import AuditRow
from healthboard.config import BadSetting
from healthboard.people import grants, passwords, sessions
from healthboard.people.models import Grant
from tests import factories

pytestmark = pytest.mark.django_db
LOGIN, AGAIN, MINE, PASSWORD = (f"/accounts/{name}/" for name in ("login", "again", "sessions", "password"))
NEW = "correct horse battery staple"


def browser(name: str, **extra) -> Client:
    client = Client(**extra)
    assert client.post(LOGIN, {"username": name, "password": factories.PASSWORD}).status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get(MINE).status_code == 200


@pytest.fixture
def otto():
    return factories.person("operator", name="otto")


@pytest.fixture
def bounded(settings):
    settings.SESSION_LONGEST, settings.SESSION_IDLE = 12 * 3600, 3600


def after(client: Client, minutes: float, **headers: str) -> bool:
    with clock.virtual(clock.now() + timedelta(minutes=minutes)):
        return client.get(MINE, headers=headers).status_code == 200


def test_every_log_in_and_every_one_anew_has_a_key_of_its_own(client, otto):
    client.get(LOGIN)
    session = client.session
    session["before"] = "planted"  # a session that somebody else may know
    session.save()
    planted = session.session_key
    client.post(LOGIN, {"username": "otto", "password": factories.PASSWORD})
    first = client.session.session_key
    assert first != planted and not Session.objects.filter(session_key=planted).exists()
    client.post(AGAIN, {"password": factories.PASSWORD})
    assert client.session.session_key != first and not Session.objects.filter(session_key=first).exists()
    assert len(first) >= 32


def test_a_log_in_ends_after_its_longest_time_however_busy_it_is(bounded, otto):
    client = browser("otto")
    now = clock.now()
    for minutes in range(55, 12 * 60, 55):
        with clock.virtual(now + timedelta(minutes=minutes)):
            assert is_in(client)
    with clock.virtual(now + timedelta(hours=12, minutes=1)):
        assert not is_in(client)
    assert not Session.objects.exists()


def test_a_log_in_ends_without_a_click_and_a_page_that_renews_itself_clicks_nothing(bounded, otto):
    poll = {"HX-Request": "true", "X-Shown": "x"}
    client, other, wall = browser("otto"), browser("otto"), browser("otto")
    now = clock.now()
    for minutes in (20, 40, 59):
        with clock.virtual(now + timedelta(minutes=minutes)):
            assert client.get("/", headers=poll).status_code == 200
            assert other.get("/", headers={**poll, "HX-Trigger": "filters"}).status_code == 200
            assert wall.get("/wall/", headers=poll).status_code == 200
    with clock.virtual(now + timedelta(minutes=61)):
        answer = client.get("/", headers=poll)
        assert answer.status_code == 401 and answer["HX-Redirect"].startswith(LOGIN)
        assert is_in(other) and is_in(wall)


def test_a_session_of_an_earlier_release_counts_from_now_on(bounded, client, otto):
    client.force_login(otto)
    assert after(client, 0) and after(client, 59) and not after(client, 59 + 61)


def test_how_long_is_said_by_the_environment(monkeypatch):
    assert config.sessions() == (None, None)
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    assert config.sessions() == (12 * 3600, 3600)
    monkeypatch.setenv("HEALTHBOARD_SESSION_HOURS", "8")
    monkeypatch.setenv("HEALTHBOARD_IDLE_MINUTES", "0")
    assert config.sessions() == (8 * 3600, None)
    for wrong in ("0", "25", "0.1"):
        monkeypatch.setenv("HEALTHBOARD_SESSION_HOURS", wrong)
        with pytest.raises(BadSetting, match="HEALTHBOARD_SESSION_HOURS"):
            config.sessions()


def test_people_see_their_own_sessions_and_end_them_with_a_fresh_log_in(otto):
    here, there, third = browser("otto"), browser("otto", REMOTE_ADDR="198.51.100.7"), browser("otto")
    factories.person("viewer", name="vera")
    vera = browser("vera")
    page = here.get(MINE).content.decode()
    assert page.count(">End it</button>") == 2 and "198.51.100.7" in page and "This one" in page
    keys = list(Session.objects.values_list("session_key", flat=True))
    assert not any(key in page for key in keys), "a session's key is its password"
    (row,) = (row for row in sessions.of(otto) if row.address == "198.51.100.7")
    with clock.virtual(clock.now() + timedelta(minutes=16)):
        answer = here.post(MINE, {"name": row.name})
        assert answer.status_code == 302 and answer.url == f"{AGAIN}?next={MINE}"
        assert is_in(there)
    assert here.post(MINE, {"name": row.name}).status_code == 303
    assert not is_in(there) and is_in(here) and is_in(third) and is_in(vera)
    assert here.post(MINE).status_code == 303
    assert not is_in(third) and is_in(here) and is_in(vera)
    told = AuditRow.objects.filter(verb="session.ended").order_by("pk").values_list("actor", "summary")
    assert list(told) == [("otto", "1 session of otto ended")] * 2


def test_nobody_ends_another_persons_session(otto):
    factories.person("viewer", name="vera")
    vera, mine = browser("vera"), browser("otto")
    (row,) = sessions.of(otto)
    assert vera.post(MINE, {"name": row.name}).status_code == 303
    assert is_in(mine)


def test_a_new_password_ends_every_other_session_and_takes_the_old_one(otto):
    here, there = browser("otto"), browser("otto")
    wrong = {"old_password": "not it at all", "new_password1": NEW, "new_password2": NEW}
    assert here.post(PASSWORD, wrong).status_code == 200 and is_in(there)
    answer = here.post(PASSWORD, {**wrong, "old_password": factories.PASSWORD})
    assert (answer.status_code, answer.url) == (302, MINE)
    assert is_in(here) and not is_in(there)
    assert AuditRow.objects.filter(verb="user.password", actor="otto").count() == 1
    assert Client().post(LOGIN, {"username": "otto", "password": factories.PASSWORD}).status_code == 200
    assert Client().post(LOGIN, {"username": "otto", "password": NEW}).status_code == 302


def test_the_old_password_cannot_be_guessed_on_the_way_to_a_new_one(otto):
    client = browser("otto")
    wrong = {"old_password": "not it at all", "new_password1": NEW, "new_password2": NEW}
    statuses = [client.post(PASSWORD, wrong).status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    assert client.post(PASSWORD, {**wrong, "old_password": factories.PASSWORD}).status_code == 429


@pytest.mark.parametrize(
    "password",
    [
        "short",
        "ottootto1234",
        "healthboard2026!",
        "Nvidia-Cluster-1",
        "password1234",
        "qwertyuiop123",
        "otto.otto.otto",
    ],
)
def test_a_password_that_everybody_could_guess_is_refused(otto, password):
    client = browser("otto")
    sent = {"old_password": factories.PASSWORD, "new_password1": password, "new_password2": password}
    assert client.post(PASSWORD, sent).status_code == 200
    otto.refresh_from_db()
    assert otto.check_password(factories.PASSWORD)


@pytest.mark.parametrize(
    "password", ["только кириллица тут", "no digits or capitals here", " leading and trailing ", "x9" * 64]
)
def test_a_password_of_any_kind_and_length_is_taken_as_it_is(otto, password):
    client = browser("otto")
    sent = {"old_password": factories.PASSWORD, "new_password1": password, "new_password2": password}
    assert client.post(PASSWORD, sent).status_code == 302
    otto.refresh_from_db()
    assert otto.check_password(password) and not otto.check_password(password.strip() + "x")
    assert not otto.check_password(password[:72]) or len(password) <= 72


def test_a_longer_list_of_passwords_is_taken_from_a_file(monkeypatch, tmp_path):
    path = tmp_path / "breached.txt"
    path.write_text("an unlikely long one\n")
    assert config.password_list() == {}
    monkeypatch.setenv("HEALTHBOARD_PASSWORD_LIST", str(path))
    validator = CommonPasswordValidator(**config.password_list())
    with pytest.raises(ValidationError):
        validator.validate("An Unlikely Long One")
    monkeypatch.setenv("HEALTHBOARD_PASSWORD_LIST", str(tmp_path / "none"))
    with pytest.raises(BadSetting, match="HEALTHBOARD_PASSWORD_LIST"):
        config.password_list()


def test_who_is_switched_off_is_out_and_stays_out_when_switched_on_again(otto):
    factories.person("admin", name="ada")
    grants.sync(factories.person("admin", name="ada2"))
    grants.sync(ada := type(otto).objects.get(username="ada"))
    client, admin = browser("otto"), browser("ada")
    form = {"username": "otto", "first_name": "", "last_name": "", "email": ""}
    address = f"/admin/auth/user/{otto.pk}/change/"
    assert admin.post(address, form).status_code == 302
    otto.refresh_from_db()
    assert not otto.is_active and not is_in(client)
    assert admin.post(address, {**form, "is_active": "on"}).status_code == 302
    otto.refresh_from_db()
    assert otto.is_active and not is_in(client) and is_in(admin) and ada.is_active


def test_an_admin_ends_every_session_of_a_person(otto):
    grants.sync(factories.person("admin", name="ada"))
    client, other, admin = browser("otto"), browser("otto"), browser("ada")
    sent = {"action": "end_sessions", "_selected_action": [otto.pk]}
    assert admin.post("/admin/auth/user/", sent).status_code == 302
    assert not is_in(client) and not is_in(other) and is_in(admin)
    row = AuditRow.objects.get(verb="session.ended")
    assert (row.actor, row.summary) == ("ada", "2 sessions of otto ended")


def test_logging_out_ends_the_session_for_good_and_clears_what_the_browser_kept(otto):
    client = browser("otto")
    stolen = Client()
    stolen.cookies = client.cookies.copy()
    assert is_in(stolen)
    answer = client.post("/accounts/logout/")
    assert answer["Clear-Site-Data"] == '"cache", "storage"' and not is_in(client) and not is_in(stolen)


def test_local_passwords_can_be_switched_off(otto, settings, monkeypatch):
    client = browser("otto")
    settings.LOCAL_LOGIN = False
    assert 'name="password"' not in Client().get(LOGIN).content.decode()
    assert Client().post(LOGIN, {"username": "otto", "password": factories.PASSWORD}).status_code == 403
    assert client.post(AGAIN, {"password": factories.PASSWORD}).status_code == 403
    from healthboard.people.oidc import config as oidc

    monkeypatch.setenv("HEALTHBOARD_LOCAL_LOGIN", "off")
    with pytest.raises(BadSetting, match="lets nobody in"):
        oidc.local()
    monkeypatch.setenv("HEALTHBOARD_OIDC_ISSUER", "https://id.example.com")
    assert oidc.local() is False


def test_an_admins_own_password_takes_the_old_one_in_the_admin_too():
    """Whoever sits at an open browser must not make the log-in theirs, nor guess the old password without a limit."""
    ada = factories.person("admin", name="ada")
    grants.sync(ada)
    client = browser("ada")
    sent = {"password1": NEW, "password2": NEW, "usable_password": "true"}
    for number in (str(ada.pk), f"0{ada.pk}"):
        answer = client.post(f"/admin/auth/user/{number}/password/", sent)
        assert (answer.status_code, answer.url) == (302, PASSWORD)
    for _ in range(2):
        guess = {"old_password": factories.PASSWORD, "new_password1": NEW, "new_password2": NEW}
        answer = client.post("/admin/password_change/", guess)
        assert (answer.status_code, answer.url) == (302, PASSWORD)
    ada.refresh_from_db()
    assert ada.check_password(factories.PASSWORD)


@pytest.mark.parametrize("how", ["made", "set anew"])
def test_a_password_that_an_admin_chose_lets_in_to_choose_another_alone(how, otto):
    grants.sync(factories.person("admin", name="ada"))
    admin, name, first = browser("ada"), "otto" if how == "set anew" else "nina", "a first one for you"
    sent = {"password1": first, "password2": first, "usable_password": "true"}
    address = f"/admin/auth/user/{otto.pk}/password/" if how == "set anew" else "/admin/auth/user/add/"
    assert admin.post(address, sent if how == "set anew" else {**sent, "username": name}).status_code == 302
    person = type(otto).objects.get(username=name)
    Grant.objects.get_or_create(user=person, role="operator")
    client = Client()
    assert client.post(LOGIN, {"username": name, "password": first}).status_code == 302
    for path in ("/", "/fleet/", "/api/v1/cases", MINE):
        answer = client.get(path)
        assert (answer.status_code, answer.url) == (302, PASSWORD)
    page = client.get(PASSWORD).content.decode()
    assert "Somebody else chose your password" in page and 'action="/accounts/logout/"' in page
    assert not [word for word in ('id="frame"', "Stop now", "/fleet/", "/system/", 'role="search"') if word in page]
    same = {"old_password": first, "new_password1": first, "new_password2": first}
    assert client.post(PASSWORD, same).status_code == 200 and not is_in(client)
    assert client.post(PASSWORD, {**same, "new_password1": NEW, "new_password2": NEW}).status_code == 302
    assert is_in(client)
    again = Client()
    again.post(LOGIN, {"username": name, "password": NEW})
    assert is_in(again) and is_in(admin)


def test_a_password_that_an_admin_chose_is_good_for_a_week(otto):
    passwords.given(otto)
    client = Client()
    sent = {"username": "otto", "password": factories.PASSWORD}
    with clock.virtual(clock.now() + timedelta(days=7, minutes=1)):
        answer = client.post(LOGIN, sent)
        assert answer.status_code == 200 and "ask an admin for another one" in answer.content.decode()
    assert client.post(LOGIN, sent).status_code == 302
