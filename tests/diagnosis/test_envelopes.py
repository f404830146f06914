"""One message of the event queue to what it says; and how little an event alone may do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthboard.diagnosis import envelopes
from healthboard.diagnosis.envelopes import Envelope, Unusable
from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.signals import Event
from tests.diagnosis.build import NOW, ago, assess, fine, kernel, reading

ACCOUNT, REGION = "123456789012", "us-west-2"
SAMPLES = [json.loads(line) for line in (Path(__file__).parent / "data" / "samples.jsonl").read_text().splitlines()]
TEXTS = [line for s in SAMPLES if s["kind"] == "ecs_event" for line in s["text"].splitlines()]


def read(body, *, account=ACCOUNT, region=REGION, now=NOW) -> Envelope:
    return envelopes.read(body if isinstance(body, str) else json.dumps(body), account=account, region=region, now=now)


def envelope(kind, source="aws.ec2", *, resources=(), **detail):
    return {
        "version": "0", "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718", "detail-type": kind, "source": source,
        "account": ACCOUNT, "region": REGION, "time": NOW.isoformat(), "resources": list(resources), "detail": detail,
    }  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_envelopes_of_the_samples_are_read(text):
    told = json.loads(text)
    got = read(text, now=parse_time(told["time"]) + timedelta(minutes=1))
    detail = told["detail"]
    assert (got.id, got.kind, got.container) == (told["id"], told["detail-type"], detail["containerInstanceArn"])
    assert got.instances == (detail["ec2InstanceId"],)
    assert (got.version, got.connected) == (detail.get("version"), detail.get("agentConnected"))
    assert got.at == parse_time(detail.get("updatedAt") or told["time"])


def test_an_xid_that_ecs_names_is_kept_with_a_name_of_its_own():
    check = {"type": "ACCELERATED_COMPUTE", "status": "IMPAIRED", "statusReason": "XID_95"}
    got = read(envelope(envelopes.HEALTH, "aws.ecs", ec2InstanceId="i-00000000000000abc", healthChecks=[check]))
    (event,) = got.events
    assert (event.code, event.instance) == ("XID_95", "i-00000000000000abc")
    assert event.attrs["id"] == f"{got.id}/XID_95"


def test_a_block_that_ends_names_its_reservation_and_one_that_begins_is_no_news():
    arn = f"arn:aws:ec2:{REGION}:{ACCOUNT}:capacity-reservation/cr-0123456789abcdef0"
    detail = {"capacity-reservation-id": "cr-0123456789abcdef0", "end-date": "2026-11-30T12:40:00Z"}
    for kind in ("Capacity Block Reservation Expiration Warning", "Capacity Block Expiration Warning"):
        got = read(envelope(kind, resources=[arn], **detail))
        assert (got.block, got.instances, got.events[0].code) == (
            "cr-0123456789abcdef0",
            (),
            "CAPACITY_BLOCK_ENDING",
        )
        assert got.events[0].attrs["ends"] == "2026-11-30T12:40:00+00:00"
    with pytest.raises(Unusable, match="unexpected kind"):
        read(envelope("Capacity Block Reservation Delivered", **detail))


def test_another_places_container_is_not_looked_for():
    arn = f"arn:aws:ecs:{REGION}:999999999999:container-instance/gpu/abc"
    with pytest.raises(Unusable, match="names no instance"):
        read(envelope(envelopes.TASK, "aws.ecs", containerInstanceArn=arn, lastStatus="STOPPED"))


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    ["id", "detail-type", "source", "account", "region", "time", "resources", "detail", "ec2InstanceId", "version",
     "instance-id", "healthChecks", "updatedAt", "affectedEntities", "eventDescription", "state", "agentConnected",
     "capacity-reservation-id", "containerInstanceArn", "eventTypeCode", "availabilityZone", "startTime", "endTime",
     "lastStatus", "stopCode", "stoppedReason", "containers"]
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(
    text=st.sampled_from(TEXTS),
    changes=st.dictionaries(_FIELDS, _ANY, max_size=4),
    kind=st.sampled_from([*envelopes.KINDS]),
)
def test_whatever_is_changed_it_is_read_or_refused_and_never_breaks(text, changes, kind):
    told = json.loads(text)
    told["detail-type"], told["source"] = kind, envelopes.KINDS[kind]
    for name, value in changes.items():
        if name in told:
            told[name] = value
        elif isinstance(told["detail"], dict):
            told["detail"][name] = value
    try:
        got = read(json.dumps(told), now=datetime(2026, 6, 2, tzinfo=UTC))
    except Unusable as why:
        assert 0 < len(str(why)) < 40
        return
    assert all(name.startswith("i-") for name in got.instances) and "\x00" not in got.container
    json.dumps([dict(event.attrs) for event in got.events])


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(), _ANY.map(json.dumps), st.none(), st.integers()))
def test_any_body_is_read_or_refused(body):
    with pytest.raises(Unusable):
        envelopes.read(body, account=ACCOUNT, region=REGION, now=NOW)


# --- how little an event alone may do


def health(topic, seconds=60, arn="arn:aws:health:one"):
    return Event(ago(seconds), "AWS_HEALTH_EVENT", "aws-health", attrs={"topic": topic, "arn": arn})


def scheduled(value, **times):
    return reading("EC2_SCHEDULED_EVENT", value, "ec2", **times)


def test_a_retirement_that_only_aws_health_announces_is_for_a_person():
    got = assess([health("retirement")])
    assert (got.verdict, got.action, got.may_act) == ("HARDWARE", "REPLACE", False)
    assert "EC2's own status has to say so" in got.may_act_why
    later = assess([health("retirement", 900), health("retirement", 890, arn="another")])
    assert not later.may_act, "not after any time, nor by being said twice"


def test_what_ec2_says_itself_leads_and_may_act():
    got = assess([health("retirement")], fine(event=scheduled("instance-retirement")))
    assert got.codes == ("EC2_EVENT_INSTANCE_RETIREMENT", "AWS_HEALTH_EVENT") and got.may_act
    assert got.decisive_codes == ("EC2_EVENT_INSTANCE_RETIREMENT",)


def test_a_retirement_ends_when_either_says_so():
    assert assess([health("retirement"), health("closed", 30)]).verdict == "HEALTHY"
    assert assess([health("closed", 60), health("retirement", 30)]).verdict == "HARDWARE", "announced anew"
    both = [health("retirement"), health("closed", 30, arn="another")]
    assert assess(both).verdict == "HARDWARE", "another one was closed"
    over = [scheduled("instance-retirement", since=50, last=20), scheduled(None, since=15)]
    assert assess([health("retirement")], fine() + over).verdict == "HEALTHY"
    never = [scheduled(None, since=9000)]
    assert assess([health("retirement")], fine() + never).verdict == "HARDWARE", "EC2 has not shown it yet"


def test_aws_health_is_no_witness_of_a_gpu():
    once = fine(check=reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", seen=1, since=5, last=5))
    assert not assess([], once).may_act and not assess([health("retirement", 5)], once).may_act


def test_an_xid_that_only_an_event_names_is_no_witness():
    named = Event(ago(9), "XID_79", "ecs", attrs={"named_by": "ECS", "id": "e/XID_79"})
    assert assess([named]).verdict == "HEALTHY"
    assert not assess([kernel("XID_79", gpu=None), named]).may_act
    impaired = reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", seen=1, since=5)
    assert "XID_79" in assess([named], fine(check=impaired)).codes, "ECS itself says what it explains"


@pytest.mark.parametrize("code", ["EC2_SPOT_INTERRUPTION", "EC2_REBALANCE", "CAPACITY_BLOCK_ENDING"])
def test_an_announcement_is_watched_and_fades(code):
    notice = Event(ago(60), code, "ec2")
    got = assess([notice])
    assert (got.verdict, got.action, got.codes, got.may_act) == ("WATCH", "NONE", (code,), False)
    assert code in assess([notice], now=NOW + timedelta(minutes=50)).codes
    assert code not in assess([notice], now=NOW + timedelta(minutes=70)).codes
