import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.fleet.models import Instance, NodeRequest
from healthboard.people import access, credential, tokens
from healthboard.people.models import ApiToken, NodeToken
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin():
    return factories.actor(factories.person("admin"))


def test_a_token_stands_for_its_user_and_only_its_hash_is_kept(admin):
    user = factories.person("operator")
    token = tokens.issue_api(user, actor=admin)
    assert ApiToken.objects.get().used_at is None
    assert tokens.verify_api(token) == user
    row, audited = ApiToken.objects.get(), AuditRow.objects.latest("pk")
    assert len(row.hash) == 64 and row.used_at is not None
    assert audited.verb == "token.issued"
    assert not [value for value in (*vars(row).values(), *vars(audited).values()) if token in str(value)]


@pytest.mark.parametrize("wrong", ["", "hba_", "nonsense", "hba_" + "x" * 43, "\x00", "\ud800"])
def test_a_wrong_token_stands_for_nobody(admin, wrong):
    tokens.issue_api(factories.person("operator"), actor=admin)
    assert tokens.verify_api(wrong) is None and tokens.verify_node(wrong) is None


def test_revoked_expired_and_switched_off_are_refused_at_once(admin):
    user = factories.person("operator")
    revoked, expiring, kept = (tokens.issue_api(user, actor=admin, days=d) for d in (None, 1, None))
    tokens.revoke_api(ApiToken.objects.order_by("pk").first(), actor=admin)
    assert tokens.verify_api(revoked) is None and tokens.verify_api(expiring) == user
    with clock.virtual(clock.now() + timedelta(days=1, seconds=1)):
        assert tokens.verify_api(expiring) is None and tokens.verify_api(kept) == user
    user.is_active = False
    user.save()
    assert tokens.verify_api(kept) is None


def test_a_nodes_token_stands_for_its_instance_and_never_for_a_person(admin):
    one, two = factories.instance(), factories.instance()
    token = tokens.issue_node(one, actor=admin)
    assert tokens.verify_node(token) == one
    assert tokens.verify_api(token) is None
    assert tokens.verify_node(tokens.issue_node(two, actor=admin)) == two
    assert tokens.verify_node(tokens.issue_api(factories.person(), actor=admin)) is None


def test_a_new_node_token_leaves_the_last_ones_valid_and_revokes_the_oldest(admin):
    on = factories.instance()
    issued = [tokens.issue_node(on, actor=admin) for _ in range(tokens.NODE_TOKENS + 1)]
    assert tokens.verify_node(issued[0]) is None
    assert all(tokens.verify_node(token) == on for token in issued[1:])
    tokens.revoke_node(NodeToken.objects.latest("pk"), actor=admin)
    assert tokens.verify_node(issued[-1]) is None


def test_a_token_that_was_read_counts_as_it_does_in_the_database(admin):
    """Whether a node's token lives is asked of the row; of an API token, of the database."""
    tokens.issue_node(factories.instance(), actor=admin)
    now = clock.now()
    moments = (None, now - timedelta(seconds=1), now, now + timedelta(seconds=1))
    seen = set()
    for expires in moments:
        for revoked in moments:
            NodeToken.objects.update(expires_at=expires, revoked_at=revoked)
            there = NodeToken.objects.filter(access.live(now)).exists()
            assert access.lives(NodeToken.objects.get(), now) is there, (expires, revoked)
            seen.add(there)
    assert seen == {True, False}


def test_a_credential_is_read_as_django_reads_it(admin):
    """The statement that is written out gives field by field what the models give, and whether something is asked."""
    now = clock.now()
    node = factories.instance(
        boot_id="boot-a", booted_at=now, driver_version="580", reporter_version="1", gpus_expected=8
    )
    for lives, enrolled in ((None, False), (timedelta(hours=1), True)):
        digest = tokens._hash(tokens.issue_node(node, actor=admin, lives=lives, enrolled=enrolled))
        for answered, expires in ((None, 1), (None, -1), (now, 1)):
            NodeRequest.objects.all().delete()
            ends = now + timedelta(minutes=expires)
            NodeRequest.objects.create(
                instance=node, verb="probe", asked_at=now, asked_by="x", expires_at=ends, answered_at=answered
            )
            fast, slow = credential.by_hash(digest, now), credential.through_models(digest, now)
            assert fast.asked is slow.asked is (answered is None and expires > 0)
            assert {f.attname: getattr(fast, f.attname) for f in NodeToken._meta.concrete_fields} == {
                f.attname: getattr(slow, f.attname) for f in NodeToken._meta.concrete_fields
            }
            for field in Instance._meta.concrete_fields:
                assert getattr(fast.instance, field.attname) == getattr(slow.instance, field.attname), field.name
    assert credential.by_hash("0" * 64, now) is credential.through_models("0" * 64, now) is None


def test_the_token_of_a_machine_counts_for_an_hour_after_its_end(admin):
    on = factories.instance()
    token = tokens.issue_node(on, actor=admin)
    for gone, counts in ((59, True), (61, False)):
        type(on).objects.filter(pk=on.pk).update(gone_at=clock.now() - timedelta(minutes=gone))
        assert (tokens.verify_node(token) is not None) is counts, gone


def test_the_commands_print_the_token_and_nothing_else():
    user, on = factories.person("operator", name="otto"), factories.instance()
    out = io.StringIO()
    call_command("api-token", "otto", stdout=out)
    assert tokens.verify_api(out.getvalue().removesuffix("\n")) == user
    out = io.StringIO()
    call_command("node-token", on.instance_id, stdout=out)
    assert tokens.verify_node(out.getvalue().removesuffix("\n")) == on


def test_the_commands_refuse_in_one_line_with_exit_status_2():
    twin = factories.instance()
    factories.instance(factories.pool("train", region="eu-west-1"), instance_id=twin.instance_id)
    calls = (["api-token", "nobody"], ["node-token", "i-0nothing"], ["node-token", twin.instance_id],
             ["api-token", factories.person().username, "--days", "-1"])  # fmt: skip
    for call in calls:
        with pytest.raises(CommandError) as caught:
            call_command(*call)
        assert caught.value.returncode == 2 and "\n" not in str(caught.value)
    out = io.StringIO()
    call_command("node-token", twin.instance_id, "--region", "us-east-1", stdout=out)
    assert tokens.verify_node(out.getvalue().strip()) == twin
