"""From a reading to what may be done about it: the policy's answer, narrowed by the owner and by what happened before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from healthboard.cases import tries
from healthboard.diagnosis.fault_classes import fault_class
from healthboard.diagnosis.signals import Assessment
from healthboard.fleet.models import Instance, Owner
from healthboard.policies.matching import Resolved
from healthboard.policies.reading import BAD, Reread
from healthboard.policies.resolve import resolve
from healthboard.repairs.recipes import BY_WORD, NEVER_ALONE, TOUCHABLE, recipe

#: what EC2's own checks see, and a group therefore replaces by itself
GROUP_SEES = (
    "EC2_SYSTEM_IMPAIRED",
    "EC2_INSTANCE_IMPAIRED",
    "EC2_EVENT_INSTANCE_RETIREMENT",
    "EC2_EVENT_INSTANCE_STOP",
)

NOT_OURS = {
    Owner.ECS: "ECS Managed Instances repairs it by itself: two owners would fight",
    Owner.BATCH: "AWS Batch owns it: changing it can make the compute environment invalid",
    Owner.OTHER: "another controller owns it",
    Owner.UNKNOWN: "who replaces it is unknown",
}
#: of Managed Instances whose automatic repair is off
LEFT_ALONE = "ECS Managed Instances owns it, and automatic repair is switched off there: a person may drain or return it, no more"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What narrows a policy's answer apart from the evidence; stored with it, so that an answer can be given again."""

    owner: str
    untouchable: str = ""  # why nothing may be done, not even by a person's word …
    by_word: Sequence[str] = ()  # … but for these
    group_replaces: bool = False  # its group replaces by itself what EC2's own checks see
    ended_24h: int = 0  # repairs of the last day that ended, well or not, of all that took its place
    links: int = 1  # how many instances took its place one after the other, itself included
    tried: Sequence[str] = ()  # what was done to it within the last day
    replaced: str = ""  # the instance that it replaced within the last day
    replaced_for: str = ""  # and for what class of fault
    replacing: bool = False  # that repair is still under way


@dataclass(frozen=True, slots=True)
class Judgement:
    mode: str  # auto, ask, observe
    action: str
    why: str
    given: Circumstances
    watch: bool = False  # the group replaces it by itself
    dead_host: bool = False  # its work cannot be drained
    untouchable: str = ""  # nothing may be done, not even by a person's word

    def against(self, action: str) -> str:
        """Why this action may not be taken, whoever asks; empty where it may."""
        return "" if action in self.given.by_word else self.untouchable


def judge(instance: Instance, seen: Reread) -> Judgement:
    return narrow(seen.assessment, seen.policy, circumstances(instance))


def circumstances(instance: Instance) -> Circumstances:
    links = tries.slot(instance)
    before, why = tries.before(instance), untouchable(instance)
    return Circumstances(
        owner=str(instance.owner), untouchable=why,
        by_word=[action for action in BY_WORD if why and not untouchable(instance, action)], group_replaces=_group_replaces(instance),
        ended_24h=tries.ended(links), links=len(links), tried=tries.tried(instance),
        replaced=before.instance, replaced_for=before.fault, replacing=before.under_way,
    )  # fmt: skip


def narrow(a: Assessment, policy: Resolved, given: Circumstances) -> Judgement:
    """Pure: the policy's answer to the assessment, as far as the circumstances allow it."""
    values = policy.values
    answer = resolve(a.verdict, a.codes, a.action, a.may_act, values, policy.origin, raised=a.raised)
    mode, action, why = answer.mode, answer.action, answer.why
    if given.untouchable:
        return Judgement("observe", action, given.untouchable, given, untouchable=given.untouchable)
    watch = given.group_replaces and bool(set(a.codes[:1]) & set(GROUP_SEES))
    if watch:
        action = "REPLACE"
        why = f"its group replaces it by itself; healthboard drains, watches and records ({why})"
    dead = not watch and action in ("REPLACE", "REBOOT") and _cannot_drain(a)
    if mode == "auto" and not recipe(action, given.owner, watch=watch):
        mode, why = "ask", f"{action} is not possible for {Owner(given.owner).label}: a person decides"
    if mode == "auto" and dead and values.get("dead_host") != "auto":
        mode, why = "ask", "its agent is away, so its work cannot be drained: the policy asks a person"
    if mode == "auto" and (reason := _tried_enough(a, values, given)):
        mode, why = "ask", reason
    if mode == "auto" and not watch:
        rung, reason = tries.heavier(action, given.owner, list(values.get("ladder") or []), given.tried)
        if reason:
            mode, why = "ask", f"{reason}: a person decides"
        elif rung != action:
            action, why = rung, f"{why}; {rung} instead of {action}, which was tried within 24 hours"
    if mode == "auto" and action in NEVER_ALONE:
        mode, why = (
            "ask",
            f"{why}; {action} stops the machine before another one serves: only a named person decides it",
        )
    return Judgement(mode, action, why, given, watch=watch, dead_host=dead)


def _tried_enough(a: Assessment, values: Mapping[str, Any], given: Circumstances) -> str:
    limit = values.get("tries_24h")
    if limit is not None and given.ended_24h >= limit:
        where = f", counted over the {given.links} instances that took this place" if given.links > 1 else ""
        return f"{given.ended_24h} repairs within 24 hours did not keep it healthy{where}: a person decides"
    if given.replacing:
        return f"it is to take the place of {given.replaced}, whose repair is under way: a person decides"
    shown = {fault_class(f.code) for f in a.findings if f.verdict in BAD}
    if given.replaced and given.replaced_for in shown:
        return (
            f"it replaced {given.replaced} for the same kind of fault ({given.replaced_for}): the machine may not be "
            "the cause, so a person decides"
        )
    return ""


def _cannot_drain(a: Assessment) -> bool:
    """The host is gone or its agent stays away: a planned reconnect of some seconds is neither."""
    return any(
        f.code == "EC2_SYSTEM_IMPAIRED" or (f.code == "ECS_AGENT_DISCONNECTED" and f.verdict in BAD) for f in a.findings
    )


def untouchable(instance: Instance, action: str = "") -> str:
    """INV9: why nothing is ever done to this instance; empty where something may be. With an action: why not that one,
    though a named person asks for it."""
    if instance.is_self:
        return "healthboard itself runs on it"
    if instance.owner not in TOUCHABLE:
        left_alone = instance.owner == Owner.ECS and instance.pool is not None and instance.pool.auto_repair is False
        if not (left_alone and action in BY_WORD):
            return LEFT_ALONE if left_alone else NOT_OURS[Owner(instance.owner)]
    if (
        instance.paused_by_tag
        or (instance.cluster and instance.cluster.paused_by_tag)
        or (instance.pool and instance.pool.paused_by_tag)
    ):
        return "a healthboard:pause tag is set on the instance, its group or its cluster"
    return ""


def _group_replaces(instance: Instance) -> bool:
    pool = instance.pool
    return bool(
        instance.owner == Owner.GROUP
        and pool is not None
        and pool.replaces_by_itself
        and instance.group_state == "InService"
    )
