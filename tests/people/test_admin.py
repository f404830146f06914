from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.urls import reverse

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.people import grants, tokens
from healthboard.people.models import ApiToken, Grant
from healthboard.people.web import AUTH_AT
from healthboard.repairs.models import Pause
from tests import factories

pytestmark = pytest.mark.django_db
User = get_user_model()


@pytest.fixture
def admin(client):
    user = factories.person("admin", name="ada")
    grants.sync(user)
    client.force_login(user)
    logged_in(client, minutes=0)
    return user


def logged_in(client, minutes):
    session = client.session
    session[AUTH_AT] = (clock.now() - timedelta(minutes=minutes)).isoformat()
    session.save()


def last(verb):
    return AuditRow.objects.filter(verb=verb).latest("pk")


def test_a_person_is_made_given_a_role_and_audited(client, admin):
    data = {
        "username": "otto",
        "password1": "a long password",
        "password2": "a long password",
        "usable_password": "true",
    }
    assert client.post("/admin/auth/user/add/", data).status_code == 302
    otto = User.objects.get(username="otto")
    assert (last("user.made").actor, last("user.made").via) == ("ada", "admin")
    client.post(
        "/admin/people/grant/add/", {"user": otto.pk, "role": "admin", "account": "", "region": "", "pool": "train"}
    )
    otto.refresh_from_db()
    assert otto.is_staff and not otto.is_superuser
    assert last("grant.given").summary == "otto: admin for train"
    grant = Grant.objects.get(user=otto)
    client.post(reverse("admin:people_grant_delete", args=[grant.pk]), {"post": "yes"})
    otto.refresh_from_db()
    assert not otto.is_staff and last("grant.taken").summary == "otto: admin for train taken"


def test_nobody_is_made_a_superuser(client, admin):
    otto = factories.person("operator", name="otto")
    where = reverse("admin:auth_user_change", args=[otto.pk])
    page = client.get(where).content.decode()
    assert "is_superuser" not in page and "user_permissions" not in page
    client.post(
        where, {"username": "otto", "is_active": "on", "is_superuser": "on", "is_staff": "on", "email": "o@x.org"}
    )
    otto.refresh_from_db()
    assert otto.email == "o@x.org" and not otto.is_superuser and not otto.is_staff


def test_a_new_password_is_on_record(client, admin):
    otto = factories.person("operator", name="otto")
    data = {"password1": "another password", "password2": "another password", "usable_password": "true"}
    client.post(reverse("admin:auth_user_password_change", args=[otto.pk]), data)
    otto.refresh_from_db()
    assert otto.check_password("another password") and last("user.changed").subject == f"user:{otto.pk}"


def test_the_record_keeps_the_name_of_a_person_who_is_gone(client, admin):
    otto = factories.person("operator", name="otto")
    tokens.issue_api(otto, actor=factories.actor(otto))
    client.post(reverse("admin:auth_user_delete", args=[otto.pk]), {"post": "yes"})
    assert not User.objects.filter(username="otto").exists()
    row = AuditRow.objects.get(verb="token.issued")
    assert row.actor == "otto"
    text = client.get(reverse("admin:audit_auditrow_change", args=[row.pk])).content.decode()
    assert "otto" in text and "not sealed yet" in text
    assert last("user.deleted").summary == "user otto deleted"


def test_the_last_admin_stays(client, admin):
    client.post(reverse("admin:auth_user_delete", args=[admin.pk]), {"post": "yes"})
    client.post(reverse("admin:people_grant_delete", args=[admin.grants.get().pk]), {"post": "yes"})
    client.post(reverse("admin:auth_user_change", args=[admin.pk]), {"username": "ada"})
    client.post(
        reverse("admin:people_grant_change", args=[admin.grants.get().pk]), {"user": admin.pk, "role": "viewer"}
    )
    admin.refresh_from_db()
    assert admin.is_active and admin.grants.get().role == "admin"


def test_an_admin_of_one_pool_gives_roles_in_that_pool_only(client):
    user = factories.person("admin", name="pia", pool="train")
    grants.sync(user)
    client.force_login(user)
    logged_in(client, minutes=0)
    otto = factories.person("", name="otto")
    add = "/admin/people/grant/add/"
    refused = client.post(add, {"user": otto.pk, "role": "admin", "pool": ""})
    assert "not for everything" in refused.content.decode()
    client.post(add, {"user": otto.pk, "role": "operator", "pool": "train"})
    assert Grant.objects.get(user=otto).pool == "train"
    assert client.get("/admin/auth/user/add/").status_code == 403
    assert client.get("/admin/people/apitoken/").status_code == 403


def test_with_an_old_log_in_nobody_makes_a_way_to_a_fresh_one(client, admin):
    """A stolen session: no log-in, password, role or token that would outlive it, or do what it may not."""
    otto = factories.person("operator", name="otto")
    grant, users, before = otto.grants.get(), set(User.objects.all()), otto.password
    token = tokens.issue_api(admin, actor=factories.actor(admin))
    logged_in(client, minutes=16)
    password = {"password1": "a long password", "password2": "a long password", "usable_password": "true"}
    form = {"username": "otto", "is_active": "on", "email": "thief@example.com"}
    role = {"user": otto.pk, "role": "approver", "account": "", "region": "", "pool": ""}
    for path, sent in (
        ("auth/user/add/", {**password, "username": "nina"}),
        (f"auth/user/{otto.pk}/password/", password),
        (f"auth/user/{otto.pk}/change/", form),
        (f"auth/user/{otto.pk}/delete/", {"post": "yes"}),
        ("auth/user/", {"action": "delete_selected", "_selected_action": [otto.pk], "post": "yes"}),
        ("auth/user/", {"action": "end_sessions", "_selected_action": [otto.pk]}),
        ("auth/group/add/", {"name": "sre"}),
        ("people/grant/add/", role),
        (f"people/grant/{grant.pk}/change/", role),
        (f"people/grant/{grant.pk}/delete/", {"post": "yes"}),
        ("people/grant/", {"action": "delete_selected", "_selected_action": [grant.pk], "post": "yes"}),
        ("people/apitoken/add/", {**NEW, "scope": "all"}),
    ):
        answer = client.post(f"/admin/{path}", sent)
        assert (answer.status_code, answer.url.partition("?")[0]) == (303, "/accounts/again/"), path
        if path.endswith(("add/", "password/", "change/")):
            assert "/accounts/again/" in client.get(f"/admin/{path}").url, path
    otto.refresh_from_db()
    assert set(User.objects.all()) == users and otto.password == before and not otto.email
    assert list(otto.grants.values_list("role", flat=True)) == ["operator"] and not Group.objects.exists()
    client.post("/admin/people/apitoken/", {"action": "revoke", "_selected_action": [ApiToken.objects.get().pk]})
    assert tokens.verify_api(token) is None, "to take one away is never held up"


def test_a_token_is_revoked_from_its_list(client, admin):
    token = tokens.issue_api(admin, actor=factories.actor(admin))
    row = ApiToken.objects.get()
    client.post("/admin/people/apitoken/", {"action": "revoke", "_selected_action": [row.pk]})
    assert tokens.verify_api(token) is None and last("token.revoked").actor == "ada"


NEW = {
    "name": "ci",
    "scope": "read",
    "days": "30",
    "account": "",
    "region": "",
    "pool": "train",
    "service": "",
    "purpose": "",
}


def issued(client, **changed):
    return client.post("/admin/people/apitoken/add/", {**NEW, **changed})


def test_a_token_of_a_service_is_issued_and_shown_once(client, admin):
    page = issued(client, service="ci-bot", purpose="reads the board for the deploy")
    row = ApiToken.objects.get()
    token = page.context["token"]
    assert token in page.content.decode() and "no-store" in page["Cache-Control"]
    assert tokens.verify_api(token).username == "ci-bot" and not row.user.has_usable_password()
    assert (row.scope, row.pool, row.created_by) == ("read", "train", "ada") and row.expires_at is not None
    assert token not in client.get("/admin/people/apitoken/").content.decode()
    assert "ci-bot" in client.get("/admin/people/serviceaccount/").content.decode()
    issued(client, service="CI-bot")
    assert ApiToken.objects.filter(user=row.user).count() == 2, "the same one, whatever the case"


def test_no_token_is_made_in_another_persons_name(client, admin):
    factories.person("approver", name="anna")
    refused = issued(client, service="anna")
    assert "anna is a person" in refused.content.decode() and not ApiToken.objects.exists()
    assert "Say what the new service account is for" in issued(client, service="bot").content.decode()
    for wrong in ({"days": "0"}, {"scope": "god"}, {"name": ""}, {"service": "a b", "purpose": "x"}):
        assert issued(client, **wrong).status_code == 200
    assert not ApiToken.objects.exists() and not User.objects.filter(username="bot").exists()
    assert tokens.verify_api(issued(client).context["token"]) == admin


def pause(**changed):
    until = clock.now() + timedelta(hours=2)
    data = {"scope_kind": "pool", "scope": "infer", "account": "", "region": "", "reason": "roll-out"}
    return {**data, "until": f"{until:%Y-%m-%dT%H:%M}", **changed}


def test_a_pause_is_set_and_ended(client, admin):
    assert client.post("/admin/repairs/pause/add/", pause()).status_code == 302
    row = Pause.objects.get()
    assert (row.set_by, row.set_by_user, row.scope) == ("ada", admin, "infer") and last("pause.set").actor == "ada"
    page = client.get(reverse("admin:repairs_pause_change", args=[row.pk])).content.decode()
    assert 'name="_save"' not in page
    client.post("/admin/repairs/pause/", {"action": "end", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert row.ended_by == "ada"


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"scope": ""}, "Name the pool to pause"),
        ({"scope_kind": "fleet"}, "has no name"),
        ({"until": "2020-01-01T00:00"}, "must end in the future"),
        ({"reason": ""}, "This field is required"),
    ],
)
def test_a_pause_that_makes_no_sense_is_refused_in_words(client, admin, changed, words):
    assert words in client.post("/admin/repairs/pause/add/", pause(**changed)).content.decode()
    assert not Pause.objects.exists()


READ_ONLY = ["cases/case", "cases/decision", "cases/evidence", "repairs/repair", "repairs/step", "repairs/call",
             "repairs/occupancy", "repairs/breaker", "audit/auditrow", "fleet/instance", "fleet/gpu", "fleet/pool",
             "fleet/cluster", "fleet/account", "fleet/source", "fleet/workload", "fleet/task", "fleet/healthevent"]  # fmt: skip


@pytest.mark.parametrize("path", READ_ONLY)
def test_what_the_system_writes_is_only_seen(client, admin, path):
    on = factories.instance()
    factories.gpus(on, 1)
    factories.event(on)
    case, repair = factories.case(on), factories.repair(on)
    factories.decision(case, admin)
    [step] = factories.steps(repair, "drain")
    factories.call(step)
    factories.occupancy(repair)
    factories.breaker()
    factories.audit("test", "a row", by=factories.actor(admin))
    model = path.split("/")[1]
    listed = client.get(f"/admin/{path}/")
    assert listed.status_code == 200 and f"/admin/{path}/add/" not in listed.content.decode()
    assert client.get(f"/admin/{path}/add/").status_code == 403
    rows = listed.context["cl"].result_list
    for row in rows:
        where = f"/admin/{path}/{row.pk}/"
        page = client.get(f"{where}change/")
        assert page.status_code == 200, model
        assert not {"_save", "_continue", "deletelink"} & set(page.content.decode().replace('"', " ").split())
        assert client.post(f"{where}change/", {"state": "CLOSED", "summary": "x"}).status_code == 403
        assert client.post(f"{where}delete/", {"post": "yes"}).status_code == 403
    if model not in ("source", "workload", "task", "evidence"):
        assert rows
