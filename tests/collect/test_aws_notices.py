"""What AWS Health says of a place and of no instance: kept as AWS last told it, shown until it is over, no evidence."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.urls import reverse

from healthboard import clock
from healthboard.diagnosis import envelopes
from healthboard.fleet import aws_notices
from healthboard.fleet.models import AwsNotice
from tests import factories

pytestmark = pytest.mark.django_db
ARN = "arn:aws:health:us-east-1::event/EC2/AWS_EC2_OPERATIONAL_ISSUE/AWS_EC2_OPERATIONAL_ISSUE_7"
REGION = "us-east-1"


@pytest.fixture
def account():
    return factories.account()


def told(account, minutes: float = 5, **changed):
    detail = {
        "eventArn": ARN, "service": "EC2", "eventTypeCode": "AWS_EC2_OPERATIONAL_ISSUE", "eventTypeCategory": "issue",
        "statusCode": "open", "eventRegion": REGION, "startTime": "Tue, 01 Dec 2026 10:00:00 GMT",
        "eventDescription": [{"language": "en_US", "latestDescription": "Loss of power in us-east-1b.\x00"}],
        **changed,
    }  # fmt: skip
    at = clock.now() - timedelta(minutes=minutes)
    body = {
        "id": f"m-{minutes}", "detail-type": "AWS Health Event", "source": "aws.health", "account": account.account_id,
        "region": REGION, "time": at.isoformat(), "detail": detail,
    }  # fmt: skip
    read = envelopes.read(json.dumps(body), account=account.account_id, region=REGION, now=clock.now())
    assert read.of_place is (not read.instances)
    return read.events


def test_it_is_kept_with_its_zone_and_times(account):
    aws_notices.keep(account, REGION, told(account, endTime="Wed, 01 Dec 2027 10:00:00 GMT"))
    one = aws_notices.standing(AwsNotice.objects).get()
    assert (one.zone, one.service, one.topic) == ("us-east-1b", "EC2", "issue")
    assert (f"{one.begun_at:%d %H}", f"{one.ends_at:%Y}") == ("01 10", "2027") and "\x00" not in one.text


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0, 1)])
def test_whatever_comes_first_what_aws_told_last_stands(account, order):
    words = [told(account, 30), told(account, 20, eventDescription=[]), told(account, 10, statusCode="closed")]
    for n in order:
        aws_notices.keep(account, REGION, words[n])
    assert AwsNotice.objects.get().closed_at is not None
    assert not aws_notices.standing(AwsNotice.objects).exists()
    aws_notices.keep(account, REGION, told(account, 1))
    assert aws_notices.standing(AwsNotice.objects).count() == 1, "AWS opened it again"


def test_one_that_ran_out_or_was_never_closed_is_not_shown_for_ever(account):
    aws_notices.keep(account, REGION, told(account, endTime="Mon, 01 Jun 2020 10:00:00 GMT"))
    aws_notices.keep(account, REGION, told(account, minutes=60 * 24 * 13, eventArn="other"))
    assert not aws_notices.standing(AwsNotice.objects.filter(arn=ARN)).exists()
    assert aws_notices.standing(AwsNotice.objects.filter(arn="other")).exists()
    AwsNotice.objects.filter(arn="other").update(told_at=clock.now() - aws_notices.SHOWN)
    assert not aws_notices.standing(AwsNotice.objects).exists()


def test_whoever_fills_the_queue_does_not_fill_the_database(account, monkeypatch):
    monkeypatch.setattr(aws_notices, "MOST", 3)
    for n in range(6):
        aws_notices.keep(account, REGION, told(account, 10 - n, eventArn=f"arn-{n}"))
    assert sorted(AwsNotice.objects.values_list("arn", flat=True)) == ["arn-3", "arn-4", "arn-5"]


def test_one_that_names_a_machine_is_no_notice_of_the_place(account):
    (event,) = told(account, affectedEntities=[{"entityValue": "i-00000000000000abc"}])
    assert event.instance == "i-00000000000000abc"


def test_it_stands_on_the_system_page_and_its_text_is_text(account, client):
    client.force_login(factories.person("viewer"))
    assert b"told of nothing" in client.get(reverse("system")).content
    words = [{"latestDescription": "<b>Power</b> lost in use1-az2"}]
    aws_notices.keep(account, REGION, told(account, eventDescription=words))
    page = client.get(reverse("system")).content.decode()
    assert "AWS_EC2_OPERATIONAL_ISSUE" in page and "use1-az2" in page
    assert "&lt;b&gt;Power" in page and "<b>Power" not in page
