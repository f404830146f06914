import re

import pytest
from django.urls import reverse

from healthboard.people.web import AUTH_AT
from healthboard.policies import versions
from healthboard.policies.fields import SETTINGS
from healthboard.policies.models import Policy, PolicyVersion
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def default():
    return versions.ensure_default()


def log_in(client, role, *, fresh=True, **scope):
    from healthboard import clock
    from healthboard.people import grants

    user = factories.person(role, **scope)
    grants.sync(user)
    client.force_login(user)
    session = client.session
    if fresh:
        session[AUTH_AT] = clock.now().isoformat()
        session.save()
    return user


@pytest.fixture
def admin(client):
    return log_in(client, "admin")


def form(**changed):
    data = {"name": "llm", "enabled": "on", "account": "", "region": "", "cluster": "", "pool": "", "workload": "llm-train",
            "tags_text": "", "reason": "new service", **{f"s_{s.name}": "" for s in SETTINGS}}  # fmt: skip
    return {**data, **changed}


ADD = "/admin/policies/policy/add/"


def test_a_newcomer_makes_a_policy_for_one_service(client, admin):
    page = client.get(ADD).content.decode()
    assert "inherited: auto (built-in default)" in page and "Write 90 s, 5 min, 4 h or 1 d." in page
    assert "inherited: 20 % (built-in default)" in page
    answer = client.post(
        ADD,
        form(s_mode_hardware="ask", s_budget_share="10 %", s_drain_timeout_s="2 h", s_codes="XID_119: observe"),
        follow=True,
    )
    assert (
        "Version 1. For the workload llm-train: clear hardware failures are put before a person"
        in answer.content.decode()
    )
    assert "No instance matches it now: is a name or a tag mistyped?" in answer.content.decode()
    policy = Policy.objects.get(name="llm")
    assert policy.settings == {
        "mode_hardware": "ask", "budget_share": 0.1, "drain_timeout_s": 7200, "codes": {"XID_119": {"mode": "observe"}},
    }  # fmt: skip
    assert (policy.current.saved_by, policy.current.reason) == (admin, "new service")


def test_the_form_shows_what_was_saved_and_a_second_save_makes_a_second_version(client, admin):
    client.post(
        ADD, form(s_undo_s="1 min", s_ladder="REPLACE", s_auto_resolve="no", s_notify="llm, sre", tags_text="team=x")
    )
    policy = Policy.objects.get(name="llm")
    where = reverse("admin:policies_policy_change", args=[policy.pk])
    page = client.get(where)
    shown = page.context["adminform"].form
    data = {name: shown[name].value() for name in shown.fields}
    assert data["s_undo_s"] == "1 min" and data["tags_text"] == "team=x"
    sent = {name: value for name, value in data.items() if value is not None}
    client.post(where, {**form(**sent), "s_undo_s": "2 min", "reason": "slower"})
    policy.refresh_from_db()
    assert policy.current.number == 2
    assert policy.settings == {"undo_s": 120, "ladder": ["REPLACE"], "auto_resolve": False, "notify": ["llm", "sre"]}
    history = client.get(where).content.decode()
    assert "Version 2" in history and "Undo time: 1 min → 2 min" in history


def test_no_limit_and_inherited_are_different_things(client, admin):
    client.post(ADD, form(name="pool", workload="", pool="train", s_budget_absolute="2"))
    client.post(ADD, form(s_budget_absolute="no limit", pool="train"))
    policy = Policy.objects.get(name="llm")
    assert policy.settings == {"budget_absolute": None}
    page = client.get(reverse("admin:policies_policy_change", args=[policy.pk])).content.decode()
    assert page.count('value="no limit"') == 1 and 'placeholder="inherited: 2 (pool)"' in page
    page = client.get(ADD).content.decode()
    assert 'placeholder="inherited: no limit (built-in default)"' in page


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"s_mode_hardware": "ask", "s_mode_ambiguous": "auto"}, "while clear failures are asked about"),
        ({"s_mode_ambiguous": "auto", "s_tries_24h": "0"}, "Repairing without a person needs"),
        ({"s_tries_24h": "0"}, "With what it inherits: Repairing without a person needs"),
        ({"s_codes": "XID_79: observe REPLACE"}, "contradict each other"),
        ({"s_checkpoint": "no-such-hook"}, "There is no webhook called no-such-hook"),
        ({"s_windows": "Mon-Fri 22:00-06:00"}, "Line 1: “Mon-Fri 22:00-06:00” names no time zone"),
        ({"s_codes": "XID_79 ask"}, "Line 1: write a code, a colon"),
        ({"s_codes": "WARP_CORE: ask"}, "WARP_CORE: there is no such code"),
        ({"s_undo_s": "soon"}, "“soon” is not a duration"),
        ({"s_budget_share": "80"}, "between 1 % and 50 %"),
        ({"workload": ""}, "Say whom it matches"),
        ({"tags_text": "team"}, "write key=value"),
        ({"account": "12"}, "twelve digits"),
        ({"reason": ""}, "This field is required"),
        ({"name": "Fleet default"}, "already"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words_at_its_field(client, admin, changed, words):
    answer = client.post(ADD, form(**changed))
    assert answer.status_code == 200
    errors = answer.context["adminform"].form.errors
    assert any(words in sentence for sentences in errors.values() for sentence in sentences), errors
    assert "__all__" not in errors
    assert Policy.objects.count() == 1


@pytest.mark.parametrize("number", ["²", "٣", "9" * 5000, "x"])
def test_a_form_of_no_policy_is_said_in_words_as_of_a_new_one(client, admin, number):
    said = client.post("/admin/policies/policy/words/", form(_policy=number, s_mode_hardware="observe"))
    assert said.status_code == 200 and "the workload llm-train" in said.content.decode()


def test_a_form_can_be_said_in_words_without_saving(client, admin):
    words = client.post("/admin/policies/policy/words/", form(s_mode_hardware="observe", s_mode_ambiguous="observe"))
    assert "Nothing is ever repaired." in words.content.decode()
    refused = client.post(
        "/admin/policies/policy/words/", form(s_mode_hardware="ask", s_mode_ambiguous="auto", reason="")
    )
    assert "It cannot be saved like this" in refused.content.decode()
    assert Policy.objects.count() == 1


def test_the_default_can_be_edited_but_neither_narrowed_nor_deleted(client, admin, default):
    where = reverse("admin:policies_policy_change", args=[default.pk])
    page = client.get(where).content.decode()
    assert "Whom it matches" not in page
    client.post(where, {**form(name="Fleet default", s_mode_hardware="observe"), "workload": "llm"})
    default.refresh_from_db()
    assert default.settings == {"mode_hardware": "observe"} and default.workload == "" and default.enabled
    assert client.post(reverse("admin:policies_policy_delete", args=[default.pk]), {"post": "yes"}).status_code == 403
    client.post(
        "/admin/policies/policy/", {"action": "delete_selected", "_selected_action": [default.pk], "post": "yes"}
    )
    assert Policy.objects.filter(pk=default.pk).exists()


def test_a_used_policy_is_disabled_when_it_is_deleted(client, admin):
    client.post(ADD, form())
    policy = Policy.objects.get(name="llm")
    factories.case(policy_version=policy.current)
    answer = client.post(reverse("admin:policies_policy_delete", args=[policy.pk]), {"post": "yes"}, follow=True)
    assert "was disabled, not deleted" in answer.content.decode()
    policy.refresh_from_db()
    assert not policy.enabled


def test_copy_makes_a_policy_that_is_switched_off(client, admin):
    client.post(ADD, form(s_undo_s="60"))
    policy = Policy.objects.get(name="llm")
    client.post("/admin/policies/policy/", {"action": "copy", "_selected_action": [policy.pk]})
    copied = Policy.objects.get(name="Copy of llm")
    assert copied.settings == {"undo_s": 60} and not copied.enabled and copied.current.number == 1


def test_a_policy_is_copied_from_its_own_page(client, admin, default):
    client.post(ADD, form(s_undo_s="60"))
    policy = Policy.objects.get(name="llm")
    page = client.get(reverse("admin:policies_policy_change", args=[policy.pk])).content.decode()
    where = reverse("admin:policies_policy_copy", args=[policy.pk])
    assert f'formaction="{where}"' in page and client.get(where).status_code == 405
    answer = client.post(where, form(s_undo_s="90"), follow=True)
    copied = Policy.objects.get(name="Copy of llm")
    assert copied.settings == {"undo_s": 60} and not copied.enabled, "as it was saved"
    assert answer.request["PATH_INFO"] == reverse("admin:policies_policy_change", args=[copied.pk])
    assert client.post(reverse("admin:policies_policy_copy", args=[default.pk])).status_code == 404


def test_only_who_may_edit_a_policy_copies_it(client):
    admin = log_in(client, "admin")
    client.post(ADD, form())
    where = reverse("admin:policies_policy_copy", args=[Policy.objects.get(name="llm").pk])
    log_in(client, "operator")
    assert client.post(where).status_code in (302, 403) and not Policy.objects.filter(name="Copy of llm").exists()
    client.force_login(admin)  # a log-in that is too old
    assert client.post(where).status_code == 302 and not Policy.objects.filter(name="Copy of llm").exists()


def test_the_form_offers_the_names_that_there_are_and_the_person_may_see(client):
    train, other = factories.pool("train"), factories.pool("secret")
    factories.task(factories.instance(train), factories.workload("llm-train"))
    factories.task(factories.instance(other), factories.workload("llm-secret"))
    log_in(client, "admin", pool="train")
    page = client.get(ADD).content.decode()
    assert 'list="known-workload"' in page and '<option value="llm-train"></option>' in page
    assert '<option value="train"></option>' in page and "secret" not in page


def test_what_is_rarely_set_is_folded_up_until_it_is(client, admin):
    assert page_of(client, ADD).count("<details>") == 3
    client.post(ADD, form(s_soak_s="10 min"))
    page = page_of(client, reverse("admin:policies_policy_change", args=[Policy.objects.get(name="llm").pk]))
    assert page.count("<details>") == 2
    refused = client.post(ADD, form(name="other", s_clear_s="soon")).content.decode()
    assert refused.count("<details>") == 2, "an error is never folded away"


def page_of(client, where):
    return client.get(where).content.decode()


def test_a_version_says_what_it_changed(client, admin):
    client.post(ADD, form(s_undo_s="60"))
    policy = Policy.objects.get(name="llm")
    client.post(
        reverse("admin:policies_policy_change", args=[policy.pk]), form(s_undo_s="90", s_windows="Sat 0:00-24:00 UTC")
    )
    policy.refresh_from_db()
    page = page_of(client, reverse("admin:policies_policyversion_change", args=[policy.current_id]))
    assert "Undo time: 1 min → 90 s" in page and "Maintenance windows: inherited → Sat 00:00-24:00 UTC" in page
    assert "Workload" not in page.split("Changed")[1].split("</ul>")[0]


def test_a_log_in_that_is_too_old_is_renewed_before_the_form_is_filled_in(client):
    log_in(client, "admin", fresh=False)
    answer = client.get(ADD)
    assert answer.status_code == 303 and answer.url == "/accounts/again/?next=%2Fadmin%2Fpolicies%2Fpolicy%2Fadd%2F"
    late = client.post(ADD, form())
    assert "older than 15 minutes" in late.content.decode() and Policy.objects.count() == 1


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", ""])
def test_only_admins_come_in(client, role):
    log_in(client, role)
    assert client.get("/admin/policies/policy/").status_code == 302
    assert client.post(ADD, form()).status_code == 302
    assert Policy.objects.count() == 1


def test_a_superuser_without_a_grant_edits_nothing(client):
    user = log_in(client, "")
    user.is_superuser = user.is_staff = True
    user.save()
    assert client.post(ADD, form()).status_code == 403
    assert Policy.objects.count() == 1


def test_an_admin_of_one_pool_sees_the_default_and_edits_that_pools_policies(client, default):
    log_in(client, "admin", pool="train")
    seen = client.get(reverse("admin:policies_policy_change", args=[default.pk]))
    assert seen.status_code == 200 and 'name="_save"' not in seen.content.decode()
    client.post(ADD, form(pool="train"))
    assert Policy.objects.filter(name="llm").exists()
    refused = client.post(ADD, form(name="other", pool="infer"))
    assert "not for pool infer" in refused.content.decode()


def test_versions_are_never_edited(client, admin, default):
    where = reverse("admin:policies_policyversion_change", args=[default.current_id])
    page = client.get(where)
    assert page.status_code == 200 and 'name="_save"' not in page.content.decode()
    assert client.post(where, {"reason": "rewritten"}).status_code == 403
    assert PolicyVersion.objects.get(pk=default.current_id).reason == "first start"


INLINE = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)|<style|\sstyle=|\son[a-z]+=|javascript:", re.I)


def test_admin_pages_work_under_the_strict_policy(client, admin, default):
    factories.case()
    other = factories.person("viewer")
    pages = ["/admin/", "/admin/policies/policy/", ADD, reverse("admin:policies_policy_change", args=[default.pk]),
             "/admin/auth/user/", "/admin/auth/user/add/", f"/admin/auth/user/{admin.pk}/change/", "/admin/people/grant/add/",
             "/admin/repairs/pause/add/", "/admin/cases/case/", "/admin/audit/auditrow/",
             f"/admin/auth/user/{other.pk}/password/", "/admin/policies/policyversion/"]  # fmt: skip
    for page in pages:
        answer = client.get(page)
        assert answer.status_code == 200, page
        policy = answer["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        found = INLINE.search(answer.content.decode())
        assert not found, (page, answer.content.decode()[found.start() - 100 : found.end() + 100])
