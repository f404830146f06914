"""What a token may: no more than its user, no more than its scope, and nowhere but in its place."""

from __future__ import annotations

import io

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.core.management import CommandError, call_command

from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case, Decision
from healthboard.people import access, limits, tokens
from healthboard.people.models import ApiToken, Grant
from healthboard.refusals import NotAllowed
from tests import factories
from tests.cases import scene

pytestmark = pytest.mark.django_db
HERE = {"account": "111122223333", "region": "us-east-1", "pool": "train"}


@pytest.fixture
def admin():
    return factories.actor(factories.person("admin"))


def holder(admin, role="operator", grant=None, **token):
    user = factories.person(role, **(grant or {}))
    return tokens.verify_api(tokens.issue_api(user, actor=admin, **token))


@pytest.mark.parametrize("scope", access.SCOPES)
@pytest.mark.parametrize("verb", access.VERBS)
def test_a_scope_lets_through_what_it_names_and_the_role_gives(admin, scope, verb):
    for role in ("viewer", "operator", "approver", "admin"):
        user = holder(admin, role, scope=scope)
        expected = role in access.VERBS[verb][0] and verb in access.SCOPES[scope]
        why = access.why_not(user, verb, **HERE)
        assert (why is None) == expected == access.somewhere(user, verb)
        assert verb in access.SCOPES[scope] or "takes a token of another scope" in why


def test_its_place_and_its_users_are_taken_together(admin):
    user = holder(admin, pool="train")
    assert access.why_not(user, "decide", **HERE) is None
    assert access.why_not(user, "decide", **{**HERE, "pool": "infer"}) is not None
    narrower = holder(admin, grant={"pool": "train"}, region="eu-west-1")
    assert access.why_not(narrower, "decide", **{**HERE, "region": "eu-west-1"}) is None
    assert access.why_not(narrower, "decide", **HERE) is not None
    assert access.why_not(holder(admin, grant={"pool": "train"}, pool="infer"), "view", **HERE) is not None


def test_it_sees_the_rows_of_its_place_alone(admin):
    train, infer = (factories.case(factories.instance(factories.pool(name))) for name in ("train", "infer"))
    user = holder(admin, pool="train")
    assert list(access.within(user, Case.objects.all())) == [train] and infer.pk
    assert access.scope(user) == ((None, "", "train"),)


def test_the_record_shows_it_its_place_alone(client, admin):
    """The user sees everything; the token that was given for one pool does not, as JSON or as CSV."""
    cases = {name: factories.case(factories.instance(factories.pool(name))) for name in ("train", "infer")}
    for name, case in cases.items():
        factories.audit("case.note", f"about {name}", by=admin, instance=case.instance, case_id=case.pk)
    user = factories.person("viewer", "bot")
    whole, narrow = (tokens.issue_api(user, actor=admin, scope="read", **place) for place in ({}, {"pool": "train"}))
    for query in ("verb=case.note", "verb=case.note&format=csv"):
        said = {token: call(client, token, f"/audit?{query}") for token in (whole, narrow)}
        texts = {token: b"".join(answer).decode() for token, answer in said.items()}
        assert "about train" in texts[whole] and "about infer" in texts[whole]
        assert "about train" in texts[narrow] and "about infer" not in texts[narrow], query


def call(client, token, path, body=None):
    bearer = {"Authorization": f"Bearer {token}"}
    if body is None:
        return client.get(f"/api/v1{path}", headers=bearer)
    return client.post(f"/api/v1{path}", body, content_type="application/json", headers=bearer)


def test_a_reading_token_decides_nothing_and_the_refusal_is_on_record(client, admin):
    cache.clear()
    case = scene.asked()
    user = factories.person("operator", "bot")
    token = tokens.issue_api(user, actor=admin, scope="read", name="dashboard")
    assert call(client, token, "/cases").status_code == 200
    body = {
        "decision": "dismiss",
        "reason": "x",
        "plan_version": case.plan_version,
        "evidence_hash": case.evidence_hash,
    }
    answer = call(client, token, f"/cases/{case.pk}/decisions", body)
    assert answer.status_code == 403 and "a token of another scope; this one's is read" in answer.json()["detail"]
    assert AuditRow.objects.filter(verb="case.refused", actor="bot").count() == 1
    assert ApiToken.objects.get(name="dashboard").used_at is not None


def test_a_decision_remembers_the_token_and_a_replay_is_refused_on_record(client, admin):
    case = scene.asked()
    user = factories.person("operator", "bot")
    token = tokens.issue_api(user, actor=admin, scope="decide")
    body = {"decision": "approve", "plan_version": case.plan_version, "evidence_hash": case.evidence_hash}
    stale = call(client, token, f"/cases/{case.pk}/decisions", {**body, "evidence_hash": "0" * 64})
    assert (stale.status_code, stale.json()["error"]) == (409, "changed")
    assert call(client, token, f"/cases/{case.pk}/decisions", body).status_code == 200
    assert Decision.objects.get().token == ApiToken.objects.get()
    again = call(client, token, f"/cases/{case.pk}/decisions", body)
    assert (again.status_code, again.json()["error"]) == (409, "already_decided")
    assert Decision.objects.count() == 1 and len(scene.refusals(case)) == 2


@pytest.mark.parametrize("how", ["revoked", "expired", "forged", "switched off"])
def test_a_token_that_counts_no_more_is_refused_on_record_once(client, admin, how):
    cache.clear()
    user = factories.person("operator", "bot")
    token = tokens.issue_api(user, actor=admin, days=1)
    if how == "revoked":
        tokens.revoke_api(ApiToken.objects.get(), actor=admin)
    elif how == "expired":
        ApiToken.objects.update(expires_at=factories.ago(1))
    elif how == "forged":
        token = "hba_" + "x" * 43
    else:
        get_user_model().objects.filter(pk=user.pk).update(is_active=False)
    for _ in range(3):
        assert call(client, token, "/cases").status_code == 401
    [row] = AuditRow.objects.filter(verb="token.refused")
    assert ("bot" in row.summary) == (how != "forged") and "127.0.0.1" in row.summary and token not in row.summary


def test_made_up_tokens_from_everywhere_do_not_fill_the_record(client, db):
    cache.clear()
    for number in range(limits.PER_ADDRESS + 20):
        for place in (f"2001:db8::{number:x}", f"2001:db8:{number:x}::1"):
            tokens.refused_api("hba_" + "x" * 43, place)
    rows = AuditRow.objects.filter(verb="token.refused")
    assert rows.filter(summary__contains=" 2001:db8::").count() == 1, "a network of IPv6 is one place"
    assert rows.count() == limits.PER_ADDRESS


def test_a_service_account_is_made_by_the_command_and_is_no_second_person(admin):
    out = io.StringIO()
    call_command(
        "api-token", "ci", "--service", "deploys", "--scope", "decide", "--pool", "solo", "--days", "30", stdout=out
    )
    user = tokens.verify_api(out.getvalue().removesuffix("\n"))
    assert (user.username, user.service.purpose, user.has_usable_password()) == ("ci", "deploys", False)
    assert access.why_not(user, "view") == "The log-in ci has no role yet; an admin gives one."
    Grant.objects.create(user=user, role="approver")
    scene.policy(approvals=2)
    case = scene.asked()
    with pytest.raises(NotAllowed, match="service account"):
        scene.decided(case, by=factories.actor(user, via="api", recent=False))
    for call_ in (["ci", "--account", "999999999999"], ["a b", "--service", "x"], ["new"]):
        with pytest.raises(CommandError) as caught:
            call_command("api-token", *call_)
        assert caught.value.returncode == 2
