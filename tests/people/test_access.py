import pytest
from django.contrib.auth.models import AnonymousUser

from healthboard.cases.models import Case
from healthboard.fleet.models import Instance
from healthboard.people import access
from healthboard.people.actors import WORKER
from healthboard.people.models import Grant
from healthboard.refusals import NotAllowed
from healthboard.repairs.models import Repair
from tests import factories

pytestmark = pytest.mark.django_db
HERE = {"account": "111122223333", "region": "us-east-1", "pool": "train"}
MATRIX = {
    "view": {"viewer", "operator", "approver", "admin"},
    "decide": {"operator", "approver", "admin"},
    "undo": {"operator", "approver", "admin"},
    "by_hand": {"operator", "approver", "admin"},
    "stop": {"operator", "approver", "admin"},
    "terminate_first": {"approver"},
    "second": {"approver"},
    "over_budget": {"operator", "approver", "admin"},
    "release": {"admin"},
    "resume": {"admin"},
    "policy": {"admin"},
    "people": {"admin"},
    "pause": {"admin"},
    "lift": {"approver", "admin"},
}


def test_the_matrix_covers_every_verb():
    assert set(MATRIX) == set(access.VERBS)


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "admin", ""])
@pytest.mark.parametrize("verb", MATRIX)
def test_each_role_may_do_what_the_design_says_and_no_more(verb, role):
    user = factories.person(role)
    allowed = role in MATRIX[verb]
    assert (access.why_not(user, verb, **HERE) is None) == allowed
    assert (access.why_not(user, verb) is None) == allowed
    assert access.somewhere(user, verb) == allowed


SCOPES = [
    {"pool": "train"},
    {"region": "us-east-1"},
    {"account": True},
    {"account": True, "region": "us-east-1", "pool": "train"},
]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scoped_role_counts_in_its_scope_and_nowhere_else(scope):
    given = {**scope, **({"account": factories.account()} if scope.get("account") else {})}
    user = factories.person("operator", **given)
    assert access.why_not(user, "decide", **HERE) is None
    assert access.why_not(user, "decide") is None
    elsewhere = {"account": "999988887777", "region": "eu-west-1", "pool": "infer"}
    for key in scope:
        refused = access.why_not(user, "decide", **{**HERE, key: elsewhere[key]})
        assert "elsewhere, but not for" in refused


def test_an_instance_without_a_pool_is_outside_every_pools_scope():
    user = factories.person("operator", pool="train")
    assert access.why_not(user, "decide", account="111122223333", region="us-east-1") is not None


def test_what_concerns_everything_takes_a_role_for_everything():
    scoped, full = factories.person("admin", pool="train"), factories.person("admin")
    for verb in access.EVERYWHERE:
        assert access.why_not(scoped, verb) is not None
        assert access.why_not(full, verb) is None
    assert access.why_not(scoped, "policy", pool="train") is None


def test_an_account_can_be_given_as_a_row_or_a_number():
    user = factories.person("operator", account=factories.account())
    for account in (factories.account(), "111122223333"):
        assert access.why_not(user, "decide", account=account, region="us-east-1") is None


def test_superusers_are_not_exempt():
    user = factories.person("")
    user.is_superuser = user.is_staff = True
    user.save()
    assert "has no role yet" in access.why_not(user, "view")


def test_a_refusal_tells_a_log_in_from_a_role_of_the_same_name():
    user = factories.person("operator", "operator")
    assert access.why_not(user, "resume") == (
        "To release the stop switch takes the role admin; the log-in operator has the role operator."
    )
    Grant.objects.create(user=user, role="viewer", pool="train")
    assert access.why_not(user, "resume").endswith("the log-in operator has the roles operator and viewer.")


def test_nobody_and_switched_off_people_may_nothing():
    assert access.why_not(AnonymousUser(), "view") == "Log in first."
    assert access.why_not(None, "view") == "Log in first."
    user = factories.person("admin")
    user.is_active = False
    user.save()
    assert access.why_not(user, "view") == "This log-in is switched off."
    assert not access.somewhere(user, "view")


def test_a_grant_that_was_taken_away_counts_at_once():
    user = factories.person("operator")
    assert access.why_not(user, "decide") is None
    Grant.objects.filter(user=user).delete()
    assert access.why_not(user, "decide") is not None


def test_some_verbs_want_a_recent_log_in():
    user = factories.person("admin")
    with pytest.raises(NotAllowed) as caught:
        access.require(factories.actor(user, recent=False), "release", **HERE)
    assert caught.value.details["again"] is True
    access.require(factories.actor(user, recent=False), "pause")
    access.require(factories.actor(user), "release", **HERE)


def test_the_system_is_no_person():
    with pytest.raises(NotAllowed):
        access.require(WORKER, "decide")


def test_rows_out_of_scope_are_not_seen():
    train, infer = (factories.instance(factories.pool(name)) for name in ("train", "infer"))
    for on in (train, infer):
        factories.case(on)
        factories.repair(on)
    scoped, full, none = factories.person("viewer", pool="train"), factories.person("viewer"), factories.person("")
    for model, prefix in ((Instance, ""), (Case, ""), (Repair, "instance__")):
        rows = model.objects.all()
        assert access.within(scoped, rows, prefix=prefix).count() == 1
        assert access.within(full, rows, prefix=prefix).count() == 2
        assert access.within(none, rows, prefix=prefix).count() == 0
        assert access.within(AnonymousUser(), rows, prefix=prefix).count() == 0
