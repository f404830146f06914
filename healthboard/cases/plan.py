"""What will happen if the action is carried out, in words and numbers: shown before the click, frozen with the repair."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db.models import Q

from healthboard import clock
from healthboard.audit.record import digest
from healthboard.cases.judge import Judgement
from healthboard.fleet.ending import why_ending
from healthboard.fleet.models import Instance, Owner, Task
from healthboard.fleet.seeing import why_blind
from healthboard.repairs import brakes, budget, opening, zones
from healthboard.repairs.recipes import STEPS, minutes, recipe, with_waits

ACTION_TITLES = {
    "REPLACE": "Drain and replace",
    "REBOOT": "Drain and reboot",
    "DIAGNOSE": "Run the quick diagnostic",
    "DRAIN": "Drain only",
    "RETURN": "Return to service",
    "RELOCATE": "Drain, stop and start on another host",
}
LOST = {
    "REPLACE": [
        "instance-store data on the old machine",
        "volatile GPU counters and the kernel log (kept as evidence)",
    ],
    "REBOOT": ["volatile GPU counters and the kernel log (kept as evidence)"],
    "RELOCATE": ["instance-store data on the machine", "the host: another one is used"],
}


def build(instance: Instance, judged: Judgement, values: dict[str, Any], action: str = "") -> dict[str, Any]:
    """The plan JSON of `action` (default: the proposed one) for one instance."""
    action = action or judged.action
    steps = with_waits(recipe(action, instance.owner, watch=judged.watch), values)
    tasks = _tasks(instance)
    pool = instance.pool
    plan: dict[str, Any] = {
        "action": action,
        "owner": instance.owner,
        "sentence": _sentence(instance, action, judged),
        "steps": [
            {"name": s, "title": STEPS[s].title, "detail": STEPS[s].detail, "minutes": STEPS[s].minutes,
             "changes": STEPS[s].changes, "irreversible": STEPS[s].irreversible}
            for s in steps
        ],
        "tasks": tasks,
        "tasks_total": sum(t["count"] for t in tasks),
        "blockers": _blockers(instance, action, judged, steps),
        "warnings": _warnings(instance, action, judged, tasks),
        "replacement": _replacement(instance, action, judged),
        "loses": LOST.get(action, []),
        "undo": _undo(action),
        "if_nobody_answers": if_nobody_answers(instance, judged),
        "minutes": minutes(steps),
        "choices": choices(instance, judged),
        "watch": judged.watch, "dead_host": judged.dead_host,
    }  # fmt: skip
    if steps and action not in budget.FREE and (when := opening.kept(values)):
        plan["when"] = when
    if pool is not None:
        used = budget.usage(pool, values)
        plan["budget"] = {
            "pool": pool.name, "size": used.size, "allowed": used.allowed, "out": used.out, "left": used.left,
            "names": [*used.ours, *used.others][:10],
        }  # fmt: skip
    return plan


def material(plan: dict[str, Any]) -> str:
    """Digest of what an approval rests on: figures that move by themselves (tasks, budget) are left out."""
    return digest(
        {
            "action": plan.get("action"), "owner": plan.get("owner"), "steps": [s["name"] for s in plan.get("steps", [])],
            "blockers": plan.get("blockers"), "room": (plan.get("replacement") or {}).get("room"),
            "standalone": sorted(t["workload"] for t in plan.get("tasks", []) if t["protected"]),
            "watch": bool(plan.get("watch")), "dead_host": bool(plan.get("dead_host")),
        }
    )  # fmt: skip


def choices(instance: Instance, judged: Judgement) -> list[dict[str, str]]:
    """What an operator may override to, the proposal first."""
    if judged.untouchable:
        return [{"action": a, "title": ACTION_TITLES[a]} for a in ("DIAGNOSE", *judged.given.by_word)]
    possible = [a for a in ACTION_TITLES if recipe(a, instance.owner)]
    ordered = sorted(possible, key=lambda a: a != judged.action)
    return [{"action": a, "title": ACTION_TITLES[a]} for a in ordered]


def _sentence(instance: Instance, action: str, judged: Judgement) -> str:
    where = f"{instance} ({instance.instance_type}, {instance.zone})"
    if why := judged.against(action):
        return f"Nothing is done to {where}: {why}."
    if judged.watch and action == "REPLACE":
        return f"Drain {where}, then watch its group replace it; nothing is launched or terminated by healthboard."
    words = {
        "REPLACE": {
            Owner.GROUP: "Drain {w}, put it into Standby so that its group starts a replacement, wait until that "
            "serves and the work has left, then terminate it.",
            Owner.TEMPLATE: "Drain {w}, start a replacement from the same launch template, wait until that serves and "
            "the work has left, then terminate it.",
        }.get(Owner(instance.owner), "{w} cannot be replaced: nothing says what to start instead."),
        "REBOOT": "Drain {w}, wait until the work has left, reboot it, prove the new boot, then return it to service.",
        "RELOCATE": "Drain {w}, stop it and start it again on another host, then return it to service.",
        "DRAIN": "Drain {w} and leave it drained for a person.",
        "RETURN": "Set {w} back to ACTIVE.",
        "DIAGNOSE": "Ask the reporter on {w} to run its quick diagnostic; nothing is changed.",
    }
    return words.get(action, f"{action} on {{w}}").replace("{w}", where)


def _tasks(instance: Instance) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    rows: dict[str, dict[str, Any]] = {}
    now = clock.now()
    for task in Task.objects.filter(instance=instance).exclude(last_status="STOPPED").select_related("workload"):
        name = task.workload.name if task.workload else task.family or task.group or "unknown"
        kind = task.workload.kind if task.workload else "FAMILY"
        row = rows.setdefault(name, {"workload": name, "kind": kind, "count": 0, "standalone": 0, "protected": 0})
        row["count"] += 1
        row["standalone"] += kind == "FAMILY"
        row["protected"] += bool(task.protected_until and task.protected_until > now)
        counts[name] += 1
    return [rows[name] for name in sorted(rows)]


def _blockers(instance: Instance, action: str, judged: Judgement, steps: tuple[str, ...]) -> list[str]:
    if why := judged.against(action):
        return [why]
    found = [] if steps else [f"{ACTION_TITLES.get(action, action)} is not possible for this owner"]
    if action == "DIAGNOSE":
        return found
    names = list(instance.tasks.exclude(workload=None).values_list("workload__name", flat=True).distinct())
    found += brakes.against(instance, names, automatic=False)
    pool = instance.pool
    if instance.owner == Owner.GROUP and pool and not judged.watch:
        if action == "REPLACE" and pool.desired is not None and pool.desired + 1 > (pool.maximum or 0):
            found.append(f"{pool.group_name} is at its maximum of {pool.maximum}: raise it by one first")
        if action == "REPLACE" and "Launch" in pool.suspended:
            found.append(f"launching is suspended in {pool.group_name}: resume it first")
        if action == "REBOOT" and pool.desired is not None and pool.desired - 1 < (pool.minimum or 0):
            found.append(f"{pool.group_name} is at its minimum of {pool.minimum}: lower it by one first")
    return found


def _warnings(instance: Instance, action: str, judged: Judgement, tasks: list[dict[str, Any]]) -> list[str]:
    found = []
    if action == "REPLACE" and (
        why := zones.trouble(instance.account, instance.region, instance.zone, instance.instance_type)
    ):
        where = {
            Owner.TEMPLATE: "the replacement is launched in another of the pool's zones, if there is one",
            Owner.GROUP: "its group chooses the zone itself",
        }
        found.append(f"Zone {instance.zone} is in trouble ({why}): {where.get(Owner(instance.owner), 'see there')}")
    if judged.dead_host:
        found.append(
            "The agent is away: a drain moves nothing by itself. Its tasks count as gone only once each runs elsewhere."
        )
    standalone = [t["workload"] for t in tasks if t["standalone"]]
    if standalone:
        found.append(f"Standalone tasks are waited for, never stopped: {', '.join(standalone)}")
    if protected := [t["workload"] for t in tasks if t["protected"]]:
        found.append(f"Protected tasks may hold the drain up: {', '.join(protected)}")
    stuck = instance.tasks.filter(
        Q(workload__minimum_percent=100), Q(workload__maximum_percent=100), workload__kind="SERVICE"
    ).values_list("workload__name", flat=True)
    if names := sorted(set(stuck)):
        found.append(f"Minimum and maximum are both 100 %: the drain of {', '.join(names)} never ends")
    if ending := why_ending(instance, clock.now()):
        found.append(ending)
    found += why_blind(instance, clock.now())
    return found


def _replacement(instance: Instance, action: str, judged: Judgement) -> dict[str, Any]:
    pool = instance.pool
    if action != "REPLACE" or judged.untouchable:
        return {}
    if judged.watch:
        return {"from": f"its group {pool.group_name}, by itself", "room": True, "why": ""}
    if instance.owner == Owner.GROUP and pool:
        room = pool.desired is not None and pool.maximum is not None and pool.desired + 1 <= pool.maximum
        return {
            "from": f"its group {pool.group_name}", "room": room,
            "why": f"desired {pool.desired} of at most {pool.maximum}",
        }  # fmt: skip
    if instance.owner == Owner.TEMPLATE:
        return {
            "from": f"launch template {instance.template_id} version {instance.template_version}",
            "room": None, "why": "whether EC2 has capacity shows when it is asked",
        }  # fmt: skip
    return {"from": "nothing", "room": False, "why": "no group and no launch template"}


def _undo(action: str) -> str:
    return {
        "REPLACE": "Until the old machine is terminated: it goes back into service, and what was launched is removed.",
        "REBOOT": "Until the reboot: it goes back into service.",
        "RELOCATE": "Until the stop: it goes back into service.",
        "DRAIN": "At any time: set it back to ACTIVE.",
    }.get(action, "Nothing to undo.")


def if_nobody_answers(instance: Instance, judged: Judgement) -> str:
    if judged.untouchable:
        if instance.owner == Owner.ECS and instance.pool and instance.pool.auto_repair:
            return (
                "ECS Managed Instances replaces it by itself once its own health check fails; healthboard records it."
            )
        return "healthboard does nothing here."
    if judged.watch:
        return "Its group replaces it by itself, without draining it."
    if instance.owner == Owner.GROUP:
        return "Nothing: its group sees no GPU and keeps it; its tasks stay where they are."
    return "Nothing: it stays in service as it is."
