"""What the API takes and gives beside cases, repairs and instances: the record, figures, the fleet's parts, policies,
and what a person asks for by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from ninja import Schema
from pydantic import ConfigDict, Field

from healthboard.api.schemas import DecisionItem, Text
from healthboard.cases.by_hand import ACTIONS
from healthboard.cases.preview import DAYS

NEXT = Field(description="pass it as `after` for the next page; null at the end")
Action = Literal[ACTIONS]


class DecisionList(Schema):
    items: list[DecisionItem]
    next: int | None = NEXT


class GpuItem(Schema):
    id: int
    uuid: str
    serial: str
    name: str
    account: str
    region: str
    instance: str
    pool: str
    index: int | None
    pci: str
    status: str
    measured_at: datetime | None
    condemned_at: datetime | None


class GpuList(Schema):
    items: list[GpuItem]
    next: int | None = NEXT


class PoolItem(Schema):
    """`instances` are those that are there; `out` are not in service, for whatever reason."""

    id: int
    name: str
    kind: str
    account: str
    region: str
    cluster: str
    group: str
    desired: int | None
    minimum: int | None
    maximum: int | None
    instances: int
    out: int
    repairs: int
    paused_by_tag: bool
    rolling_out: bool | None
    seen_at: datetime | None


class PoolList(Schema):
    items: list[PoolItem]
    next: int | None = NEXT


class AuditItem(Schema):
    """`position` and `hash` are null until the row is sealed; see `verify_audit`."""

    id: int
    at: datetime
    actor: str
    via: str
    verb: str
    subject: str
    account: str
    region: str
    instance: str
    case: int | None
    repair: int | None
    summary: str
    request_id: str
    payload_hash: str
    position: int | None
    hash: str | None


class AuditList(Schema):
    items: list[AuditItem]
    next: int | None = NEXT


class Times(Schema):
    count: int
    median_s: float | None
    p90_s: float | None


class Cause(Schema):
    code: str
    title: str
    cases: int
    closed: int
    false_alarms: int
    helped: int


class Statistics(Schema):
    """Cases that were opened from `since` to before `until`, and what became of them; `items` are days or weeks."""

    since: datetime
    until: datetime
    by: str
    cases: int
    closed: int
    false_alarms: int
    false_alarm_means: str
    outcomes: dict[str, int]
    repairs: dict[str, int]
    ended: dict[str, int]
    times: dict[str, Times]
    causes: list[Cause]
    items: list[dict]


class PolicyItem(Schema):
    """`settings` are those that the policy itself sets; what it leaves out is inherited."""

    id: int
    name: str
    is_default: bool
    enabled: bool
    version: int | None
    match: dict
    settings: dict
    saved_at: datetime | None
    saved_by: str


class PolicyList(Schema):
    items: list[PolicyItem]
    next: int | None = NEXT


class ApplyIn(Schema):
    """`yaml` as `manage.py policies export` prints it; policies that it does not name are left alone."""

    model_config = ConfigDict(extra="forbid", strict=True)
    yaml: Annotated[str, Field(max_length=1024 * 1024, pattern=r"^[^\x00]*$")]
    reason: Text = Field("", description="kept with the new versions")
    dry_run: bool = False


class Applied(Schema):
    changes: list[str] = Field(description="a sentence for each change; none: nothing differed")
    dry_run: bool


class Exported(Schema):
    yaml: str = Field(description="as `ApplyIn` takes it")


class PreviewIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)
    yaml: Annotated[str, Field(max_length=1024 * 1024, pattern=r"^[^\x00]*$")]
    days: Literal[DAYS] = Field(7, description="of recorded evidence, back from now")


class Sum(Schema):
    then: str
    now: str
    cases: int
    counterfactual: int


class Otherwise(Schema):
    """One case, by the first evidence of it that would be decided otherwise."""

    case: int
    title: str
    at: datetime
    then: str
    now: str
    done: str
    why: list[str]
    counterfactual: bool


class Previewed(Schema):
    """`cases`: those that the policies concern; `alike`: of them, decided as they were; `counterfactual`: of them, begun
    after the first change in their pool. `lines` are the first that go otherwise, `more` how many are not listed."""

    days: int
    since: datetime
    until: datetime
    total: int
    looked: int
    cut: str = Field(description="why not all was looked at; empty where it was")
    cases: int
    alike: int
    counterfactual: int
    by_rules: int = Field(description="cases that newer rules of healthboard decide otherwise whatever the policy")
    unreadable: int
    running: list[str] = Field(description="changed settings that say how a repair runs, not whether")
    sums: list[Sum]
    lines: list[Otherwise]
    more: int


class Offer(Schema):
    """What an action by hand would do now. `seen` is sent back with the ask: a changed world answers 409."""

    action: Action
    title: str
    plan: dict
    seen: str
    case: int | None = Field(description="the open case that the ask would answer")
    why_not: str | None = Field(description="why it cannot be asked for now, in words")


class ActIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)
    action: Action
    reason: Text
    seen: Annotated[str, Field(min_length=64, max_length=64, pattern=r"^[0-9a-f]+$", description="from the offer")]


class PauseIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)
    reason: Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")]
    length_s: Annotated[int, Field(ge=60, le=7 * 86400)]


class PauseItem(Schema):
    id: int
    scope_kind: str
    scope: str
    reason: str
    set_by: str
    set_at: datetime
    until: datetime
    ended_at: datetime | None


class PauseList(Schema):
    items: list[PauseItem]
    next: int | None = NEXT
