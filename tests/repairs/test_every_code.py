"""Each code that can be injected leads, through the whole loop, to the case, notice or silence that its table row says.

One fleet with a machine for each code; repairs are not carried on, and breadth, which would rightly hold so many, is out.
"""

from __future__ import annotations

import pytest

from healthboard.cases.models import Case
from healthboard.diagnosis.correlate import Bounds
from healthboard.fleet.models import AwsNotice, Instance
from healthboard.notices.models import Notice
from healthboard.sandbox.faults import FAULTS
from workers.decide import breadth

#: what a host that is away needs beyond its verdict: the default policy asks a person
ASKED = {"EC2_SYSTEM_IMPAIRED"}
#: UNKNOWN at first; an agent that stays away beyond the policy's time is asked about, a planned reconnect is over soon
LATER = {
    "ECS_AGENT_DISCONNECTED": ("AMBIGUOUS", "DIAGNOSE"),
    "AGENT_BLINK": ("HEALTHY", "NONE"),
    "DCGM_UNREACHABLE": ("HEALTHY", "NONE"),  # no exporter is read in this fleet
}


@pytest.fixture
def everything(db, drives, monkeypatch):
    monkeypatch.setattr(breadth, "BOUNDS", Bounds(same_code=999, same_code_small=999, any_code=999, soft_count=999))
    drive = drives(f"solo=template:{len(FAULTS)}")
    drive.working = False
    return drive


def test_each_code_leads_to_what_its_row_says(everything):
    machines = dict(zip(FAULTS, everything.fleet.pool("solo"), strict=True))
    for code, machine in machines.items():
        everything.inject(machine, code, 3 if FAULTS[code].on_gpu else None)
    everything.steps(25, 2)
    wrong = {}
    for code, machine in machines.items():
        if (found := _outcome(machine.id)) != (wanted := _wanted(code)):
            wrong[code] = f"{found}, not {wanted}"
    assert not wrong
    notice = AwsNotice.objects.get()
    assert (notice.topic, notice.zone) == ("issue", machines["AWS_HEALTH_NOTICE"].zone)
    told = list(Notice.objects.filter(kind="workload").values_list("subject", "tally"))
    for code in (c for c, f in FAULTS.items() if f.verdict == "WORKLOAD"):
        assert any(code in subject and machines[code].id in tally for subject, tally in told), code


def _wanted(code: str) -> tuple[str, ...]:
    fault = FAULTS[code]
    verdict, action = LATER.get(code, (fault.verdict, fault.action))
    if verdict == "HARDWARE":
        return "case", verdict, action, "WAITING" if code in ASKED else "DECIDED"
    if verdict == "AMBIGUOUS":
        return "case", verdict, action, "WAITING"
    return "no case", verdict


def _outcome(instance_id: str) -> tuple[str, ...]:
    row = Instance.objects.get(instance_id=instance_id)
    case = Case.objects.filter(instance=row).first()
    if case is None:
        return "no case", row.verdict
    return "case", case.verdict, case.action, case.state
