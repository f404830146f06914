"""The situations in which nothing happens, one after the other in one fleet: what a person then sees, for the docs.

python tests/browser/situations.py FOLDER [name …]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DAY = 86400


def fill() -> None:
    """People, a fleet that is well, and sources that tell."""
    from tests import factories as make
    from tests.browser.scene import people

    people()
    make.switch()
    for region in (make.REGION, "eu-west-1", "us-west-2"):
        for name, scope in (("ec2", ""), ("autoscaling", ""), ("ecs", "")):
            make.source(name, scope=scope, region=region, interval_s=60)
    for home in (make.pool("train"), make.pool("infer", desired=6), make.pool("solo", "TEMPLATE")):
        for _ in range(6):
            make.task(make.instance(home))


def calm() -> None:
    """What the situation before it left behind for all pages is over."""
    from healthboard import clock
    from healthboard.cases import alarm
    from healthboard.cases.models import Case
    from healthboard.fleet.models import Instance, Pulse, Source
    from healthboard.repairs.models import Breaker, Occupancy, Repair
    from tests import factories as make

    now = clock.now()
    Instance.objects.exclude(verdict="HEALTHY").update(gone_at=now, state="terminated")
    Case.objects.filter(closed_at=None).update(state="CLOSED", resolution="REPAIRED", closed_at=now)
    Repair.objects.filter(closed_at=None).update(state="CANCELLED", closed_at=now, why_waiting="")
    Occupancy.objects.filter(released_at=None).update(released_at=now)
    make.switch()
    alarm.keep([])
    Breaker.objects.filter(released_at=None).update(released_at=now, released_by="admin", release_reason="over")
    Source.objects.update(
        succeeded_at=now, attempted_at=now, good_rounds=40, error="", watched_from=None, interval_s=60
    )
    for name in ("breadth", "breakers", "canary", "decide", "repair"):
        Pulse.objects.update_or_create(name=name, defaults={"at": now, "ok": True})


def _plan(home: Any, action: str = "REPLACE", **fields: Any) -> dict[str, Any]:
    """A plan without what this situation is not about."""
    from tests import factories as make

    size = home.desired or 6
    allowed = 1 if size < 9 else size // 5
    values = {
        "tasks": [{"workload": "llm-train", "kind": "SERVICE", "count": 2, "standalone": False, "protected": 0}],
        "tasks_total": 2, "warnings": [], "differences": [],
        "budget": {"pool": home.name, "size": size, "allowed": allowed, "out": 0, "left": allowed},
    }  # fmt: skip
    return make.plan(action, **{**values, **fields})


def _sick(home: Any, code: str = "XID_79", **fields: Any) -> Any:
    from tests import factories as make

    verdict = fields.pop("verdict", "HARDWARE")
    on = make.instance(home, verdict=verdict, verdict_code=code, **fields)
    gpus = make.gpus(on, 8, bad={5: "lost" if code == "XID_79" else "error"})
    make.event(on, code, gpu=gpus[5].uuid)
    return on


def _repair(home: Any, *names: str, state: str = "RUNNING", code: str = "XID_79", **fields: Any) -> Any:
    """A case that was decided, and its repair at the last of the steps."""
    from tests import factories as make

    on = fields.pop("on", None) or _sick(home, code, ecs_status="DRAINING" if "drain" in names else "ACTIVE")
    title = fields.pop("title", "GPU 5 of 8 has fallen off the bus (Xid 79)")
    why = fields.pop("why", "The kernel log and NVML agree that GPU 5 is gone.")
    case = make.case(
        on, code=code, verdict="HARDWARE", action="REPLACE", state="DECIDED", mode="auto", may_act=True, title=title, why=why
    )  # fmt: skip
    repair = make.repair(on, state=state, opened_at=make.ago(1900), plan=_plan(home), **fields)
    if names:
        for step in make.steps(repair, *names):
            if step.name == "drain":
                make.call(step)
        make.occupancy(repair)
    make.decision(case, None, "auto", repair=repair)
    return repair


def _page(repair: Any) -> str:
    return f"/repairs/{repair.pk}/"


def breaker() -> str:
    from tests import factories as make

    home = make.pool("train")
    tripped = make.breaker("train", why="XID_79 on 5 of 20 instances of pool train within minutes")
    group = make.case(
        None, code="XID_79", verdict="CORRELATED", action="HOLD", breaker=tripped, pool=home,
        title="5 instances of pool train show XID_79", why=tripped.why,
        why_waiting="Automatic repair in this scope stops until a person releases it", expires_at=None,
        plan={"action": "HOLD", "sentence": "Nothing is repaired in this scope until it is released. Releasing makes "
              "each member a case of its own, repaired under the budget."},
    )  # fmt: skip
    group.evidence.all().delete()
    for _ in range(5):
        make.case(
            _sick(home, verdict="CORRELATED"), code="XID_79", verdict="CORRELATED", action="HOLD", state="HELD",
            parent=group, title="GPU 5 of 8 has fallen off the bus (Xid 79)",
        )  # fmt: skip
    return f"/cases/{group.pk}/"


def budget() -> str:
    from django.db import transaction

    from healthboard.repairs import budget
    from tests import factories as make

    home = make.pool("infer")
    _repair(home, "recheck", "room", "keep", "drain", "standby", "replacement", why_waiting="soaking")
    held = _repair(home, state="SCHEDULED")
    with transaction.atomic():
        held.why_waiting = budget.take(held, {})
    held.save()
    return _page(held)


def window() -> str:
    from healthboard import clock
    from healthboard.policies import windows
    from tests import factories as make

    night = {"windows": [f"daily {make.ago(-6 * 3600):%H:%M}-{make.ago(-10 * 3600):%H:%M} UTC"]}
    held = _repair(make.pool("train"), state="SCHEDULED", not_before=make.ago(60))
    shut = windows.closed(night, clock.now())
    held.why_waiting, held.facts = shut.why, {"opens_at": shut.opens.isoformat()}
    held.save()
    return _page(held)


def idle() -> str:
    from tests import factories as make

    held = _repair(
        make.pool("train"), state="SCHEDULED", not_before=make.ago(60),
        why_waiting="Not idle: waiting until no job runs on it (job llm-pretrain/run-7); a person is asked at "
        f"{make.ago(-20 * 3600):%Y-%m-%d %H:%M} UTC",
    )  # fmt: skip
    return _page(held)


def checkpoint() -> str:
    from tests import factories as make

    repair = _repair(
        make.pool("solo", "TEMPLATE"), "recheck", "room", "keep", "checkpoint", state="ASKING",
        why_waiting="The workload does not want to be drained now: llm-pretrain refuses: “epoch 3 of 4 ends at 23:10”.",
        facts={"choices": [
            {"key": "again", "title": "Ask it again", "needs": "decide"},
            {"key": "without_answer", "title": "Drain it against its word", "needs": "decide"},
            {"key": "undo", "title": "Stop and undo", "needs": "decide"},
        ]},
    )  # fmt: skip
    asked = repair.steps.get(name="checkpoint")
    make.call(asked, service="workload", operation="Checkpoint", outcome="refused", detail="epoch 3 of 4 ends at 23:10")
    return _page(repair)


def blind() -> str:
    from healthboard import clock
    from healthboard.fleet import seeing
    from healthboard.fleet.models import Source
    from tests import factories as make

    home = make.pool("train", region="eu-west-1")
    error = "describe_instance_status: RequestLimitExceeded"
    Source.objects.filter(region="eu-west-1", name="ec2").update(
        interval_s=6, succeeded_at=make.ago(420), error=error, good_rounds=0
    )
    repair = _repair(home, state="SCHEDULED")
    repair.why_waiting = seeing.why_blind(repair.instance, clock.now())[0]
    repair.save()
    return _page(repair)


def room() -> str:
    from tests import factories as make

    said = "train-asg is at its maximum (30): raise it by one, then approve again"
    on = _sick(make.pool("train"))
    case = make.case(
        on, code="XID_79", verdict="HARDWARE", action="REPLACE", title="GPU 5 of 8 has fallen off the bus (Xid 79)",
        why="The kernel log and NVML agree that GPU 5 is gone.", why_waiting=said, may_act=True,
        mode="auto", mode_why="Clear hardware failures are set to auto.",
        plan=_plan(on.pool, blockers=[said], replacement={
            "from": "Auto Scaling group train-asg", "room": False, "why": "30 of at most 30 members"}),
    )  # fmt: skip
    return f"/cases/{case.pk}/"


def tasks() -> str:
    from healthboard import clock
    from tests import factories as make

    on = _sick(make.pool("solo", "TEMPLATE"), "XID_119", verdict="AMBIGUOUS", tasks_running=3)
    nightly = make.workload("eval-nightly", "FAMILY")
    make.task(on)
    make.task(on, nightly, protected_until=clock.now() + timedelta(hours=1))
    case = make.case(
        on, title="GPU 5 of 8 stopped answering the driver (Xid 119)",
        plan=_plan(
            on.pool, "REBOOT", owner="TEMPLATE", replacement={}, loses=["What runs on it now"],
            sentence="Drain the instance, reboot it once it is empty, and return it to service when its GPUs are good.",
            tasks=make.plan()["tasks"], tasks_total=3, undo="Until the reboot: back to ACTIVE.",
            warnings=["Standalone tasks are waited for, never stopped: eval-nightly",
                      "Protected tasks may hold the drain up: eval-nightly",
                      "Minimum and maximum are both 100 %: the drain of llm-train never ends"],
        ),
        why="The GPU's system processor timed out. Sources disagree about what to do the first time.",
    )  # fmt: skip
    return f"/cases/{case.pk}/"


def drain() -> str:
    from tests import factories as make

    repair = _repair(
        make.pool("train"), "recheck", "room", "keep", "drain", "standby", "replacement", "tasks", state="ASKING",
        why_waiting="2 tasks have not left within the drain time-out: family:eval-nightly, service:llm-train.",
        facts={"choices": [
            {"key": "wait_longer", "title": "Wait longer", "needs": "decide"},
            {"key": "force_tasks", "title": "Give these tasks up and go on", "needs": "terminate_first"},
            {"key": "undo", "title": "Stop and undo", "needs": "decide"},
        ]},
    )  # fmt: skip
    return _page(repair)


def dead() -> str:
    from healthboard import clock
    from tests import factories as make

    home = make.pool("solo", "TEMPLATE")
    on = make.instance(
        home, verdict="HARDWARE", verdict_code="EC2_SYSTEM_IMPAIRED", agent_connected=False, ecs_status="DRAINING"
    )
    make.reading(on, "EC2_SYSTEM", "IMPAIRED", since=make.ago(1860))
    task = make.task(on, make.workload("eval-nightly", "FAMILY"))
    repair = _repair(
        home, "recheck", "room", "keep", "drain", "launch", "replacement", "tasks", state="ASKING", on=on,
        code="EC2_SYSTEM_IMPAIRED", title="The host is impaired, says EC2's system status check",
        why="The agent is away and EC2 calls the instance impaired: the host is gone by two sources.",
        why_waiting=f"The host is dead: system check impaired since {clock.now() - timedelta(minutes=31):%H:%M:%S}, agent "
        f"away since {clock.now() - timedelta(minutes=30):%H:%M:%S}. Not proven: standalone task "
        f"{task.arn.rpartition('/')[2]} of family:eval-nightly.",
        facts={"choices": [
            {"key": "force_tasks", "title": "Give these tasks up and go on", "needs": "terminate_first"},
            {"key": "again", "title": "Try again", "needs": "decide"},
            {"key": "undo", "title": "Stop and undo", "needs": "decide"},
        ]},
    )  # fmt: skip
    return _page(repair)


def stuck() -> str:
    from tests import factories as make

    repair = _repair(
        make.pool("train"), "recheck", "room", "keep", "drain", "standby", "replacement", "tasks", state="ASKING",
        why_waiting="2 tasks cannot be stopped: their containers outlived the stop time-out. The policy asks a person.",
        facts={"choices": [
            {"key": "unkillable", "title": "Count its tasks as gone", "needs": "decide"},
            {"key": "undo", "title": "Stop and undo", "needs": "decide"},
        ]},
    )  # fmt: skip
    return _page(repair)


def condemned() -> str:
    from tests import factories as make

    home = make.pool("solo", "TEMPLATE")
    new = make.instance(home, launched_by_us=True, launched_at=make.ago(600))
    card = make.gpus(new, 8)[2]
    why = "XID_79, repair 14"
    type(card).objects.filter(pk=card.pk).update(condemned_at=make.ago(9 * DAY), condemned_why=why)
    repair = _repair(
        home, "recheck", "room", "keep", "drain", "launch", "replacement", state="ASKING", replacement=new,
        why_waiting=f"The replacement {new} does not serve: it carries condemned hardware: {card.uuid} ({why})",
        facts={"choices": [
            {"key": "wait_longer", "title": "Wait longer", "needs": "decide"},
            {"key": "undo", "title": "Stop and undo", "needs": "decide"},
        ]},
    )  # fmt: skip
    return _page(repair)


def watching() -> str:
    from healthboard.fleet import seeing
    from healthboard.fleet.models import Source
    from tests import factories as make

    home = make.pool("train", region="us-west-2")
    repair = _repair(home, "recheck", "room", "keep", "drain", "standby", "replacement")
    Source.objects.filter(region="us-west-2").update(good_rounds=1, watched_from=make.ago(70))
    repair.why_waiting = seeing.why_watching(repair.instance)
    repair.save()
    return _page(repair)


def orphan() -> str:
    from healthboard.cases import alarm
    from tests import factories as make

    one = make.instance(make.pool("solo", "TEMPLATE"), launched_by_us=True, tags={"healthboard:repair": "14"})
    alarm.keep([f"ORPHAN: {one} was launched by repair 14 and belongs to none, and to no group"])
    return "/system/#invariants"


def switch() -> str:
    from healthboard.repairs import brakes
    from tests import factories as make

    repair = _repair(make.pool("train"), "recheck", "room", "keep", "drain")
    operator = make.actor(make.person("operator", "olga"))
    brakes.stop(operator, "Too many drains at once in train, I want to look first")
    return _page(repair)


def restored() -> str:
    from healthboard.repairs import brakes
    from healthboard.repairs.restored import RESTORED
    from tests import factories as make

    make.switch()
    brakes.stop_by_itself(
        RESTORED, "RESTORED: The database does not hold the head of 02:14 UTC in audit-heads.log (position 18233): it was "
        "put back to an earlier time, or rewritten. Compare with AWS, then release.",
    )  # fmt: skip
    return "/system/"


SITUATIONS: dict[str, Callable[[], str]] = {
    "breaker": breaker, "budget": budget, "window": window, "idle": idle, "checkpoint": checkpoint, "blind": blind, "room": room, "tasks": tasks, "drain": drain,
    "dead": dead, "stuck": stuck, "condemned": condemned, "watching": watching, "orphan": orphan, "switch": switch, "restored": restored,
}  # fmt: skip


def main(folder: Path, only: list[str]) -> None:
    from tests.browser import shots

    with shots.scratch():
        fill()
        folder.mkdir(parents=True, exist_ok=True)
        with shots.serving() as base, shots.chromium() as browser:
            page = shots.logged_in(browser, base, 1440, "light")
            for name, prepare in SITUATIONS.items():
                if only and name not in only:
                    continue
                calm()
                address = prepare()
                answer = page.goto(f"{base}{address}")
                if answer.status != 200:
                    print(name, answer.status)
                page.screenshot(path=folder / f"waits-{name}.png")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(Path(sys.argv[1]), sys.argv[2:])
