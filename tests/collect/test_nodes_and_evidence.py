"""The sandbox's nodes enrol and report over HTTP; a broken GPU ends in a verdict with its witness."""

from __future__ import annotations

import time

import pytest

from healthboard import clock
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet import evidence
from healthboard.fleet.models import Gpu, Head, Instance, Source
from tests.collect.conftest import ACCOUNTS, control, rounds, start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reporting(live_server, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "enrol.key").write_text("key-of-this-test")
    started = start(tmp_path, HEALTHBOARD_WEB_URL=live_server.url, HEALTHBOARD_SANDBOX_NODES="on")
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    yield started
    started.process.terminate()
    started.process.wait(10)


def wait(what, seconds=25.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError("it did not happen in time")


def assess(one):
    one.refresh_from_db()
    now = clock.now()
    events, readings, context = evidence.load(one, now=now)
    return evaluate(events, readings, now=now, context=context)


def test_from_the_first_report_to_a_verdict(reporting):
    from healthboard.fleet.models import Account

    account = Account.objects.create(account_id=ACCOUNTS[0])
    rounds(account)
    expected = Instance.objects.filter(pool__name__in=["train", "solo"]).count()
    reporters = Head.objects.filter(channel="node", instance__pool__name__in=["train", "solo"], count__gte=2)
    wait(lambda: reporters.count() == expected)
    one = Instance.objects.filter(pool__name="solo").first()
    assert Gpu.objects.filter(instance=one, status="ok").count() == 8
    assert Source.objects.get(name="node").good_rounds >= 1
    wait(lambda: rounds(account, count=1) or assess(one).verdict is Verdict.HEALTHY)  # an agent may just blink

    control(reporting, "inject", instances=[one.instance_id], code="XID_79", gpu=3)
    broken = wait(lambda: (found := assess(one)).may_act and found)
    assert broken.verdict is Verdict.HARDWARE and broken.codes[0] == "XID_79"
    assert broken.primary.gpu == Gpu.objects.get(instance=one, index=3).uuid
    others = [assess(i) for i in Instance.objects.filter(pool__name="train")]
    assert {o.verdict for o in others} <= {Verdict.HEALTHY, Verdict.UNKNOWN} and not any(o.may_act for o in others)
