"""What a person dismissed stays dismissed while its readings stand on, and is asked anew when it happens again."""

from __future__ import annotations

import pytest

from healthboard.fleet.models import Head
from tests import factories
from tests.cases import scene
from tests.cases.scene import decided


@pytest.fixture
def on(time):
    """A machine in a fleet that asks about clear failures."""
    scene.acting()
    scene.policy(mode_hardware="ask")
    return scene.machine()


def goes_on(time, seconds: float) -> None:
    """Time passes, and the sources tell the same on and on."""
    time.turn(seconds)
    Head.objects.update(last_at=factories.ago(1), count=20 + int(seconds / 15))


def test_an_xid_beside_a_reading_that_stands_on_is_not_asked_again(on, time, operator):
    gpu = factories.gpus(on, 1)[0].uuid
    scene.shows(on, "XID_95", gpu=gpu)
    factories.reading(on, "RECOVERY_ACTION", 1, channel="node", source="nvml", gpu=gpu, since=factories.ago(15))
    case = scene.read(on)
    assert (case.state, case.code, case.may_act) == ("WAITING", "XID_95", True), case.why_waiting
    decided(case, "dismiss", by=operator, reason="its reset is planned for tonight")
    goes_on(time, 600)
    again = scene.read(on)
    assert (again.pk, again.state) == (case.pk, "CLOSED")
    assert again.instance.verdict == "HARDWARE", "it is not gone, it was answered"


def test_the_same_xid_told_again_is_asked_again(on, time, operator):
    gpu = factories.gpus(on, 1)[0].uuid
    scene.shows(on, "XID_95", gpu=gpu)
    factories.reading(on, "RECOVERY_ACTION", 1, channel="node", source="nvml", gpu=gpu, since=factories.ago(15))
    case = decided(scene.read(on), "dismiss", by=operator, reason="planned").case
    goes_on(time, 600)
    scene.shows(on, "XID_95", 1, gpu=gpu)
    assert scene.read(on).pk != case.pk


@pytest.mark.parametrize("code", ["GPU_FALLEN_OFF_BUS", "GPU_INIT_FAILED"])
def test_a_line_without_a_number_that_comes_again_is_asked_again(on, time, operator, code):
    factories.event(on, code, at=factories.ago(20), text="NVRM: GPU 0000:3a:00.0: told first")
    case = decided(scene.read(on), "dismiss", by=operator, reason="known").case
    assert case.code == code
    goes_on(time, 600)
    assert scene.read(on).pk == case.pk, "nothing has happened since"
    factories.event(on, code, at=factories.ago(1), text="NVRM: GPU 0000:3a:00.0: told again")
    again = scene.read(on)
    assert again.pk != case.pk and again.state == "WAITING"
