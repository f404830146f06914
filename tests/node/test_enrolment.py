"""A machine shows who it is: the real reporter signs, the sandbox's STS checks the signature, the server hands out a token.

What is refused is refused with a reason, before anything is believed; each of the cases below was someone's way in.
"""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from healthboard import clock
from healthboard.api import node_intake
from healthboard.audit.models import AuditRow
from healthboard.fleet.models import Instance
from healthboard.people import enrolment, identity, refused, tokens
from healthboard.people.actors import system
from healthboard.people.models import NodeRefusal, NodeToken, SpentNonce
from healthboard.sandbox.config import parse_pools
from healthboard.sandbox.identity import credentials
from tests import factories
from tests.api.node_helpers import post, report
from tests.sandbox.conftest import ACCOUNT, REGION, Fleet
from workers.collect import ec2
from workers.node import healthboard_node as node

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    made = Fleet(tmp_path_factory.mktemp("sandbox"), pools=parse_pools("solo=template:2"))
    yield made
    made.engine.stop()


@pytest.fixture(autouse=True)
def here(fleet, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(fleet.home))
    monkeypatch.setenv("HEALTHBOARD_URL", "http://127.0.0.1:8000")
    node_intake.limiter.buckets.clear()
    refused._waiting.clear()


@pytest.fixture
def world(fleet):
    return fleet.engine.sandbox.world(ACCOUNT, REGION)


@pytest.fixture
def machines(world):
    """Two machines as the sandbox has them and as we collected them."""
    account = factories.account()
    assert account.account_id == ACCOUNT
    return [
        factories.instance(instance_id=i, account=account, region=REGION, node_seen_at=None)
        for i in sorted(world.instances)[:2]
    ]


def call(client, path, value, token=None):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {token}"} if token else {}
    return client.post(f"/api/v1/node{path}", json.dumps(value), content_type="application/json", **headers)


def nonce(client):
    answer = call(client, "/enrol/challenge", {})
    assert answer.status_code == 200, answer.content
    return answer.json()["nonce"]


def proof(client, world, machine, *, server="127.0.0.1", region=REGION, at=None, keys=None, number=None):
    """What the reporter of this machine sends."""
    number = number or nonce(client)
    keys = keys or credentials(world, machine.instance_id)
    signed = node.sign_identity(keys, region, server, number, at or time.time())
    return {"instance_id": machine.instance_id, "region": region, "nonce": number, **signed}


def enrolled(client, world, machine):
    answer = call(client, "/enrol/identity", proof(client, world, machine))
    assert answer.status_code == 200, answer.content
    return answer.json()["token"]


def no(answer, status, error):
    assert (answer.status_code, answer.json().get("error")) == (status, error), answer.content
    return answer.json()["detail"]


def test_the_reporters_signature_is_the_one_that_botocore_makes(world, machines):
    keys = credentials(world, machines[0].instance_id)
    ours = node.sign_identity(keys, "eu-west-1", "hb.example.com", "a-nonce", 1_780_000_000)
    request = AWSRequest(
        "POST", "https://sts.eu-west-1.amazonaws.com/", data=node.STS_BODY,
        headers={"content-type": node.STS_TYPE, "x-healthboard-nonce": "a-nonce",
                 "x-healthboard-server": "hb.example.com", "x-amz-date": ours["date"],
                 "x-amz-security-token": keys["Token"], "host": "sts.eu-west-1.amazonaws.com"},
    )  # fmt: skip
    request.context["timestamp"] = ours["date"]
    auth = SigV4Auth(Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"]), "sts", "eu-west-1")
    asked = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, asked), request)
    assert ours["authorization"].endswith(f"Signature={signature}")
    assert identity.AUTHORIZATION.fullmatch(ours["authorization"])


def test_a_machine_enrols_and_reports_as_itself(client, world, machines):
    token = enrolled(client, world, machines[0])
    assert post(client, report(), token).status_code == 200
    assert Instance.objects.get(pk=machines[0].pk).node_seen_at is not None
    row = NodeToken.objects.get()
    assert (row.instance_id, row.enrolled) == (machines[0].pk, True) and token not in row.hash
    assert timedelta(hours=23) < row.expires_at - clock.now() <= enrolment.TOKEN_LIVES
    assert AuditRow.objects.filter(verb="token.issued", instance=machines[0].instance_id).count() == 1


def test_a_token_ends_and_is_then_refused(client, world, machines):
    token = enrolled(client, world, machines[0])
    NodeToken.objects.update(expires_at=clock.now())
    no(post(client, report(), token), 401, "unknown token")


def test_the_first_use_counts_until_its_token_has_ended(client, world, machines):
    enrolled(client, world, machines[0])
    detail = no(call(client, "/enrol/identity", proof(client, world, machines[0])), 409, "enrolled already")
    assert "node-token --forget" in detail
    refused.flush(force=True)
    told = AuditRow.objects.get(verb="node.refused")
    assert machines[0].instance_id in told.summary and told.subject == f"node:{machines[0].instance_id}"
    enrolment.forget(machines[0], actor=system("test"))
    enrolled(client, world, machines[0])
    NodeToken.objects.update(expires_at=clock.now())
    enrolled(client, world, machines[0])


def test_a_token_given_by_a_person_does_not_keep_a_machine_from_enrolling(client, world, machines):
    tokens.issue_node(machines[0], actor=system("test"))
    enrolled(client, world, machines[0])


def test_a_nonce_is_good_once(client, world, machines):
    number = nonce(client)
    assert call(client, "/enrol/identity", proof(client, world, machines[0], number=number)).status_code == 200
    enrolment.forget(machines[0], actor=system("test"))
    no(call(client, "/enrol/identity", proof(client, world, machines[0], number=number)), 403, "used nonce")
    assert SpentNonce.objects.count() == 1


def test_a_nonce_is_ours_and_young(client, world, machines, monkeypatch):
    no(
        call(client, "/enrol/identity", proof(client, world, machines[0], number="1780000000.mine~x")),
        403,
        "unknown nonce",
    )
    old = nonce(client)
    late = clock.now() + enrolment.NONCE_LIVES + timedelta(seconds=1)
    monkeypatch.setattr(clock, "now", lambda: late)
    no(call(client, "/enrol/identity", proof(client, world, machines[0], number=old)), 403, "old nonce")
    assert not NodeToken.objects.exists()


def test_a_proof_made_for_another_server_is_refused(client, world, machines):
    """A server that a machine was led to cannot pass its proof on."""
    told = proof(client, world, machines[0], server="evil.example.com")
    assert "SignatureDoesNotMatch" in no(call(client, "/enrol/identity", told), 403, "proof refused")


def test_a_proof_of_another_machine_is_refused(client, world, machines):
    told = proof(client, world, machines[0], keys=credentials(world, machines[1].instance_id))
    assert machines[1].instance_id in no(call(client, "/enrol/identity", told), 403, "not this machine")


def test_keys_that_are_no_machines_are_refused(client, world, machines):
    keys = {"AccessKeyId": f"ASANDBOX{ACCOUNT}", "SecretAccessKey": "made-up", "Token": "x" * 20}
    told = proof(client, world, machines[0], keys=keys)
    assert "instance identity role" in no(call(client, "/enrol/identity", told), 403, "proof refused")


def test_wrong_keys_are_refused_by_sts(client, world, machines):
    keys = {**credentials(world, machines[0].instance_id), "SecretAccessKey": "guessed"}
    told = proof(client, world, machines[0], keys=keys)
    assert "SignatureDoesNotMatch" in no(call(client, "/enrol/identity", told), 403, "proof refused")


def test_an_old_signature_is_refused_by_sts(client, world, machines):
    told = proof(client, world, machines[0], at=time.time() - 3600)
    assert "SignatureDoesNotMatch" in no(call(client, "/enrol/identity", told), 403, "proof refused")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: {"authorization": p["authorization"].replace(";x-healthboard-nonce", "")},
        lambda p: {"authorization": p["authorization"].replace(";x-healthboard-server", "")},
        lambda p: {"authorization": p["authorization"].replace("/sts/", "/ec2/")},
        lambda p: {"authorization": p["authorization"] + "\r\nHost: evil.example.com"},
        lambda p: {"authorization": p["authorization"].replace(REGION, "eu-west-1")},
        lambda p: {"date": "20260101T000000Z"},
        lambda p: {"date": p["date"] + "\n"},
        lambda p: {  # digits, but of another script
            "date": "٢٠٢٦١٢٠١" + p["date"][8:],
            "authorization": p["authorization"].replace(f"/{p['date'][:8]}/", "/٢٠٢٦١٢٠١/"),
        },
        lambda p: {"security_token": p["security_token"] + "\r\nX-Evil: 1"},
        lambda p: {"security_token": ""},
    ],
)
def test_a_spoiled_proof_never_reaches_sts(client, world, machines, fleet, spoil):
    told = proof(client, world, machines[0])
    before = len(fleet.engine.sandbox.store.calls())
    no(call(client, "/enrol/identity", {**told, **spoil(told)}), 403, "proof refused")
    assert len(fleet.engine.sandbox.store.calls()) == before
    assert not SpentNonce.objects.exists() and not NodeToken.objects.exists()


@pytest.mark.parametrize(
    "changed", [{"state": "terminated"}, {"state": "stopped"}, {"gone_at": "now"}, {"region": "eu-west-1"}]
)
def test_only_a_machine_that_was_collected_as_running_enrols(client, world, machines, changed):
    values = {k: clock.now() if v == "now" else v for k, v in changed.items()}
    Instance.objects.filter(pk=machines[0].pk).update(**values)
    no(call(client, "/enrol/identity", proof(client, world, machines[0])), 404, "unknown instance")
    assert not SpentNonce.objects.exists()


def test_a_machine_of_an_account_that_is_not_ours_is_refused(client, world, machines, monkeypatch):
    told = proof(client, world, machines[0])
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", "999988887777")
    no(call(client, "/enrol/identity", told), 404, "unknown instance")


def test_sts_that_is_away_is_said_and_the_next_challenge_works(client, world, machines, fleet):
    fleet.engine.sandbox.mode = "off"
    try:
        no(call(client, "/enrol/identity", proof(client, world, machines[0])), 503, "STS away")
    finally:
        fleet.engine.sandbox.mode = "ok"
    enrolled(client, world, machines[0])


def test_a_machines_own_keys_may_ask_who_they_are_and_nothing_else(fleet, world, machines):
    import boto3
    from botocore.exceptions import ClientError

    keys = credentials(world, machines[0].instance_id)
    session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"], REGION)
    arn = session.client("sts", endpoint_url=fleet.url).get_caller_identity()["Arn"]
    assert arn == f"arn:aws:sts::{ACCOUNT}:assumed-role/aws:ec2-instance/{machines[0].instance_id}"
    with pytest.raises(ClientError, match="AccessDenied"):
        session.client("ec2", endpoint_url=fleet.url).describe_instances()


def test_a_renewal_gives_a_new_token_and_ends_the_old_one_soon(client, world, machines, monkeypatch):
    old = enrolled(client, world, machines[0])
    answer = call(client, "/renew", {}, old)
    new = answer.json()["token"]
    assert answer.status_code == 200 and new != old
    assert post(client, report(), new).status_code == 200
    assert post(client, report(2), old).status_code == 200  # what was under way is not lost
    late = clock.now() + tokens.OVERLAP + timedelta(seconds=1)
    monkeypatch.setattr(clock, "now", lambda: late)
    no(post(client, report(3), old), 401, "unknown token")
    assert post(client, report(3), new).status_code == 200
    no(call(client, "/renew", {}, old), 401, "unknown token")


def test_answers_that_are_lost_do_not_lock_a_node_out(client, world, machines, monkeypatch):
    """However often: what it has stays good until it shows what it was given instead."""
    old, at = enrolled(client, world, machines[0]), clock.now()
    assert post(client, report(1), old).status_code == 200
    lost = []
    for minute in range(8):
        for second in (0, 11):  # the reporter asks again after ten seconds without an answer
            monkeypatch.setattr(clock, "now", lambda m=minute, s=second: at + timedelta(minutes=2 * m, seconds=s))
            lost.append(call(client, "/renew", {}, old).json()["token"])
    assert post(client, report(2), old).status_code == 200, "a quarter of an hour after the first answer was lost"
    for token in lost[:-2]:
        no(call(client, "/renew", {}, token), 401, "unknown token")
    assert NodeToken.objects.filter(tokens.live(clock.now())).count() == 3
    assert post(client, report(3), lost[-1]).status_code == 200
    late = clock.now() + tokens.OVERLAP + timedelta(seconds=1)
    monkeypatch.setattr(clock, "now", lambda: late)
    for token in (old, *lost[:-1]):
        no(post(client, report(4), token), 401, "unknown token")
    assert post(client, report(4), lost[-1]).status_code == 200


def test_an_old_token_does_not_end_the_one_that_is_in_use(client, world, machines, monkeypatch):
    old, at = enrolled(client, world, machines[0]), clock.now()
    new = call(client, "/renew", {}, old).json()["token"]
    assert post(client, report(1), new).status_code == 200
    monkeypatch.setattr(clock, "now", lambda: at + timedelta(minutes=5))
    assert call(client, "/renew", {}, old).status_code == 200  # somebody who has copied it
    assert post(client, report(2), new).status_code == 200


def test_an_enrolment_whose_answer_was_lost_is_made_again(client, world, machines, monkeypatch):
    lost, at = enrolled(client, world, machines[0]), clock.now()
    no(call(client, "/enrol/identity", proof(client, world, machines[0])), 409, "enrolled already")
    monkeypatch.setattr(clock, "now", lambda: at + enrolment.ARRIVES + timedelta(seconds=1))
    token = enrolled(client, world, machines[0])
    no(post(client, report(), lost), 401, "unknown token")
    assert post(client, report(), token).status_code == 200
    monkeypatch.setattr(clock, "now", lambda: at + timedelta(hours=1))
    no(call(client, "/enrol/identity", proof(client, world, machines[0])), 409, "enrolled already")


@pytest.mark.parametrize("hours, status", [(0.5, 200), (2, 401)])
def test_the_credential_of_a_machine_that_is_gone_ends_with_it(client, world, machines, hours, status):
    token = enrolled(client, world, machines[0])
    Instance.objects.filter(pk=machines[0].pk).update(gone_at=clock.now() - timedelta(hours=hours))
    assert call(client, "/renew", {}, token).status_code == status
    NodeToken.objects.update(expires_at=clock.now() + timedelta(hours=9))
    assert post(client, report(), token).status_code == status


def test_a_token_of_a_person_is_not_renewed(client, machines):
    token = tokens.issue_node(machines[0], actor=system("test"))
    no(call(client, "/renew", {}, token), 409, "not enrolled")


def test_refusals_are_counted_by_reason_and_by_whom_a_credential_proves(client, world, machines):
    mine = enrolled(client, world, machines[0])
    for _ in range(7):
        post(client, report(instance_id=machines[1].instance_id), mine)
        post(client, report(), "hbn_guessed")
    refused.flush(force=True)
    counted = {(r.reason, r.instance): r.count for r in NodeRefusal.objects.all()}
    assert counted == {("another instance", machines[0].instance_id): 7, ("unknown token", ""): 7}
    assert AuditRow.objects.filter(verb="node.refused").count() == 1  # not one per forged report
    assert refused.lately()[0]["count"] == 7


@pytest.mark.django_db(transaction=True)
def test_the_reporter_enrols_renews_and_goes_on(live_server, fleet, world, machines, machine, reporter):
    """The process as it runs on a node, against a real server and the sandbox's metadata service and STS."""
    url = live_server.url.replace("localhost", "127.0.0.1")
    metadata = f"{fleet.url}/imds/{machines[0].instance_id}"
    running = reporter(url, AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata, HEALTHBOARD_NODE_TOKEN="")
    kept = machine.path / "state" / "identity.json"

    def until(done):
        for _ in range(200):
            if done():
                return
            time.sleep(0.1)
        raise AssertionError(running.errors.read_text())

    until(lambda: Instance.objects.get(pk=machines[0].pk).node_seen_at is not None)
    assert kept.stat().st_mode & 0o777 == 0o600
    first = json.loads(kept.read_text())
    kept.write_text(json.dumps({**first, "renew_at": 0}))
    until(lambda: json.loads(kept.read_text())["token"] != first["token"])
    NodeToken.objects.update(revoked_at=clock.now())  # as `node-token --forget` does
    second = json.loads(kept.read_text())["token"]
    until(lambda: json.loads(kept.read_text())["token"] != second)
    until(lambda: NodeToken.objects.filter(revoked_at=None).count() == 1)


@pytest.mark.django_db(transaction=True)
def test_one_stray_refusal_does_not_silence_a_node_whose_token_lives(live_server, fleet, machines, machine):
    url = live_server.url.replace("localhost", "127.0.0.1")
    metadata = f"{fleet.url}/imds/{machines[0].instance_id}"
    told = {"HEALTHBOARD_URL": url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata, "HEALTHBOARD_NODE_TOKEN": ""}
    mine = node.Identity(node.Settings({**os.environ, **machine.env, **told}))
    token, trouble = mine.token()
    assert token, trouble
    mine.refused(token)  # 401 or 403, from a server that was just being changed
    assert mine.token() == (token, "")
    refused.flush(force=True)
    asked = NodeRefusal.objects.get(reason="enrolled already").count
    assert mine.token() == (token, "")
    refused.flush(force=True)
    assert NodeRefusal.objects.get(reason="enrolled already").count == asked == 1  # and it is over with that
    NodeToken.objects.update(revoked_at=clock.now())
    mine.refused(token)
    assert mine.token()[0] not in (None, token)


def test_a_disk_that_takes_no_more_does_not_end_the_reporting(machine, monkeypatch):
    """Then the renewed credential is in memory, and the file beside it is the old one."""
    given = []

    def renewed(target, path, body, token, tls=None):
        given.append((path, token))
        return 200, 0, {"token": f"hbn_{len(given)}", "expires_in_s": 3600}

    monkeypatch.setattr(node, "post", renewed)
    settings = node.Settings({**os.environ, **machine.env, "HEALTHBOARD_URL": "http://127.0.0.1:1"})
    os.makedirs(settings.state_dir)
    mine = node.Identity(settings)
    mine._keep({"token": "hbn_first", "expires_in_s": 2})
    monkeypatch.setattr(node.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    now = time.time()
    monkeypatch.setattr(node.time, "time", lambda: now + 1.5)  # beyond half of its life
    assert {mine.token() for _ in range(10)} == {("hbn_1", "")}
    assert given == [(node.RENEW_PATH, "hbn_first")]


def test_a_copied_disk_brings_no_credential_along(machine):
    settings = node.Settings({**os.environ, **machine.env, "HEALTHBOARD_URL": "http://127.0.0.1:1"})
    os.makedirs(settings.state_dir)
    mine = node.Identity(settings)
    mine._keep({"token": "hbn_x", "expires_in_s": 3600})
    assert node.Identity(settings).token() == ("hbn_x", "")
    tag = machine.path / "sys/devices/virtual/dmi/id"
    tag.mkdir(parents=True, exist_ok=True)
    (tag / "board_asset_tag").write_text("i-0123456789abcdef0\n")
    assert node.Identity(settings).token()[0] is None
    other = node.Settings({**os.environ, **machine.env, "HEALTHBOARD_URL": "http://127.0.0.2:1"})
    assert node.Identity(other).token()[0] is None


@pytest.mark.parametrize(
    "base", ["http://example.com", "https://169.254.169.254", "http://10.0.0.1", "http://localhost"]
)
def test_a_machines_keys_are_asked_for_at_link_local_addresses_only(machine, base):
    env = {
        **os.environ,
        **machine.env,
        "HEALTHBOARD_URL": "http://127.0.0.1:1",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": base,
    }
    with pytest.raises(node.ConfigError):
        node.Identity(node.Settings(env))


@pytest.mark.parametrize(
    "told, why",
    [
        ({"HttpTokens": "required", "HttpPutResponseHopLimit": 1}, ""),
        ({"HttpTokens": "required", "HttpPutResponseHopLimit": 2}, "the hop limit is 2"),
        ({"HttpTokens": "optional", "HttpPutResponseHopLimit": 1}, "version 1 is accepted (HttpTokens=optional)"),
        ({"HttpTokens": "optional", "HttpEndpoint": "disabled"}, ""),
        ({}, ""),
    ],
)
def test_a_metadata_service_that_tasks_reach_is_told(told, why):
    assert ec2.metadata_open(told) == why


def test_what_was_refused_is_on_the_system_page_and_names_only_machines_in_scope(client, machines):
    for _ in range(3):
        refused.count("another instance", machines[0].instance_id)
    refused.flush(force=True)
    client.force_login(factories.person("viewer"))
    text = client.get("/system/").content.decode()
    assert "another instance" in text and machines[0].instance_id in text and ">3<" in text
    client.force_login(factories.person("viewer", pool="elsewhere"))
    assert machines[0].instance_id not in client.get("/system/").content.decode()


def test_the_instances_page_says_who_the_node_is_and_whether_its_keys_are_open(client, world, machines):
    client.force_login(factories.person("viewer"))
    page = f"/instances/{machines[0].pk}/"
    assert "no credential" in client.get(page).content.decode()
    enrolled(client, world, machines[0])
    Instance.objects.filter(pk=machines[0].pk).update(metadata_open="the hop limit is 2")
    text = client.get(page).content.decode()
    assert "shown to STS" in text and "open to tasks" in text and "the hop limit is 2" in text
