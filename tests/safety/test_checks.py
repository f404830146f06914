"""What the checks of the trials read from AWS's log."""

from __future__ import annotations

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from healthboard.sandbox.status import status
from tests.safety.checks import carried_out
from tests.sandbox.conftest import Fleet


@pytest.fixture
def fleet(tmp_path):
    made = Fleet(tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("how", "done"), [("error", False), ("drop_before", False), ("drop_after", True), ("error_after", True)]
)
def test_a_call_counts_by_its_effect_and_not_by_its_answer(fleet, how, done):
    fleet.engine.sandbox.set_rules([{"operation": "EnterStandby", "do": how, "times": 1}])
    one = fleet.pool("train")[0].id
    with pytest.raises((ClientError, BotoCoreError)):
        fleet.asg.enter_standby(
            AutoScalingGroupName="train-asg", InstanceIds=[one], ShouldDecrementDesiredCapacity=True
        )
    log = [c for c in status(fleet.engine.sandbox, fleet.url)["calls"] if c["target"] == one]
    assert [c["operation"] for c in log] == ["EnterStandby"]
    assert carried_out(log) == log * done
