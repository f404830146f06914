"""What healthboard has left in AWS or holds there, and how it is taken back before healthboard is removed.

The engine takes back what it did, under a person's name and through its usual guards; no machine is ended for it. What it
has no right to undo, such as a tag, is told with the command that a person runs. See docs/decisions/0087-retiring.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from healthboard.cases import by_hand
from healthboard.cases.calls import LAUNCHED_BY, orphans
from healthboard.fleet.models import Instance
from healthboard.people.access import require
from healthboard.people.actors import Actor
from healthboard.refusals import Refusal
from healthboard.repairs import brakes, lifecycle
from healthboard.repairs.models import Call, Repair
from healthboard.repairs.recipes import recipe
from healthboard.repairs.states import OPEN, State

REASON = "healthboard is retired"
#: who does it: the engine when told to; the engine by itself, in a while; a person
TELL, WAIT, PERSON = "tell", "wait", "person"
#: these leave nothing behind, so that they are let go on
LIGHT = ("RETURN", "DIAGNOSE")


@dataclass(frozen=True, slots=True)
class Left:
    """One thing of ours in AWS. `command`: what a person runs, where the engine cannot."""

    by: str
    what: str
    repair: Repair | None = None
    instance: Instance | None = None
    command: str = ""


def left() -> list[Left]:
    """Everything of ours that the database knows of, by what is under way, what stands aside and what is marked."""
    return [*_under_way(), *_drained(), *_standing_by(), *_lost(), *_marked()]


def take_back(actor: Actor) -> list[str]:
    """Tell the engine to take back what it can; returns in words what was asked for. Harmless when repeated: what is
    under way already is left alone. Once nothing more is to be begun, acting is switched off. Raises NotAllowed."""
    require(actor, "resume")  # who may switch acting off
    said = []
    for one in left():
        if one.by != TELL:
            continue
        try:
            if one.repair is not None:
                lifecycle.ask_stop(one.repair.pk, actor=actor)
                said.append(f"{one.repair}: stopped, and undone where it had begun")
            elif one.instance is not None:
                shown = by_hand.offer(one.instance, "RETURN")
                by_hand.ask(one.instance.pk, actor=actor, action="RETURN", reason=REASON, seen=shown.seen)
                said.append(f"{one.instance}: its return was asked for")
        except Refusal as refusal:
            said.append(f"{one.repair or one.instance}: {refusal.message}")
    if brakes.switch().acting and not _needs_acting():
        brakes.set_acting(False, actor, REASON)
        said.append("acting was switched off: nothing is begun any more, what is being undone goes on")
    return said


def _needs_acting() -> bool:
    """A return, and the end of what cannot be undone, are held while acting is off; undoing is not."""
    return any(one.by == TELL or (one.repair and one.repair.state != State.UNDOING) for one in left())


def _under_way() -> Iterator[Left]:
    for row in Repair.objects.filter(state__in=OPEN).select_related("instance").order_by("pk"):
        here = f"repair {row.pk}, {row}: {row.state.lower()}"
        held = f" ({row.why_waiting})" if row.why_waiting else ""
        asks = f"{here}, asks: {row.why_waiting} Answer it at /repairs/{row.pk}/"
        if row.action in LIGHT or row.state == State.UNDOING or (row.stop_asked_by and row.state != State.ASKING):
            yield Left(WAIT, f"{here}, goes on by itself{held}", row)
        elif row.irreversible or row.stop_asked_by:
            yield (
                Left(PERSON, asks, row)
                if row.state == State.ASKING
                else Left(WAIT, f"{here}, cannot be undone any more and goes on to its end{held}", row)
            )
        else:
            yield Left(TELL, f"{here}, can be stopped and undone", row)


def _drained() -> Iterator[Left]:
    for one in _without_repair().filter(ecs_status="DRAINING"):
        call = _last(one, "UpdateContainerInstancesState")
        if call is None or call.request.get("status") != "DRAINING":
            continue  # somebody else's
        what = f"{one} is DRAINING since repair {call.repair_id}"
        broken = one.verdict == "HARDWARE"  # nobody puts work on it unasked
        if broken:
            what += f", and reads {one.verdict_code or one.verdict}: end it, or return it as it is"
        if recipe("RETURN", one.owner) and not broken:
            yield Left(TELL, what, instance=one)
        else:
            yield Left(PERSON, what, instance=one, command=_command(
                "ecs update-container-instances-state --region", one.region, "--cluster",
                one.cluster.name if one.cluster else "", "--status ACTIVE --container-instances", one.container_arn,
            ))  # fmt: skip


def _standing_by() -> Iterator[Left]:
    for one in _without_repair().filter(group_state__in=("Standby", "EnteringStandby")):
        call = _last(one, "EnterStandby", "ExitStandby", "DetachInstances")
        if call is not None and call.operation == "EnterStandby":
            yield Left(PERSON, f"{one} is in Standby since repair {call.repair_id}", instance=one, command=_command(
                "autoscaling exit-standby --region", one.region, "--auto-scaling-group-name", one.group_name,
                "--instance-ids", one.instance_id,
            ))  # fmt: skip


def _lost() -> Iterator[Left]:
    for sentence in orphans():
        yield Left(PERSON, f"{sentence.removeprefix('ORPHAN: ')}. Keep it or end it: it costs money")


def _marked() -> Iterator[Left]:
    """The number of the repair that launched it. `healthboard:managed` is the operators' own and stays."""
    for one in Instance.objects.filter(gone_at=None, tags__has_key=LAUNCHED_BY).order_by("pk"):
        yield Left(PERSON, f"{one} carries the tag {LAUNCHED_BY}", instance=one, command=_command(
            "ec2 delete-tags --region", one.region, "--resources", one.instance_id, f"--tags Key={LAUNCHED_BY}",
        ))  # fmt: skip


def _command(*parts: str) -> str:
    """Every other part is a name that somebody gave, which a shell must take for nothing else."""
    return " ".join(["aws", *(shlex.quote(part) if number % 2 else part for number, part in enumerate(parts))])


def _without_repair():
    busy = Repair.objects.filter(state__in=OPEN).values("instance")
    rows = Instance.objects.filter(gone_at=None).exclude(pk__in=busy)
    ended = Call.objects.filter(operation__startswith="Terminate", outcome="ok").values("target")
    rows = rows.exclude(state__in=("shutting-down", "terminated")).exclude(instance_id__in=ended)  # gone, told soon
    return rows.select_related("account", "cluster", "pool").order_by("pk")


def _last(one: Instance, *operations: str) -> Call | None:
    """The last of our own calls about it that may have come through."""
    rows = Call.objects.filter(
        operation__in=operations, target=one.instance_id, outcome__in=("ok", "unknown"),
        repair__instance__account=one.account_id, repair__instance__region=one.region,
    )  # fmt: skip
    return rows.order_by("-pk").first()
