"""What the API takes and gives. Times are ISO 8601 in UTC."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from ninja import Schema
from pydantic import ConfigDict, Field

from healthboard.cases.jobs import TABS as JOB_TABS
from healthboard.cases.models import Decision
from healthboard.cases.states import State as _CaseState
from healthboard.diagnosis.signals import Action
from healthboard.repairs.states import State as _RepairState
from healthboard.repairs.waiting import NEXT

# as literals, since two enumerations of one name would be one schema in OpenAPI
CaseState = Literal[tuple(str(s) for s in _CaseState)]
RepairState = Literal[tuple(str(s) for s in _RepairState)]
JobState = Literal[tuple(JOB_TABS)]
Kind = Literal[tuple(str(kind) for kind in Decision.Kind)]
By = Literal["day", "week"]
BIG = 2**63 - 1
#: text without NUL, which PostgreSQL cannot store
Text = Annotated[str, Field(max_length=4000, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")]
InstanceId = Annotated[str, Field(max_length=32, pattern=r"^[\x21-\x7e]*$", description="EC2 instance id")]


class Format(StrEnum):
    JSON = "json"
    CSV = "csv"


class Item(Schema):
    """One case, or one repair with the case that it belongs to."""

    id: int
    instances: list[str]
    codes: list[str]
    verdict: str
    action: str
    state: str
    resolution: str
    plan_version: int | None
    evidence_hash: str
    pool: str
    opened_at: datetime
    closed_at: datetime | None


class CaseItem(Item):
    state: CaseState
    account: str
    region: str
    code: str
    title: str
    mode: str
    why: str
    why_waiting: str
    parent: int | None
    victims: list[str]
    repairs: list[int]
    expires_at: datetime | None
    snoozed_until: datetime | None
    others: int = Field(
        description="instances that belong to it and are outside the caller's scope: not named anywhere"
    )


class RepairItem(Item):
    state: RepairState
    case: int | None
    step: str
    why_waiting: str
    automatic: bool
    requested_by: str
    replacement: str


class CaseList(Schema):
    items: list[CaseItem]
    next: int | None = Field(description="pass it as `after` for the next page; null at the end")


class RepairList(Schema):
    items: list[RepairItem]
    next: int | None = Field(description="pass it as `after` for the next page; null at the end")


class InstanceItem(Schema):
    id: int
    instance_id: str
    account: str
    region: str
    cluster: str
    pool: str
    owner: str
    zone: str
    instance_type: str
    state: str
    ecs_status: str
    agent_connected: bool | None
    tasks_running: int
    verdict: str
    code: str
    why: str
    case: int | None
    repair: int | None
    seen_at: datetime | None
    node_seen_at: datetime | None
    gone_at: datetime | None


class InstanceList(Schema):
    items: list[InstanceItem]
    next: int | None


class JobItem(Schema):
    """A set of tasks that stop together; `first_fault` is the instance of its case, `victims` those named with it."""

    job: str = Field(description="empty where ECS lists none of its tasks any more and its name is not known")
    family: str
    account: str
    region: str
    state: JobState
    since: datetime | None
    nodes: int
    gpus: int
    idle_nodes: int
    idle_gpus: int
    case: int | None
    code: str
    first_fault: str
    victims: list[str]
    why: str


class JobList(Schema):
    items: list[JobItem]


class Step(Schema):
    number: int
    name: str
    state: str
    note: str
    started_at: datetime
    ended_at: datetime | None


class DecisionItem(Schema):
    id: int
    case: int
    decision: str
    action: str
    reason: str
    actor: str
    via: str
    at: datetime
    plan_version: int
    evidence_hash: str
    outcome: str
    outcome_why: str
    undone_at: datetime | None
    repair: int | None


class Waiting(Schema):
    """One thing that stands against the next step; `until` is when it ends by itself, where that is known."""

    kind: Literal[tuple(NEXT)]
    text: str
    until: datetime | None


class InstanceDetail(InstanceItem):
    waiting_for: list[Waiting]


class CaseDetail(CaseItem):
    """A case with what a decision needs to know."""

    plan: dict
    mode_why: str
    workloads: list[str]
    decisions: list[DecisionItem]
    waiting_for: list[Waiting]


class Choice(Schema):
    """One answer that a repair offers; `needs` other than ``decide``: a second person confirms it."""

    key: str
    title: str
    needs: str
    people: str = Field(description="how many people it takes and who has chosen it; empty where one is enough")
    why_not: str | None = Field(description="why the caller may not choose it, in words")


class RepairDetail(RepairItem):
    plan: dict
    choices: list[Choice] = Field(description="what it asks; empty where it does not")
    steps: list[Step]
    waiting_for: list[Waiting]


class CondemnedItem(Schema):
    """A GPU that was given back as broken; `instance` is where it was seen last."""

    id: int
    uuid: str
    serial: str
    name: str
    account: str
    region: str
    instance: str
    status: str
    condemned_at: datetime | None
    why: str


class CondemnedList(Schema):
    items: list[CondemnedItem]
    next: int | None = Field(description="pass it as `after` for the next page; null at the end")


class LiftIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)
    reason: Text


class DecisionIn(Schema):
    """`plan_version` and `evidence_hash` as the case showed them: a changed world answers 409."""

    model_config = ConfigDict(extra="forbid", strict=True)
    decision: Literal["approve", "override", "dismiss", "snooze"]
    action: Literal[tuple(["", *(str(a) for a in Action)])] = Field("", description="wanted for override")
    reason: Text = Field("", description="wanted for override and dismiss")
    plan_version: Annotated[int, Field(ge=0, le=2**31 - 1)]
    evidence_hash: Annotated[str, Field(max_length=64, pattern=r"^[\x21-\x7e]*$")]
    snooze_s: Annotated[int, Field(ge=60, le=7 * 86400)] | None = Field(
        None, description="for snooze, in seconds; an hour if it is left out"
    )
    allow: list[Annotated[str, Field(max_length=40, pattern=r"^[a-z_]+$")]] = Field(
        default_factory=list, max_length=5, description="exceptions, such as terminate_first"
    )
