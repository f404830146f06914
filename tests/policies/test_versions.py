from datetime import timedelta

import pytest
from django.db import transaction

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.people import access
from healthboard.people.actors import Actor
from healthboard.policies import versions
from healthboard.policies.matching import settings_for
from healthboard.policies.models import Immutable, Policy, PolicyVersion
from healthboard.refusals import Closed, Invalid, NotAllowed
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin():
    return factories.actor(factories.person("admin"))


def make(admin, name="llm", reason="first", **fields):
    policy = Policy(name=name, **{"workload": "llm-train", **fields})
    versions.save(policy, actor=admin, reason=reason)
    return policy


def test_the_fleet_default_is_made_once():
    first, again = versions.ensure_default(), versions.ensure_default()
    assert first == again and first.current.number == 1
    assert Policy.objects.count() == PolicyVersion.objects.count() == 1


def test_each_save_makes_a_new_version_and_an_audit_row(admin):
    policy = make(admin, settings={"mode_hardware": "ask"})
    policy.settings = {"mode_hardware": "observe"}
    second = versions.save(policy, actor=admin, reason="too many false alarms")
    assert second.number == 2 and policy.current == second
    assert [v.data["settings"]["mode_hardware"] for v in policy.versions.order_by("number")] == ["ask", "observe"]
    row = AuditRow.objects.latest("pk")
    assert (row.verb, row.actor, row.subject) == ("policy.saved", admin.name, f"policy:{policy.pk}")
    assert row.payload["changes"] == ["Clear hardware failures: ask → observe"]


def test_saving_without_a_change_makes_no_version(admin):
    policy = make(admin)
    assert versions.save(policy, actor=admin, reason="again").number == 1


def test_a_version_is_never_changed(admin):
    version = make(admin).current
    version.reason = "rewritten"
    with pytest.raises(Immutable):
        version.save()


def test_a_contradiction_is_refused_and_nothing_is_saved(admin):
    policy = Policy(name="bad", workload="x", settings={"mode_hardware": "observe", "mode_ambiguous": "auto"})
    with pytest.raises(Invalid) as caught:
        versions.save(policy, actor=admin, reason="try")
    assert "mode_ambiguous" in caught.value.details["fields"]
    assert not Policy.objects.filter(name="bad").exists()


def test_a_contradiction_with_what_is_inherited_is_refused_too(admin):
    make(admin, name="pool", workload="", pool="train", settings={"mode_hardware": "observe"})
    policy = Policy(name="service", pool="train", workload="llm", settings={"mode_ambiguous": "auto"})
    with pytest.raises(Invalid, match="With what it inherits"):
        versions.save(policy, actor=admin, reason="try")


def test_a_second_policy_for_everything_is_refused(admin):
    with pytest.raises(Invalid, match="whom it matches"):
        versions.save(Policy(name="wide"), actor=admin, reason="try")


def test_approvals_are_wanted_from_groups_that_exist(admin):
    with pytest.raises(Invalid, match="no group sre, so nobody could approve"):
        make(admin, settings={"approver_group": "sre"})
    user = factories.person("operator")
    user.groups.create(name="sre")
    make(admin, settings={"approver_group": "sre"})
    assert access.in_group(user, "sre") and not access.in_group(admin.user, "sre") and access.in_group(user, "")


def test_a_change_needs_a_reason(admin):
    with pytest.raises(Invalid, match="Say why"):
        make(admin, reason=" ")


def test_the_default_cannot_be_deleted_or_disabled(admin):
    default = versions.ensure_default()
    with pytest.raises(Closed):
        versions.delete(default, actor=admin)
    default.enabled = False
    with pytest.raises(Invalid, match="always on"):
        versions.save(default, actor=admin, reason="try")


def test_a_policy_that_decisions_rest_on_is_disabled_instead_of_deleted(admin):
    used, unused = make(admin, name="used"), make(admin, name="unused", workload="other")
    factories.case(policy_version=used.current)
    assert versions.delete(unused, actor=admin) is True
    assert versions.delete(used, actor=admin) is False
    used.refresh_from_db()
    assert used.enabled is False and not Policy.objects.filter(name="unused").exists()


def test_superusers_and_stale_logins_are_not_exempt():
    user = factories.person("")
    user.is_superuser = True
    user.save()
    with pytest.raises(NotAllowed, match="no role"):
        make(factories.actor(user))
    with pytest.raises(NotAllowed, match="Log in again"):
        make(factories.actor(factories.person("admin"), recent=False))


def test_an_admin_of_one_pool_keeps_policies_of_that_pool_only():
    actor = factories.actor(factories.person("admin", pool="train"))
    policy = make(actor, pool="train")
    with pytest.raises(NotAllowed, match="not for pool infer"):
        make(actor, name="other", pool="infer")
    policy.pool = ""
    with pytest.raises(NotAllowed, match="not for everything"):
        versions.save(policy, actor=actor, reason="widen")


def test_settings_of_an_instance_follow_the_current_versions_and_can_be_asked_for_the_past(admin):
    versions.ensure_default()
    with clock.virtual(clock.now() + timedelta(minutes=1)):
        policy = make(admin, name="train", workload="", pool="train", settings={"undo_s": 60})
        between = clock.now() + timedelta(seconds=1)
    on = factories.instance(factories.pool("train"))
    with clock.virtual(between + timedelta(minutes=1)):
        policy.settings = {"undo_s": 90}
        versions.save(policy, actor=admin, reason="slower")
    assert settings_for(on, []).values["undo_s"] == 90
    past = settings_for(on, [], at=between)
    assert past.values["undo_s"] == 60 and past.version.number == 1
    assert [v.data["name"] for v in past.versions] == ["train", versions.DEFAULT_NAME]


def test_a_disabled_policy_decides_nothing(admin):
    make(admin, workload="", pool="train", settings={"undo_s": 60}, enabled=False)
    assert settings_for(factories.instance(factories.pool("train")), []).values["undo_s"] == 30


def test_an_unsaved_edit_of_the_row_decides_nothing(admin):
    policy = make(admin, workload="", pool="train", settings={"undo_s": 60})
    Policy.objects.filter(pk=policy.pk).update(settings={"undo_s": 0})
    assert settings_for(factories.instance(factories.pool("train")), []).values["undo_s"] == 60


def test_a_failed_save_leaves_neither_version_nor_audit_row(admin):
    before = AuditRow.objects.count()
    with pytest.raises(RuntimeError), transaction.atomic():
        make(admin)
        raise RuntimeError
    assert (PolicyVersion.objects.count(), AuditRow.objects.count()) == (0, before)


def test_the_system_may_make_the_default_but_no_person_is_invented():
    version = versions.ensure_default().current
    assert version.saved_by is None and version.saved_by_name == "healthboard:setup"
    assert Actor("x", "system").is_person is False
