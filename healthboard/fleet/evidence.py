"""What is known of one instance at a time, as `evaluate()` takes it; and to JSON and back, so that it can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.db.models import Case, F, Q, QuerySet, When, Window
from django.db.models.functions import RowNumber

from healthboard.diagnosis import catalogue, names
from healthboard.diagnosis.signals import Context, Event, Reading, Thresholds, Verdict
from healthboard.fleet import condemned, heads
from healthboard.fleet.models import Gpu, Head, HealthEvent, Instance, Interval, Source

#: how far back events are read: to the boot, but no less and no more than this
LEAST = timedelta(days=3)
MOST = timedelta(days=14)
#: how long a reading that ended is still told
ENDED = timedelta(hours=24)
#: the newest that are read …
EVENTS = 2000
INTERVALS = 500
#: … and where there are more, of the newest so many rows the last of each kind, so that what is told all the time
#: (a counter that flaps, an application that crashes again and again) pushes nothing else out
LOOKED_THROUGH = 20_000
OF_EACH = 20


def load(instance: Instance, *, now: datetime) -> tuple[list[Event], list[Reading], Context]:
    """Events oldest first, readings oldest first, and the context, as they were known at `now`."""
    gpus = list(Gpu.objects.filter(instance=instance).order_by("index", "uuid"))
    events, readings, context = _events(instance, now), _readings(instance, now), context_of(instance, gpus)
    told = {x.gpu for x in (*events, *readings) if x.gpu} - set(context.expected_uuids)
    away = set()
    if told:  # hardware that was exchanged speaks of another machine: after a move to another host, say
        known = Gpu.objects.filter(account=instance.account_id, uuid__in=told)
        away = set(known.exclude(instance=instance).values_list("uuid", flat=True))
        away |= set(known.filter(instance=None).values_list("uuid", flat=True))
        away -= _names(instance, away)
    registered = {u for r in readings if r.name == "ECS_GPUS" and isinstance(r.value, list) for u in r.value}
    if known_bad := condemned.on(instance, registered, gpus):
        context = replace(context, condemned=known_bad)
    return [e for e in events if e.gpu not in away], [r for r in readings if r.gpu not in away], context


def _names(instance: Instance, gpus: set[str]) -> set[str]:
    """Those of `gpus` that the machine's own latest report names, if it was made since EC2 last started the machine: what
    a node says of a GPU is read there, whoever else has named that GPU."""
    told = Interval.objects.filter(instance=instance, until=None, source="nvml", name="GPU_STATUS", gpu__in=gpus)
    if instance.launched_at:
        told = told.filter(head__last_at__gte=instance.launched_at)
    return set(told.values_list("gpu", flat=True))


def context_of(instance: Instance, gpus: Sequence[Gpu]) -> Context:
    """`gpus`: its own, by index."""
    name = next((g.name for g in gpus if g.name), "")
    return Context(
        instance=instance.instance_id,
        architecture=names.architecture_of_model(name) or names.architecture_of_type(instance.instance_type),
        instance_type=instance.instance_type or None,
        expected_gpus=instance.gpus_expected,
        expected_uuids=tuple(g.uuid for g in gpus),
        gpu_names={g.pci: g.uuid for g in gpus if g.pci},
        boot_id=instance.boot_id or None,
        booted_at=instance.booted_at,
        launched_at=instance.launched_at,
    )


def _events(instance: Instance, now: datetime) -> list[Event]:
    since = now - LEAST
    if instance.booted_at:
        since = min(since, max(instance.booted_at - timedelta(minutes=1), now - MOST))
    rows = HealthEvent.objects.filter(instance=instance, backlog=False, last_at__gte=since, received_at__lte=now)
    found = list(rows.order_by("-last_at", "-pk")[:EVENTS])
    if len(found) == EVENTS:
        # of too many kinds those that may be a failure of the hardware
        grave = Case(When(code__in=_light(), then=1), default=0)
        kinds = _last_of_each(rows, "last_at", "code", "gpu", "source").order_by(grave, "-last_at", "-pk")
        found += HealthEvent.objects.filter(pk__in=list(kinds.values_list("pk", flat=True)[:EVENTS]))
    rows = sorted({row.pk: row for row in found}.values(), key=lambda row: (row.at, row.pk))
    return [
        Event(
            at=row.at,
            code=row.code,
            source=row.source,
            gpu=row.gpu or None,
            text=row.text,
            attrs=row.attrs,
            boot_id=row.boot_id or None,
            seq=row.seq,
            count=row.count,
            last_at=row.last_at if row.last_at != row.at else None,
            instance=instance.instance_id,
        )
        for row in rows
    ]


def _readings(instance: Instance, now: datetime) -> list[Reading]:
    by_pk = {head.pk: head for head in Head.objects.filter(instance=instance)}
    found: list[Reading] = []
    runs: dict[tuple, tuple[int, int]] = {}  # key -> (place in `found`, the round that would continue it)
    told: dict[int, set[str]] = {}  # head -> the sources that it carries
    for row in sorted(_intervals(instance, now), key=lambda row: (row.since, row.pk)):
        head = by_pk[row.head_id]
        reading, after = _reading(instance, row, head, now)
        if row.until is None:
            told.setdefault(head.pk, set()).add(row.source)
        key = (row.head_id, row.source, row.name, row.gpu, heads.canonical(row.value))
        place, expected = runs.get(key, (-1, -1))
        if row.name != "GAP" and expected == row.first_count and row.since - found[place].last <= _longest(head):
            # only its attributes changed: it is still one continuous reading
            reading = _joined(found[place], reading)
            found[place] = reading
        else:
            place = len(found)
            found.append(reading)
        runs[key] = (place, after)
    return found + _open_gaps(instance, by_pk.values(), told, now)


def _intervals(instance: Instance, now: datetime) -> list[Interval]:
    """Every open one, of which there are no more than a round of each channel tells; and the newest of those that ended."""
    rows = Interval.objects.filter(instance=instance, since__lte=now)
    ended = rows.filter(until__gte=now - ENDED)
    wanted = rows.filter(Q(until=None) | Q(until__gte=now - ENDED))
    found = list(wanted.order_by(F("until").desc(nulls_first=True), "-pk")[:INTERVALS])
    if len(found) == INTERVALS:
        kinds = _last_of_each(ended, "until", "head", "source", "name", "gpu").order_by("-until", "-pk")
        found += rows.filter(Q(until=None) | Q(pk__in=list(kinds.values_list("pk", flat=True)[:INTERVALS])))
    return list({row.pk: row for row in found}.values())


def _last_of_each(rows: QuerySet[Any], at: str, *kind: str) -> QuerySet[Any]:
    """The newest `OF_EACH` of each kind, by a time: of the newest `LOOKED_THROUGH` rows, found by the index."""
    edge = rows.order_by(f"-{at}").values_list(at, flat=True)[LOOKED_THROUGH : LOOKED_THROUGH + 1]
    newest = rows.filter(**{f"{at}__gte": first}) if (first := next(iter(edge), None)) else rows
    by_age = [F(at).desc(), F("pk").desc()]
    return newest.annotate(place=Window(RowNumber(), list(kind), by_age)).filter(place__lte=OF_EACH)


@cache
def _light() -> list[str]:
    """Codes that by themselves are no failure of the hardware."""
    return [entry.code for entry in catalogue.load() if entry.verdict not in (Verdict.HARDWARE, Verdict.AMBIGUOUS)]


def _longest(head: Head) -> timedelta:
    return heads.gap_after(head.channel)


def _reading(instance: Instance, row: Interval, head: Head, now: datetime) -> tuple[Reading, int]:
    """The reading, and the number of the round that would continue it."""
    if row.until is None or row.until > now:
        last = min(head.last_at, now)
        seen = row.observations or max(head.count - row.first_count + 1, 1)
    else:
        last, seen = row.until, row.observations or 0
    attrs = row.attrs
    if row.name == "ECS_STATUS" and row.until is None:
        attrs = {**attrs, "running": instance.tasks_running}  # moves all the time, and is not kept in the interval
    reading = Reading(
        name=row.name,
        value=row.value,
        source=row.source,
        since=row.since,
        last=max(last, row.since),
        observations=seen,
        gpu=row.gpu or None,
        attrs=attrs,
        instance=instance.instance_id,
    )
    return reading, row.first_count + seen


def _joined(first: Reading, second: Reading) -> Reading:
    values = {name: getattr(second, name) for name in Reading.__dataclass_fields__}
    return Reading(**{**values, "since": first.since, "observations": first.observations + second.observations})


def _open_gaps(instance: Instance, found: Iterable[Head], told: dict[int, set[str]], now: datetime) -> list[Reading]:
    """Channels that are silent now: a gap without an end yet for each source that they carry, with the reason."""
    gaps = []
    for head in found:
        longest = heads.gap_after(head.channel)
        if not head.ended_by_us:
            longest = max(longest, Thresholds().stale_after)
        if not head.count or now - head.last_at <= longest:
            continue
        value, attrs = "silent because we drained it", {"expected": True}
        if not head.ended_by_us:
            value, attrs = _why_silent(instance, head.channel), {}
        for source in sorted(told.get(head.pk) or {head.channel}):
            gaps.append(
                Reading(
                    name="GAP",
                    value=value,
                    source=source,
                    since=head.last_at,
                    last=now,
                    observations=0,
                    attrs=attrs,
                    instance=instance.instance_id,
                )
            )
    return gaps


def _why_silent(instance: Instance, channel: str) -> str:
    place = Source.objects.filter(account_id=instance.account_id, region=instance.region, name=channel)
    scope = instance.cluster.name if channel == "ecs" and instance.cluster else ""
    scope = instance.instance_id if channel == "local" else scope
    error = place.filter(scope=scope).exclude(error="").values_list("error", flat=True).first()
    return error or "nothing was told since"


# --- to JSON and back


@dataclass(frozen=True, slots=True)
class Frozen:
    """Evidence as it was stored with a case; the arguments of `evaluate()`."""

    events: list[Event]
    readings: list[Reading]
    context: Context
    thresholds: Thresholds
    now: datetime | None


def freeze(
    events: Iterable[Event],
    readings: Iterable[Reading],
    context: Context,
    *,
    thresholds: Thresholds | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """JSON from which `thaw` makes the same evidence again."""
    return {
        "events": [_pack(x) for x in events],
        "readings": [_pack(x) for x in readings],
        "context": _pack(context),
        "thresholds": _pack(thresholds or Thresholds()),
        "now": _plain(now),
    }


def thaw(data: dict[str, Any]) -> Frozen:
    """Raises KeyError, TypeError or ValueError where `data` was not made by `freeze`."""
    return Frozen(
        events=[_unpack(Event, x) for x in data["events"]],
        readings=[_unpack(Reading, x) for x in data["readings"]],
        context=_unpack(Context, data["context"]),
        thresholds=_unpack(Thresholds, data["thresholds"]),
        now=_time(data["now"]),
    )


def thresholds_of(data: dict[str, Any]) -> Thresholds:
    """Those with which evidence was read; the shipped ones where `data` does not tell."""
    try:
        return _unpack(Thresholds, data["thresholds"])
    except (KeyError, TypeError, ValueError):
        return Thresholds()


_TIMES = frozenset({"at", "last_at", "since", "last", "booted_at", "launched_at"})


def _pack(value: Any) -> dict[str, Any]:
    """A dataclass as JSON, without the fields that hold their default None."""
    unset = {f.name for f in fields(value) if f.default is None}
    return {k: _plain(v) for k, v in asdict(value).items() if v is not None or k not in unset}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return heads.clean(value)


def _time(value: Any) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


def _unpack(kind: type, data: dict[str, Any]) -> Any:
    values = {k: v for k, v in data.items() if k in kind.__dataclass_fields__}
    for name, value in values.items():
        if name in _TIMES:
            values[name] = _time(value)
        elif name == "expected_uuids":
            values[name] = tuple(value)
        elif kind is Thresholds and not isinstance(value, bool) and isinstance(value, int | float):
            values[name] = timedelta(seconds=value)
    return kind(**values)
