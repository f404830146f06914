"""Each source that can go blind, taken away through the sandbox's controls: it shows as blind, what rests on it is held,
and nothing else is. A source that ends because we drain is the subject of `test_exporters`."""

from __future__ import annotations

import pytest

from healthboard import clock
from healthboard.fleet import sources as sight
from healthboard.fleet.models import AwsNotice, HealthEvent, Interval, Source
from healthboard.fleet.seeing import why_blind
from healthboard.repairs.models import Repair
from healthboard.sandbox import control
from tests.sandbox.conftest import REGION
from workers.collect import events, exporters, store


@pytest.fixture
def fleet(db, drives):
    """Three machines of a launch template whose exporters are read as often as AWS is."""
    made = drives("solo=template:3")
    made.fleet.engine.exporters.start()

    def scrape():
        if made._turn("scrape", 5):
            made.fleet.engine.exporters.look()
            Source.objects.filter(name="dcgm").update(attempted_at=None)
            exporters.collect(store.account_of(made.account.account_id), REGION)

    made.due["scrape"] = 0.0
    made.hands.append(scrape)
    made.steps(2, 5)
    return made


def ask(fleet, path, **body):
    return control.handle(fleet.fleet.engine.sandbox, fleet.fleet.url, path, body)


def blind_to(fleet, machine) -> str:
    """Why the exporter of this machine is a blind spot; empty where it is none."""
    gaps = Interval.objects.filter(instance=fleet.row(machine), source="dcgm", name="GAP", until=None)
    return gaps.values_list("value", flat=True).first() or ""


def test_an_exporter_that_is_down_holds_what_it_alone_shows_and_nothing_else(fleet):
    alone, beside = fleet.machine("solo", 0), fleet.machine("solo", 1)
    fleet.inject(alone, "MONITORING_GAP")  # its reporter is silent: only the exporter sees its GPUs
    fleet.inject(alone, "ROW_REMAP_FAILURE", 2)
    case = fleet.opened(alone, 60)
    assert (case.code, case.verdict) == ("ROW_REMAP_FAILURE", "HARDWARE")
    for machine in (alone, beside):
        fleet.inject(machine, "DCGM_UNREACHABLE")
    fleet.inject(beside, "XID_79", 1)
    fleet.until(lambda: blind_to(fleet, alone) and blind_to(fleet, beside), 60)
    assert "refused" in blind_to(fleet, alone)
    assert "exporters do not answer" in Source.objects.get(name="dcgm").error
    fleet.until(lambda: fleet.calls(beside), 120, 2)  # kernel log and NVML see what it rests on
    assert fleet.calls(alone) == {}, "what was seen by the exporter alone is held"
    fleet.until(lambda: fleet.row(alone).verdict == "UNKNOWN", 30)
    fleet.mend(alone, "DCGM_UNREACHABLE")
    fleet.until(lambda: not blind_to(fleet, alone), 60)
    fleet.until(lambda: fleet.row(alone).verdict == "HARDWARE", 60)
    fleet.sound()


def test_while_aws_is_off_a_nodes_own_report_schedules_nothing_and_sight_decides(db, drives):
    drive = drives("solo=template:3")
    drive.steps(2, 5)
    machine = drive.machine("solo")
    drive.fleet.engine.sandbox.set_mode("off")
    drive.until(lambda: len(why_blind(drive.row(machine), clock.now())) == 2, 120, 5)
    drive.inject(machine, "XID_79", 0)
    case = drive.opened(machine)
    drive.steps(10, 5)
    case.refresh_from_db()
    assert (case.verdict, case.mode, case.state, case.expires_at) == ("HARDWARE", "auto", "WAITING", None)
    assert "is blind" in case.why_waiting and "ec2" in case.why_waiting, "it says which"
    assert not Repair.objects.exists() and drive.calls() == {}
    drive.fleet.engine.sandbox.set_mode("ok")
    assert drive.repaired(machine).outcome == "REPLACED"
    assert Repair.objects.get().opened_at > case.opened_at
    drive.sound()


def test_a_lost_queue_is_blind_and_a_notice_of_a_zone_is_no_fault_of_a_machine(fleet):
    machine = fleet.machine("solo")
    with pytest.raises(control.BadRequest, match="ok, lost"):
        ask(fleet, "queue", mode="gone")
    with pytest.raises(control.BadRequest, match="HEALTHBOARD_EXPORTERS"):  # the sandbox was started without them
        ask(fleet, "inject", instances=[machine.id], code="DCGM_UNREACHABLE")
    ask(fleet, "inject", instances=[machine.id], code="AWS_HEALTH_NOTICE")
    place = (fleet.account, REGION)
    notices = AwsNotice.objects.all()
    fleet.until(lambda: notices.count(), 60)
    assert (notices.get().zone, notices.get().topic, notices.get().closed_at) == (machine.zone, "issue", None)
    ask(fleet, "queue", mode="lost")
    Source.objects.update(attempted_at=None)
    assert events.collect(*place) is False
    source = Source.objects.get(name="events")
    assert "NonExistentQueue" in source.error and source.good_rounds == 0
    fleet.steps(5, 5)
    assert sight.blind(source, clock.now()) and why_blind(fleet.row(machine), clock.now()) == []
    ask(fleet, "inject", instances=[machine.id], code="AWS_HEALTH_NOTICE", clear=True)
    ask(fleet, "queue", mode="ok")
    Source.objects.update(attempted_at=None)
    assert events.collect(*place) and notices.get().closed_at is not None
    assert not HealthEvent.objects.filter(code="AWS_HEALTH_EVENT").exists() and fleet.case(machine) is None
    assert not sight.blind(Source.objects.get(name="events"), clock.now())
