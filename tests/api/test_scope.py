"""A group case of several pools, asked for with a token of one of them: foreign instances are counted, never named."""

from __future__ import annotations

import json
import re

import pytest

from healthboard.people.actors import WORKER
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def storm():
    """A group case of pool train with members in both pools, and its victims; a repair and a decision that name them."""
    train, infer = factories.pool("train"), factories.pool("infer")
    mine, more = factories.instance(train), factories.instance(train)
    theirs, others = factories.instance(infer), [factories.instance(infer).instance_id for _ in range(2)]
    row = ", ".join([mine.instance_id, theirs.instance_id, *others])
    said = f"XID_79 on {theirs.instance_id}; held: {row}"
    group = factories.case(
        None, instance=None, pool=train, verdict="CORRELATED", action="HOLD", code="XID_79", why=said, why_waiting=said,
        mode_why=said, title=f"4 instances show XID_79 since {theirs.instance_id}"[:255],
        plan=factories.plan(sentence=said, warnings=[said], names=[mine.instance_id, theirs.instance_id]),
        victims=[mine.instance_id, theirs.instance_id, *others],
    )  # fmt: skip
    member = factories.case(mine, state="HELD", parent=group, why_waiting=said, victims=[more.instance_id, *others])
    factories.case(theirs, state="HELD", parent=group)
    factories.decision(group, reason=said)
    repair = factories.repair(mine, why_waiting=said, plan=factories.plan(sentence=said))
    factories.repair(more, state="FAILED", outcome="LEFT", outcome_why=said)
    step = factories.steps(repair, "drain")[0]
    step.note = said
    step.save()
    place = {"account": theirs.account, "region": theirs.region}
    factories.pause("instance", theirs.instance_id, **place)
    factories.pause("pool", "train", reason=said[:255])
    factories.breaker("us-east-1a", scope_kind="zone", why=said)
    factories.breaker(released_at=factories.ago(60), released_by="admin", release_reason=said[:255])
    factories.audit("case.victims", said, by=WORKER, instance=mine, case_id=group.pk)
    return {
        "mine": mine,
        "more": more,
        "theirs": [theirs.instance_id, *others],
        "group": group,
        "member": member,
        "repair": repair,
    }


def paths(storm):
    group, mine, repair = storm["group"].pk, storm["mine"], storm["repair"].pk
    for path in ("/cases", "/repairs", "/instances", "/jobs", "/condemned", "/pauses", "/breakers", "/requests"):
        yield path, {}
        yield path, {"format": "csv"}
    yield "/cases", {"instance": mine.instance_id}
    for path in (f"/cases/{group}", f"/cases/{storm['member'].pk}", f"/repairs/{repair}", f"/instances/{mine.pk}"):
        yield path, {}


def test_no_answer_names_an_instance_of_another_pool(storm, calling):
    whole, part = calling("viewer"), calling("viewer", pool="train")
    named = []
    for path, query in paths(storm):
        everything, answer = whole.get(path, **query), part.get(path, **query)
        assert (everything.status_code, answer.status_code) == (200, 200), path
        named += [name for name in storm["theirs"] if name in everything.content.decode()]
        assert not [name for name in storm["theirs"] if name in answer.content.decode()], path
    assert set(named) == set(storm["theirs"]), "who sees every pool is told every name"


def test_they_are_counted_where_they_are_left_out(storm, calling):
    mine, part = storm["mine"].instance_id, calling("viewer", pool="train")
    item = part.get(f"/cases/{storm['group'].pk}").json()
    assert (item["instances"], item["victims"], item["others"]) == ([mine], [mine], 3)
    words = f"XID_79 on an instance outside your scope; held: {mine} and 3 others outside your scope"
    assert item["why"] == item["why_waiting"] == item["mode_why"] == item["plan"]["sentence"] == words
    assert item["decisions"][0]["reason"] == words and item["plan"]["names"] == [mine]
    member = part.get(f"/cases/{storm['member'].pk}").json()
    assert (member["instances"], member["victims"], member["others"]) == ([mine], [storm["more"].instance_id], 2)
    assert part.get(f"/repairs/{storm['repair'].pk}").json()["steps"][0]["note"] == words
    assert calling("viewer").get(f"/cases/{storm['group'].pk}").json()["others"] == 0


def test_whether_a_foreign_instance_is_part_of_a_case_is_not_told(storm, calling):
    part = calling("viewer", pool="train")
    assert [part.get("/cases", instance=name).json()["items"] for name in storm["theirs"]] == [[], [], []]
    assert calling("viewer").get("/cases", instance=storm["theirs"][1]).json()["items"] != []


def test_a_pause_is_told_where_what_it_names_is_seen(calling, client):
    """In the list, the hand-over and on the system page; who may not see it is not told its pool by ending it either."""
    train, infer = factories.pool("train"), factories.pool("infer")
    mine, theirs = factories.instance(train), factories.instance(infer)
    for scope in (mine, theirs):
        place = {"account": scope.account, "region": scope.region}
        factories.pause("instance", scope.instance_id, reason=f"why {scope.instance_id}", **place)
    there = factories.pool("train", region="eu-west-1")
    factories.pause("pool", "train", reason="why train of eu", account=there.account, region=there.region)
    factories.pause("pool", "train", reason="why train")
    foreign = factories.pause("pool", "infer", reason="why infer")
    factories.pause("workload", "llm-train", reason="why llm-train")
    factories.pause("fleet", "", reason="why everything")
    told = {f"why {scope}" for scope in (mine.instance_id, "train", "llm-train", "everything")}
    more = {f"why {scope}" for scope in (theirs.instance_id, "infer", "train of eu")}
    for scope, seen in (({}, told | more), ({"pool": "train", "region": train.region}, told)):
        caller = calling("admin", **scope)
        assert {row["reason"] for row in caller.get("/pauses").json()["items"]} == seen
        client.force_login(caller.user)
        for address in ("/system/", "/handover/"):
            text = _text(client.get(address))
            assert {why for why in told | more if re.search(rf"{why}\b(?! of)", text)} == seen, address
    refused = client.post(f"/system/pauses/{foreign.pk}/end/")
    assert refused.status_code == 404 and "pool infer" not in _text(refused)


def test_a_decision_answers_without_names_too(storm, calling):
    case = factories.case(storm["more"])
    body = {
        "decision": "dismiss", "reason": f"as on {storm['theirs'][0]}", "plan_version": case.plan_version,
        "evidence_hash": case.evidence_hash,
    }  # fmt: skip
    answer = calling("operator", pool="train").post(f"/cases/{case.pk}/decisions", json.dumps(body))
    assert answer.status_code == 200 and answer.json()["reason"] == "as on an instance outside your scope"


def test_pages_exports_and_bundles_of_a_scoped_person_name_none_either(storm, client):
    client.force_login(factories.person("operator", "wide"))
    addresses = [
        "/?tab=held&format=json", "/?tab=held&format=csv", "/?tab=waiting&format=json", "/?tab=held", "/?tab=waiting",
        "/cases/?format=csv", "/cases/?format=json", "/cases/", "/repairs/?format=csv", "/repairs/", "/audit/", "/audit/?format=json", "/handover/", "/handover/?format=markdown", "/system/",
        f"/cases/{storm['group'].pk}/", f"/cases/{storm['member'].pk}/", f"/repairs/{storm['repair'].pk}/",
        f"/instances/{storm['mine'].pk}/",
    ]  # fmt: skip
    everything = {address: _text(client.get(address)) for address in addresses}
    telling = {address for address, text in everything.items() if any(name in text for name in storm["theirs"])}
    assert set(addresses) == telling, "an address that names nobody proves nothing"
    bundles = [_bundle(client, storm)]
    client.force_login(factories.person("operator", "narrow", pool="train"))
    bundles.append(_bundle(client, storm))
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 200
        assert not [name for name in storm["theirs"] if name in _text(answer)], address
    assert [any(name in text for name in storm["theirs"]) for text in bundles] == [True, False]
    foreign = f"/instances/{storm['mine'].account.account_id}/{storm['mine'].region}/{storm['theirs'][0]}/"
    assert client.get(foreign).status_code == 404


def _text(answer) -> str:
    return b"".join(answer.streaming_content if answer.streaming else [answer.content]).decode()


def _bundle(client, storm) -> str:
    import io
    import zipfile

    answer = client.post(f"/instances/{storm['mine'].pk}/bundle/", {"names": "in"})
    packed = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    return "".join(packed.read(name).decode() for name in packed.namelist())
