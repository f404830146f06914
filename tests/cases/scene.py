"""Cases from real evidence, without a sandbox: rows of the fleet, events and readings, then the reading of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases.answers import decide
from healthboard.cases.models import Case
from healthboard.fleet.models import Instance, Interval, Pool, Source
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.repairs.models import Switch
from tests import factories
from workers.decide import instance as decide_instance


def acting() -> None:
    """An installation that acts; its sources see, where a test says nothing else of them."""
    Switch.objects.get_or_create(defaults={"acting": True, "changed_at": clock.now(), "changed_by": "test"})
    if not Source.objects.exists():
        seeing()


def seeing() -> None:
    """From now on, whatever the sources told before."""
    Source.objects.filter(name__in=["ec2", "ecs", "autoscaling"], scope="").delete()
    for name in ("ec2", "ecs", "autoscaling"):
        factories.source(name)


def solo(**fields: Any) -> Pool:
    return factories.pool("solo", "TEMPLATE", **fields)


def machine(home: Pool | None = None, **fields: Any) -> Instance:
    values = {"template_id": "lt-0abc", "template_version": "2", "group_name": "", "group_state": "", **fields}
    return factories.instance(home or solo(), **values)


def shows(on: Instance, code: str = "XID_119", seconds: float = 20, **fields: Any) -> None:
    """The kernel said so, `seconds` ago."""
    factories.event(on, code, at=factories.ago(seconds), text=f"NVRM: Xid (PCI:0000:3a:00): {code[4:]}, x", **fields)


def lost(on: Instance, gpu: str, seconds: float = 60) -> Interval:
    """NVML has read this GPU as lost, several times."""
    return factories.reading(on, "GPU_STATUS", "lost", channel="node", source="nvml", gpu=gpu,
                             since=factories.ago(seconds), count=20)  # fmt: skip


def read(on: Instance) -> Case | None:
    decide_instance.read(on.pk)
    return Case.objects.filter(instance=on).order_by("-pk").first()


def asked(code: str = "XID_119", home: Pool | None = None, **fields: Any) -> Case:
    """A case that waits for a person."""
    acting()
    on = machine(home, **fields)
    shows(on, code)
    case = read(on)
    assert case is not None and case.state == "WAITING", case and (case.state, case.why_waiting, case.mode_why)
    return case


def decided(case: Case, kind: str = "approve", *, by: Any, **more: Any):
    case.refresh_from_db()
    values = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash, **more}
    return decide(case.pk, actor=by, kind=kind, **values)


def policy(**settings: Any) -> PolicyVersion:
    """The fleet default with other settings."""
    made = Policy.objects.create(name="for this test", is_default=True, settings=settings)
    data = {"name": made.name, "enabled": True, "is_default": True, "settings": settings}
    made.current = PolicyVersion.objects.create(policy=made, number=1, data=data, saved_at=clock.now())
    made.save()
    return made.current


def refusals(case: Case) -> list[str]:
    return list(
        AuditRow.objects.filter(case_id=case.pk, verb="case.refused").order_by("pk").values_list("summary", flat=True)
    )


class at:
    """A clock of the test's own that can be turned."""

    def __init__(self) -> None:
        self.now = clock.now()

    def __enter__(self) -> at:
        clock._virtual = self.now
        return self

    def __exit__(self, *_: Any) -> None:
        clock._virtual = None

    def turn(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        clock._virtual = self.now
