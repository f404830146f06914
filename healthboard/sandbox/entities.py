"""What exists in the simulated account. Every entity is one row of the state file.

Times are epoch seconds (wall clock); `until`-like fields say when the next move is due. Assigning a changed value marks
the entity dirty, so containers (lists, dicts) are replaced, never changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


class Entity:
    kind: ClassVar[str]
    id: str

    def __setattr__(self, name: str, value: Any) -> None:
        space = self.__dict__
        if name in space and space[name] == value:
            return
        space[name] = value
        dirty = space.get("_dirty")
        if dirty is not None and name[0] != "_":
            dirty.add(self)

    def body(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(eq=False)
class Instance(Entity):
    """An EC2 instance. `gpus`: [{"uuid", "serial", "pci"}], those of the host it runs on now."""

    kind: ClassVar[str] = "instance"
    id: str
    type: str
    zone: str
    image: str
    name: str
    private_ip: str
    launched_at: float
    state: str = "pending"
    until: float | None = None
    state_reason: tuple[str, str] | list[str] | None = None
    transition_reason: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    template: str | None = None
    template_version: str | None = None
    pool: str | None = None
    cluster: str | None = None
    provider: str | None = None
    user_data: str = ""
    client_token: str = ""
    protected: bool = False
    market: str | None = None  # "spot" or None
    spot: dict[str, Any] = field(default_factory=dict)  # its request: {"id", "persistent", "cancelled"}
    reservation: str | None = None
    operator: str | None = None  # who manages it for us, e.g. ecs.amazonaws.com
    host: int = 0
    gpus: list[dict[str, str]] = field(default_factory=list)
    boot_id: str = ""
    booted_at: float = 0.0
    checks_ok_at: float = 0.0
    agent_at: float | None = None
    reboot_at: float | None = None
    reboot_until: float | None = None
    faults: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    kmsg_seq: int = 0
    kernel: list[dict[str, Any]] = field(default_factory=list)  # lines that no report has delivered yet
    console: list[str] = field(default_factory=list)
    report_seq: int = 0
    recorder_due: bool = False
    registered: bool = False  # was ever in a cluster
    ecs_knows: bool = False  # the agent was connected when termination was ordered
    gone: bool = False  # no longer described by EC2
    gone_at: float | None = None
    told: str = ""  # the state that its last event named


@dataclass(eq=False)
class Container(Entity):
    """An ECS container instance. `agent_away` is why the agent is not connected, or empty."""

    kind: ClassVar[str] = "container"
    id: str
    cluster: str
    instance: str
    registered_at: float
    provider: str | None = None
    status: str = "ACTIVE"
    status_reason: str = ""
    connected: bool = True
    disconnected_at: float | None = None
    version: int = 3
    gpus: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    blink_at: float = 0.0
    blink_until: float | None = None
    health_since: dict[str, Any] = field(default_factory=dict)
    inactive_at: float | None = None
    told: str = ""  # what its last state event said
    told_health: str = ""  # what its last health event said


@dataclass(eq=False)
class Task(Entity):
    kind: ClassVar[str] = "task"
    id: str
    cluster: str
    container: str
    family: str
    revision: int
    group: str
    started_by: str
    gpus: list[str]
    created_at: float
    service: str | None = None
    last: str = "PENDING"
    desired: str = "RUNNING"
    until: float | None = None
    ends_at: float | None = None
    started_at: float | None = None
    stopping_at: float | None = None
    stopped_at: float | None = None
    stop_code: str | None = None
    stop_reason: str | None = None
    exit_code: int | None = None
    protected_until: float | None = None
    tags: dict[str, str] = field(default_factory=dict)
    told: str = ""  # the statuses that its last event named


@dataclass(eq=False)
class Service(Entity):
    kind: ClassVar[str] = "service"
    id: str  # cluster/name
    name: str
    cluster: str
    family: str
    revision: int
    desired: int
    gpus: int
    pool: str | None
    created_at: float
    minimum: int = 100
    maximum: int = 200
    daemon: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)


@dataclass(eq=False)
class Definition(Entity):
    """A task definition, as far as placing and stopping its tasks needs it."""

    kind: ClassVar[str] = "definition"
    id: str  # family:revision
    family: str
    gpus: int = 0
    active: bool = True
    containers: list[dict[str, Any]] = field(default_factory=list)  # as they were registered


@dataclass(eq=False)
class Cluster(Entity):
    kind: ClassVar[str] = "cluster"
    id: str
    providers: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Provider(Entity):
    """A capacity provider: over a group, or managed by ECS itself."""

    kind: ClassVar[str] = "provider"
    id: str
    cluster: str
    group: str | None = None
    managed: bool = False
    auto_repair: str = "ENABLED"
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Group(Entity):
    """An Auto Scaling group. `members`: instance id -> {"state", "until", "protected", "version", "health"}."""

    kind: ClassVar[str] = "group"
    id: str
    template: str
    template_version: str
    minimum: int
    maximum: int
    desired: int
    zones: list[str]
    created_at: float
    pool: str | None = None
    provider: str | None = None
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    suspended: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    refreshes: list[dict[str, Any]] = field(default_factory=list)
    retry_at: float = 0.0
    failed_zones: dict[str, float] = field(default_factory=dict)


@dataclass(eq=False)
class Template(Entity):
    """A launch template. `versions`: number (text) -> launch template data in boto3's names."""

    kind: ClassVar[str] = "template"
    id: str
    name: str
    created_at: float
    versions: dict[str, dict[str, Any]]
    default: str = "1"
    pool: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Activity(Entity):
    kind: ClassVar[str] = "activity"
    id: str
    group: str
    what: str  # launch, terminate, enter_standby, exit_standby, detach, attach
    instance: str
    description: str
    cause: str
    started_at: float
    zone: str = ""
    ended_at: float | None = None
    status: str = "InProgress"
    message: str = ""
    error: str = ""
    order: int = 0


@dataclass(eq=False)
class Reservation(Entity):
    kind: ClassVar[str] = "reservation"
    id: str
    type: str
    zone: str
    total: int
    created_at: float
    kind_of: str = "default"  # or capacity-block
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Token(Entity):
    """A RunInstances client token and what it was used for."""

    kind: ClassVar[str] = "token"
    id: str
    params: str
    instances: list[str]
    at: float


@dataclass(eq=False)
class Shortage(Entity):
    """No capacity for an instance type in a zone."""

    kind: ClassVar[str] = "shortage"
    id: str  # type/zone
    type: str
    zone: str
    at: float


@dataclass(eq=False)
class Message(Entity):
    """A message in the place's queue; invisible until `visible_at` once somebody has received it."""

    kind: ClassVar[str] = "message"
    id: str
    text: str
    sent_at: float
    visible_at: float = 0.0
    received: int = 0
    receipt: str = ""  # of the last delivery


@dataclass(eq=False)
class Counters(Entity):
    kind: ClassVar[str] = "counters"
    id: str
    values: dict[str, int] = field(default_factory=dict)
    script: dict[str, Any] = field(default_factory=dict)
    jobs: dict[str, Any] = field(default_factory=dict)


KINDS: dict[str, type[Entity]] = {
    cls.kind: cls
    for cls in (
        Instance, Container, Task, Service, Cluster, Provider, Group, Template, Activity, Reservation, Token, Shortage,
        Message, Counters, Definition,
    )
}  # fmt: skip
