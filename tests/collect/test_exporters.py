"""dcgm-exporters through the collector: what their text becomes, and what their silence becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from healthboard import clock, config
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet import evidence, record
from healthboard.fleet.models import Head, HealthEvent, Interval, Source
from healthboard.fleet.queries import checks
from healthboard.fleet.sources import blind
from tests import factories
from tests.collect.answers import Answers, http
from tests.collect.conftest import again
from tests.collect.test_evidence import told
from workers.collect import exporters, tasks

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def uuid(n: int) -> str:
    return f"GPU-{n:08d}-1111-4222-8333-444444444444"


def text(power: float = 0.5, gpus=range(8), extra: str = "", drop: str = "") -> bytes:
    rows = []
    for n in gpus:
        labels = f'gpu="{n}",UUID="{uuid(n)}",pci_bus_id="00000000:{0x3B + n:X}:00.0",modelName="NVIDIA H100 80GB HBM3"'
        values = {
            "XID_ERRORS": 0,
            "GPU_TEMP": 40,
            "POWER_USAGE": 300 + n + power,
            "ROW_REMAP_FAILURE": 0,
            "CLOCK_THROTTLE_REASONS": 5,
        }
        rows += [f"DCGM_FI_DEV_{k}{{{labels}}} {v}" for k, v in values.items() if k != drop]
    return ("\n".join(rows) + "\n" + extra).encode()


def series(name: str, value: object, gpu: int = 3, **labels: str) -> str:
    more = "".join(f',{k}="{v}"' for k, v in labels.items())
    return f'{name}{{gpu="{gpu}",UUID="{uuid(gpu)}"{more}}} {value}\n'


class Scene:
    """Machines with an exporter each, and a clock that moves by a round."""

    def __init__(self, answers: Answers) -> None:
        self.answers, self.at, self.power = answers, START, 0.5
        self.machines = [self.machine(n) for n in range(1, 4)]
        self.one = self.machines[0]

    def machine(self, n: int, **fields):
        made = factories.instance(private_ip=f"10.66.2.{n}", **fields)
        self.says(made, None)
        return made

    def says(self, machine, body: bytes | None) -> None:
        """None: a healthy exporter, whose power moves from scrape to scrape."""
        host = exporters.address(machine.private_ip)
        if body is None:

            async def well(writer):
                writer.write(http(text(self.power)))

            self.answers.at(host, well)
        else:
            self.answers.at(host, http(body))

    def round(self, seconds: float = 30) -> bool:
        self.at += timedelta(seconds=seconds)
        self.power += 0.25
        clock._virtual = self.at
        again()
        return exporters.collect(self.one.account, self.one.region)

    def rounds(self, count: int, seconds: float = 30) -> None:
        for _ in range(count):
            self.round(seconds)

    def assess(self, machine=None):
        machine = machine or self.one
        machine.refresh_from_db()
        for source in ("ec2", "ecs"):  # these go on as ever
            names = {"ec2": {"EC2_STATE": "running", "EC2_SYSTEM": "OK"}, "ecs": {"AGENT_CONNECTIVITY": "OK"}}[source]
            record.record(machine, source, self.at, [told(k, v, source) for k, v in names.items()], [])
        events, readings, context = evidence.load(machine, now=self.at)
        return evaluate(events, readings, now=self.at, context=context)

    def source(self) -> Source:
        return Source.objects.get(name="dcgm")

    def gap(self, machine=None):
        found = Interval.objects.filter(instance=machine or self.one, name="GAP", until=None).first()
        return found and found.value


@pytest.fixture(scope="module")
def answers():
    made = Answers()
    yield made
    made.close()


@pytest.fixture
def scene(answers, monkeypatch):
    monkeypatch.setattr(exporters, "port", lambda: answers.port)
    monkeypatch.setattr("healthboard.clock.scaled", lambda s: s if isinstance(s, timedelta) else timedelta(seconds=s))
    with clock.virtual(START):
        yield Scene(answers)


def test_well_gpus_are_read_and_unchanged_rounds_add_nothing(scene):
    assert scene.round() is True
    rows = set(Interval.objects.filter(instance=scene.one).values_list("pk", flat=True))
    scene.rounds(3)
    assert set(Interval.objects.filter(instance=scene.one).values_list("pk", flat=True)) == rows
    got = scene.assess()
    assert (got.verdict, got.codes) == (Verdict.HEALTHY, ())
    assert Head.objects.get(instance=scene.one, channel="dcgm").count == 4
    assert (scene.source().error, blind(scene.source(), scene.at)) == ("", False)
    shown = {check.title: check.status for check in checks(scene.one) if check.by == "dcgm"}
    assert shown == {"Exporter": "OK", "GPU count by its exporter": "OK"}


def test_a_fault_is_read_from_it(scene):
    scene.says(scene.one, text(extra=series("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1)))
    scene.rounds(2)
    got = scene.assess()
    assert (got.verdict, got.codes, got.primary.gpu, got.primary.sources) == (
        Verdict.HARDWARE, ("ROW_REMAP_FAILURE",), uuid(3), ("dcgm",),
    )  # fmt: skip


def test_a_gpu_without_series_is_missing_and_one_with_sentinels_alone_too(scene):
    scene.says(scene.one, text(gpus=range(7)))
    scene.rounds(2)
    assert scene.assess().codes == ("GPU_MISSING",)
    blanks = "".join(series(f"DCGM_FI_DEV_{name}", 2147483634, 7) for name in ("GPU_TEMP", "MEMORY_TEMP"))
    scene.says(scene.machines[1], text(gpus=range(7), extra=blanks))
    scene.rounds(2)
    assert scene.assess(scene.machines[1]).codes == ("GPU_MISSING",)


def test_an_exporter_that_an_xid_blinded_has_lost_no_gpu(scene):
    """After 119 DCGM asks the driver of the whole host nothing any more."""
    scene.says(scene.one, series("DCGM_FI_DEV_XID_ERRORS", 119, 2).encode())
    scene.rounds(2)
    got = scene.assess()
    assert (got.verdict, got.codes, got.may_act) == (Verdict.AMBIGUOUS, ("XID_119",), False)


def test_mig_instances_are_their_gpu(scene):
    rows = "".join(series("DCGM_FI_DEV_FB_USED", 5 + n, 0, GPU_I_ID=str(n), GPU_I_PROFILE="1g.10gb") for n in range(7))
    rows += series("DCGM_FI_DEV_GPU_UTIL", 4294967295, 0, GPU_I_ID="1")
    scene.says(scene.one, text(extra=rows))
    scene.rounds(2)
    assert scene.assess().verdict is Verdict.HEALTHY
    assert Interval.objects.get(instance=scene.one, name="GPU_COUNT").value == 8


def test_a_counted_xid_is_told_once_and_again_only_when_it_is_counted_more(scene):
    def counted(n):
        extra = series("DCGM_EXP_XID_ERRORS_COUNT", n, xid="31", window_size_in_ms="300000") if n else ""
        scene.says(scene.one, text(scene.power, extra=extra))
        scene.round()

    for n in (1, 1, 1, 2, 2, 0, 0, 1):
        counted(n)
    told = HealthEvent.objects.filter(instance=scene.one, code="XID_31", source="dcgm", gpu=uuid(3))
    assert sum(told.values_list("count", flat=True)) == 3


def test_a_count_of_an_hour_ago_is_not_the_one_of_now(scene):
    """The exporter counts over five minutes: one then and one now are two."""
    for moves in (True, True, False):  # the last answer is the one before it again: nothing happened
        if moves:
            scene.says(scene.one, text(scene.power, extra=series("DCGM_EXP_XID_ERRORS_COUNT", 1, xid="31")))
        scene.round(seconds=400)
    assert HealthEvent.objects.filter(instance=scene.one, code="XID_31").count() == 2


def test_clock_reasons_that_come_and_go_with_the_load_are_no_change(scene):
    for reasons in (0x1, 0x4, 0x0, 0x44):
        scene.says(scene.one, text(scene.power, drop="CLOCK_THROTTLE_REASONS",
                                   extra=series("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", reasons)))  # fmt: skip
        scene.round()
    rows = Interval.objects.filter(instance=scene.one, name="CLOCK_EVENTS").order_by("since")
    assert list(rows.values_list("value", flat=True)) == [0, 0x40]


def test_a_counter_that_falls_is_a_restart_and_one_that_rises_is_a_fault(scene):
    for value in (7, 7, 0):
        scene.says(scene.one, text(scene.power, extra=series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", value)))
        scene.round()
    assert scene.assess().codes == ()
    scene.says(scene.one, text(scene.power, extra=series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1)))
    scene.round()
    assert scene.assess().codes == ("ECC_UNCORRECTED",)


def test_an_exporter_that_freezes_says_nothing_until_it_moves_again(scene):
    bad = text(0.125, extra=series("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1))
    scene.says(scene.one, bad)
    scene.rounds(6)
    assert scene.assess().verdict is Verdict.HARDWARE  # an exporter may read its GPUs every minute or two
    scene.rounds(4)
    got = scene.assess()
    assert got.verdict is Verdict.UNKNOWN and "power readings stand still" in got.why
    scene.says(scene.one, None)
    scene.round()
    assert scene.assess().verdict is Verdict.HEALTHY


def test_samples_that_carry_an_old_time_say_nothing(scene):
    rows = text(drop="POWER_USAGE").decode().splitlines()

    def stamped(at: datetime) -> bytes:
        return "".join(f"{row} {int(at.timestamp() * 1000)}\n" for row in rows).encode()

    scene.says(scene.one, stamped(START))
    scene.round()
    assert scene.assess().verdict is Verdict.HEALTHY
    scene.rounds(10)
    assert "by the times that they carry" in scene.assess().why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http(b"", status="503 Service Unavailable"), "it answers 503"),
        (http(b"\xff\xfe DCGM"), "the answer is not UTF-8"),
        (http(b"# HELP nothing here\n"), "the answer has no series of a GPU"),
        (http(b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 999\n'), "the answer has no series of a GPU"),
        (http(text(gpus=range(65))), "the answer tells of 65 GPUs, at most 64 are read"),
        (http(b"DCGM_x 1\n" * 50_001), "the answer has 50001 series, at most 50000 are read"),
        (
            http("".join(series("DCGM_EXP_XID_ERRORS_COUNT", 1, xid=str(n)) for n in range(1, 300)).encode()),
            "the answer counts 299 kinds of Xid, at most 256 are read",
        ),
    ],
)
def test_what_is_no_answer_makes_its_machine_unknown_and_no_other(scene, answer, why):
    """Never well, never sick; and not at the first pause."""
    scene.rounds(2)
    scene.answers.at(exporters.address(scene.one.private_ip), answer)
    scene.rounds(2)
    assert scene.assess().verdict is Verdict.HEALTHY and scene.gap() is None
    scene.rounds(3)
    got = scene.assess()
    assert (got.verdict, got.may_act, scene.gap()) == (Verdict.UNKNOWN, False, why)
    assert f"dcgm: {why}" in got.why
    assert Head.objects.get(instance=scene.one, channel="dcgm").last_at == scene.at  # confirmed at each round
    assert scene.assess(scene.machines[1]).verdict is Verdict.HEALTHY
    assert "1 of 3 exporters do not answer" in scene.source().error and not blind(scene.source(), scene.at)
    shown = next(check for check in checks(scene.one) if check.title == "Exporter")
    assert (shown.status, shown.value) == ("INSUFFICIENT_DATA", why)
    scene.says(scene.one, None)
    scene.round()
    assert scene.assess().verdict is Verdict.HEALTHY


def test_a_sick_gpu_whose_exporter_goes_is_no_longer_called_sick_by_it(scene):
    scene.says(scene.one, text(extra=series("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1)))
    scene.rounds(2)
    scene.answers.at(exporters.address(scene.one.private_ip), b"")
    scene.rounds(5)
    got = scene.assess()
    assert (got.verdict, got.may_act) == (Verdict.UNKNOWN, False)


def test_all_gone_is_a_blind_source(scene):
    scene.rounds(2)
    for machine in scene.machines:
        scene.answers.at(exporters.address(machine.private_ip), b"")
    assert scene.round() is False
    scene.rounds(4)
    assert blind(scene.source(), scene.at) and scene.source().good_rounds == 0
    assert "none of 3 exporters" in scene.source().error
    assert {scene.assess(m).verdict for m in scene.machines} == {Verdict.UNKNOWN}


def test_what_falls_silent_because_it_is_drained_blocks_nothing(scene):
    """The exporter is a daemon task as a rule, and those stop on DRAINING."""
    scene.rounds(2)
    type(scene.one).objects.filter(pk=scene.one.pk).update(ecs_status="DRAINING")
    scene.answers.at(exporters.address(scene.one.private_ip), b"")
    scene.rounds(12)
    record.record(scene.one, "node", scene.at, [told("NVML", "ok", "nvml"), told("GPU_COUNT", 8, "nvml")], [])
    got = scene.assess()
    assert (got.verdict, scene.gap()) == (Verdict.HEALTHY, exporters.DRAINED)
    assert scene.source().error == ""  # it is missed nowhere
    type(scene.one).objects.filter(pk=scene.one.pk).update(ecs_status="ACTIVE")
    scene.rounds(2)
    assert scene.assess().verdict is Verdict.UNKNOWN  # it serves again: now it is missed


def test_a_round_that_ran_out_of_time_says_nothing_of_those_it_did_not_reach(scene, monkeypatch):
    monkeypatch.setattr(exporters.fetch, "Limits", partial(exporters.fetch.Limits, overall_s=0.0))
    scene.rounds(5)
    assert not Head.objects.filter(channel="dcgm").exists()
    assert "the round ended before its turn" in scene.source().error and blind(scene.source(), scene.at)


def test_only_running_machines_with_gpus_are_asked(scene):
    fields = {"gpus_expected": 0}, {"state": "stopped"}, {"private_ip": None}
    for machine, changed in zip(scene.machines, fields, strict=True):
        type(machine).objects.filter(pk=machine.pk).update(**changed)
    asked = len(scene.answers.asked)
    assert scene.round() is True and len(scene.answers.asked) == asked


def test_a_terminated_machine_is_asked_nothing_and_blocks_nothing(scene):
    scene.rounds(2)
    type(scene.one).objects.filter(pk=scene.one.pk).update(state="terminated", gone_at=scene.at)
    asked = len(scene.answers.asked)
    assert scene.round() is True
    host = exporters.address(scene.one.private_ip)
    assert host not in {address for address, _ in scene.answers.asked[asked:]}
    assert scene.source().error == ""


def test_a_reboot_begins_its_readings_anew(scene):
    """What was read before it is not carried over into the new boot, even where it is the same again."""
    scene.says(scene.one, text(extra=series("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 2)))
    scene.rounds(2)
    assert scene.assess().codes == ("GPU_RECOVERY_ACTION",)
    booted = scene.at + timedelta(seconds=10)
    scene.at = booted + timedelta(seconds=5)
    at = scene.at
    record.record(scene.one, "node", at, [told("BOOT_ID", "new", "node", booted_at=booted.isoformat())], [])
    type(scene.one).objects.filter(pk=scene.one.pk).update(boot_id="new", booted_at=booted)
    got = scene.assess()
    assert (got.verdict, "dcgm: nothing was heard since the last boot" in got.why) == (Verdict.UNKNOWN, True)
    scene.round()
    since = Interval.objects.get(instance=scene.one, name="RECOVERY_ACTION", until=None).since
    assert since == scene.at
    scene.says(scene.one, text(extra=series("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", 0)))
    scene.round()
    assert scene.assess().verdict is Verdict.HEALTHY


@pytest.mark.parametrize("value", ["10.66.2.1", "8.8.8.8", "169.254.169.254", "fd00::1"])
def test_the_sandbox_reaches_loopback_whatever_the_inventory_says(value):
    if ":" in value:
        with pytest.raises(ValueError, match="not on loopback"):
            exporters.address(value)
    else:
        assert exporters.address(value).startswith("127.")


def test_elsewhere_neither_this_machine_nor_the_metadata_service_is_a_node(monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    assert [exporters.address(a) for a in ("10.0.0.7", "fd00::7")] == ["10.0.0.7", "fd00::7"]
    for bad in ("127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1"):
        with pytest.raises(ValueError, match="none of a machine"):
            exporters.address(bad)


def test_off_is_the_default_and_a_list_of_pools_keeps_to_them(scene, monkeypatch):
    assert config.exporters() is None
    tasks.exporters()
    assert not Source.objects.filter(name="dcgm").exists()
    monkeypatch.setenv("HEALTHBOARD_EXPORTERS", "train, infer")
    asked = len(scene.answers.asked)
    other = scene.machine(9)
    other.pool = factories.pool("solo", kind="TEMPLATE")
    other.save()
    scene.round()
    hosts = {address for address, _ in scene.answers.asked[asked:]}
    assert hosts == {exporters.address(m.private_ip) for m in scene.machines}
    assert Head.objects.filter(channel="dcgm").count() == 3
