"""A made-up fleet is whole: it breaks no rule, its record is sealed, and a seed gives it again."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.cases.invariants import check
from healthboard.cases.models import Case, Evidence
from healthboard.fleet.models import Gpu, Instance, Interval, JobStop, Task
from healthboard.policies.versions import ensure_default
from healthboard.repairs.models import Repair
from healthboard.seed.fill import Refused, fill


@pytest.fixture(autouse=True)
def ready(db):
    ensure_default()


def _picture() -> list:
    return [
        list(Instance.objects.order_by("instance_id").values_list("instance_id", "zone", "verdict", "verdict_code")),
        list(Gpu.objects.order_by("uuid").values_list("uuid", "serial", "status")),
        list(Task.objects.order_by("arn").values_list("arn", "job")),
        list(Case.objects.order_by("title", "code").values_list("title", "state", "resolution", "action")),
        list(Repair.objects.order_by("instance__instance_id", "pk").values_list("action", "state", "outcome")),
    ]


def test_it_breaks_no_invariant_and_every_row_is_sealed():
    before = AuditRow.objects.count()
    made = fill(60)
    assert check() == []
    seen = chain.verify()
    assert seen.broken == [] and seen.seals == AuditRow.objects.count() == before + made.audit
    live = Instance.objects.filter(gone_at=None)
    assert live.count() == 60 and Gpu.objects.filter(instance__in=live).count() == 480
    assert set(Case.objects.values_list("state", flat=True)) >= {"WAITING", "DECIDED", "SNOOZED", "CLOSED", "HELD"}
    assert set(Repair.objects.values_list("state", flat=True)) == {"RUNNING", "ASKING", "SUCCEEDED"}
    stop = JobStop.objects.get()
    assert len(stop.nodes) > 1 and not Task.objects.filter(job=stop.name).exists()
    assert Task.objects.filter(workload__kind="SERVICE").exists() and Interval.objects.filter(value="lost").exists()
    # that each piece of evidence is decided again as it was is checked after every test; here there must be some
    assert Evidence.objects.exclude(inputs={}).count() == Case.objects.exclude(instance=None).count()


def test_a_seed_gives_the_same_fleet_again_and_another_seed_another():
    seen = []
    for seed in (3, 3, 4):
        with transaction.atomic():
            fill(20, days=20, seed=seed)
            seen.append(_picture())
            transaction.set_rollback(True)
    assert seen[0] == seen[1] != seen[2]


def test_a_database_that_holds_instances_is_added_to_only_by_word():
    fill(4, days=0)
    with pytest.raises(Refused, match="--add"):
        fill(4, days=0, seed=2)
    with pytest.raises(Refused, match="seed 1 is in this database already"):
        fill(4, days=0, add=True)
    fill(4, days=0, seed=2, add=True)
    assert Instance.objects.filter(gone_at=None).count() == 8


def test_the_command_says_what_it_made_and_refuses_what_it_cannot_do(settings):
    out = StringIO()
    call_command("seed", "--instances", "3", "--days", "0", stdout=out)
    assert out.getvalue().startswith("3 instances, 24 GPUs")
    for bad in (["--instances", "0"], ["--instances", "3", "--days", "-1"], ["--instances", "3", "--seed", "-1"]):
        with pytest.raises(CommandError, match="must be"):
            call_command("seed", *bad)
    settings.SANDBOX = False
    with pytest.raises(CommandError, match="sandbox mode only"):
        call_command("seed", "--instances", "3", "--add", "--seed", "9")
    assert Instance.objects.count() == 3
