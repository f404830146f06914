"""What is older than it is kept goes, in batches; what an open case or repair needs stays; the record still verifies."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command

from healthboard import clock, config
from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.cases import replay, retention
from healthboard.cases.models import Evidence, WouldHave
from healthboard.fleet import recorder
from healthboard.fleet.models import HealthEvent, Interval
from healthboard.notices.models import Delivery, Notice, Target
from healthboard.people.actors import WORKER
from tests import factories as make

DAY = 86400
LONG = datetime.now(UTC) - timedelta(days=500)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))


def _counts(**how) -> dict[str, int]:
    return {one.kind.name: one.count for one in retention.purge(**how)}


def _evidence(case) -> Evidence:
    case.evidence.update(inputs={"events": []})
    return case.evidence.get()


def _closed(on, **fields):
    return make.case(on, **{"state": "CLOSED", "opened_at": LONG, "closed_at": LONG, **fields})


def _interval(on, name, until) -> Interval:
    row = make.reading(on, name, "OK", since=LONG)
    Interval.objects.filter(pk=row.pk).update(until=until, observations=3)
    return row


def test_old_evidence_of_closed_cases_loses_its_inputs_and_nothing_else(db):
    old = _evidence(_closed(make.instance()))
    young = _evidence(_closed(make.instance(), closed_at=make.ago(10 * DAY)))
    still = _evidence(make.case(make.instance(), opened_at=LONG))
    repaired = _closed(make.instance())
    make.decision(repaired, repair=make.repair(repaired.instance))  # not carried back yet
    needed = _evidence(repaired)
    assert _counts()["evidence"] == 1
    old.refresh_from_db()
    assert set(old.inputs) == {"purged"} and old.hash and old.assessment["findings"]
    assert [Evidence.objects.get(pk=row.pk).inputs for row in (young, still, needed)] == [{"events": []}] * 3
    assert _counts()["evidence"] == 0
    with pytest.raises(replay.Purged, match="purged on"):
        replay.again(old)
    Evidence.objects.filter(inputs={"events": []}).update(inputs={})  # made up: not to be decided again after the test


def test_replay_leaves_out_what_was_purged_and_says_how_much(db):
    case = _closed(make.instance())
    case.evidence.update(at=make.ago(3600), inputs={"events": []})
    _counts()
    said = io.StringIO()
    call_command("replay", stdout=said)
    assert (
        "1 pieces of evidence cannot be decided again" in said.getvalue()
        and "0 pieces of evidence, each" in said.getvalue()
    )


def test_rehearsals_go_with_their_age_once_their_case_is_over(db):
    def noted(case, at):
        return WouldHave.objects.create(case=case, held_by="policy", mode="auto", action="REBOOT", code="X",
                                        verdict="HARDWARE", at=at)  # fmt: skip

    recent = make.ago(20 * DAY)
    noted(_closed(make.instance()), LONG)
    stay = [
        noted(make.case(make.instance(), state="OBSERVED", opened_at=LONG), LONG),
        noted(_closed(make.instance(), closed_at=recent), LONG),
        noted(_closed(make.instance(), closed_at=recent), recent),
    ]
    assert _counts()["rehearsals"] == 1
    assert set(WouldHave.objects.values_list("pk", flat=True)) == {row.pk for row in stay}


@pytest.mark.parametrize("needed", ["case", "repair", "replacement", "victim", ""])
def test_events_readings_and_recordings_go_unless_something_open_is_about_their_instance(db, needed):
    on = make.instance()
    make.event(on, at=LONG)
    make.event(on, recorder.CODE, at=LONG)
    _interval(on, "NVML", LONG)
    young = make.event(on, at=make.ago(30 * DAY))
    open_ = make.reading(on, "EC2_SYSTEM", "OK", since=LONG)
    match needed:
        case "case":
            make.case(on, state="OBSERVED")
        case "repair":
            make.repair(on)
        case "replacement":
            make.repair(make.instance(), replacement=on)
        case "victim":
            make.case(None, verdict="CORRELATED", victims=[on.instance_id])
    found = _counts()
    gone = 0 if needed else 1
    assert (found["events"], found["recorder"], found["intervals"]) == (gone, gone, gone)
    assert HealthEvent.objects.filter(pk=young.pk).exists() and Interval.objects.filter(pk=open_.pk).exists()
    assert HealthEvent.objects.count() == 3 - 2 * gone and Interval.objects.count() == 2 - gone


def _notice(thread: str, state="SENT", event="trigger", at=LONG) -> Notice:
    target = Target.objects.get_or_create(name="chat", kind="slack")[0]
    row = Notice.objects.create(key=f"{thread}-{Notice.objects.count()}", kind="case_waiting", thread=thread, event=event,
                                subject="x", created_at=at, updated_at=at, next_at=at, routed_at=at)  # fmt: skip
    Delivery.objects.create(notice=row, target=target, state=state, next_at=at, to=str(row.pk))
    return row


def test_notices_go_when_their_matter_is_over_and_nothing_is_on_its_way(db):
    closed, open_ = _closed(make.instance()), make.case(make.instance())
    gone = [_notice(f"case:{closed.pk}"), _notice(""), _notice("source:1"), _notice("source:1", event="resolve")]
    stay = [
        _notice(f"case:{open_.pk}"),
        _notice("", state="PENDING"),
        _notice("", at=make.ago(DAY)),
        _notice("source:2"),
    ]
    assert _counts()["notices"] == len(gone)
    assert set(Notice.objects.values_list("pk", flat=True)) == {row.pk for row in stay}
    assert Delivery.objects.count() == len(stay)


def _audit(at, **about) -> AuditRow:
    row = make.audit("case.note", "x", by=WORKER, payload={"said": "much"}, **about)
    return row


def test_payloads_go_but_for_what_is_open_and_the_chain_still_verifies(db, monkeypatch, time_back):
    with time_back(500):
        open_, closed = make.case(make.instance()), _closed(make.instance())
        kept, taken = _audit(LONG, case_id=open_.pk), _audit(LONG, case_id=closed.pk)
        chain.seal()
    young = _audit(None)
    monkeypatch.setattr("healthboard.audit.purge.BATCH", 1)
    assert _counts()["audit_payloads"] == 1
    payload = {row.pk: AuditRow.objects.get(pk=row.pk).payload for row in (kept, taken, young)}
    assert payload == {kept.pk: {"said": "much"}, taken.pk: None, young.pk: {"said": "much"}}
    chain.seal()
    assert chain.verify().broken == []
    said = io.StringIO()
    call_command("verify_audit", stdout=said)
    assert "every row is as it was sealed" in said.getvalue()
    before = AuditRow.objects.count()
    assert _counts()["audit_payloads"] == 0 and AuditRow.objects.count() == before, "nothing to purge writes nothing"


@pytest.fixture
def time_back(monkeypatch):
    from contextlib import contextmanager

    @contextmanager
    def back(days: float):
        then = make.ago(days * DAY)
        with monkeypatch.context() as patch:
            patch.setattr(clock, "now", lambda: then)
            yield

    return back


def test_each_purge_is_a_row_of_the_record_and_a_dry_run_changes_nothing(db):
    on = make.instance()
    for _ in range(3):
        make.event(on, at=LONG)
    assert _counts(dry_run=True)["events"] == 3 and HealthEvent.objects.count() == 3
    assert not AuditRow.objects.filter(verb=retention.VERB).exists()
    assert _counts()["events"] == 3
    row = AuditRow.objects.get(verb=retention.VERB)
    assert row.payload["count"] == 3 and row.payload["kind"] == "events" and row.actor == "healthboard:retention"


def test_a_round_that_runs_out_of_time_leaves_the_rest_for_the_next(db, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    on = make.instance()
    for _ in range(5):
        make.event(on, at=LONG)
    first = {one.kind.name: one for one in retention.purge(longest_s=-1)}["events"]
    assert (first.count, first.more) == (2, True)
    assert _counts()["events"] == 3


def test_payloads_too_go_in_batches_that_are_committed_and_leave_the_rest_for_the_next_round(
    db, monkeypatch, time_back
):
    with time_back(500):
        for _ in range(3):
            _audit(LONG)
        chain.seal()
    monkeypatch.setattr("healthboard.audit.purge.BATCH", 2)
    first = {one.kind.name: one for one in retention.purge(longest_s=-1)}["audit_payloads"]
    assert (first.count, first.more) == (2, True)
    assert AuditRow.objects.filter(verb="case.note").exclude(payload=None).count() == 1
    assert AuditRow.objects.get(verb=chain.PURGED).summary == "payloads of 2 rows purged"
    assert _counts()["audit_payloads"] == 1
    chain.seal()
    assert chain.verify().broken == []


def test_by_a_clock_that_jumped_ahead_nothing_goes(db, monkeypatch):
    from workers import pulse
    from workers.verify import tasks

    row, then = make.event(make.instance()), clock.now()
    for name in ("decide", "repair"):
        pulse.beat(name, at=then)
    with clock.virtual(then + timedelta(days=500)):
        tasks.purge()
        assert HealthEvent.objects.filter(pk=row.pk).exists()
    with clock.virtual(then + timedelta(days=500, minutes=59)):
        for name in ("decide", "repair"):
            pulse.beat(name)
        tasks.purge()
        assert HealthEvent.objects.filter(pk=row.pk).exists()
    with clock.virtual(then + timedelta(days=500, minutes=61)):
        tasks.purge()
        assert not HealthEvent.objects.filter(pk=row.pk).exists(), "it is as late as that"


def test_days_are_set_by_the_environment_and_a_bad_one_is_refused(db, monkeypatch):
    make.event(make.instance(), at=make.ago(20 * DAY))
    assert _counts()["events"] == 0
    monkeypatch.setenv("HEALTHBOARD_KEEP_EVENTS_DAYS", "0")
    assert {one.kind.name: one.before for one in retention.purge()}["events"] is None
    monkeypatch.setenv("HEALTHBOARD_KEEP_EVENTS_DAYS", "10")
    assert _counts()["events"] == 1
    monkeypatch.setenv("HEALTHBOARD_KEEP_EVENTS_DAYS", "3")
    with pytest.raises(config.BadSetting, match="at least 7"):
        retention.settings()
    with pytest.raises(CommandError, match="HEALTHBOARD_KEEP_EVENTS_DAYS=3"):
        call_command("purge")


def test_the_command_and_the_tick_purge_and_say_what_they_could_not(db, monkeypatch, caplog):
    from django.db import ProgrammingError

    from workers.verify import tasks

    make.event(make.instance(), at=LONG)
    said = io.StringIO()
    call_command("purge", dry_run=True, stdout=said)
    assert "events: 1 older than" in said.getvalue() and "would go" in said.getvalue()
    tasks.purge()
    assert not HealthEvent.objects.exists()

    def refused(*_, **__):
        raise ProgrammingError("audit rows are never changed or deleted")

    monkeypatch.setattr("healthboard.audit.purge.purge", refused)
    tasks.purge()
    assert "run manage.py purge as the tables' owner" in caplog.text
    with pytest.raises(CommandError, match="not everything could be purged"):
        call_command("purge", stdout=said)


def test_every_kind_is_described_where_settings_are(db):
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs/real-account.md").read_text()
    for kind in retention.KINDS:
        assert kind.variable in text and f"{kind.days} days" in text
    assert timedelta(days=min(kind.days for kind in retention.KINDS)) > timedelta(days=retention.LEAST_DAYS)
