"""JSON answers and events in a text, told apart by their shape: EC2's and ECS's Describe answers, EventBridge's events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from healthboard.diagnosis import aws_events, ec2, ecs
from healthboard.diagnosis.parsed import UNDATED, Ignored, Parsed, parse_time
from healthboard.diagnosis.signals import Event, Reading


def read(text: str) -> Parsed:
    """All JSON documents of the text, in whatever shapes."""
    found = Parsed()
    newest: dict[str, int] = {}
    documents = [d for top in _json(text) for d in (top if isinstance(top, list) else [top]) if isinstance(d, Mapping)]
    for n, document in enumerate(documents):
        found = found + _document(document, newest, UNDATED + timedelta(microseconds=n))
    return found


def _json(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    pos, end = 0, len(text)
    for _ in range(100_000):
        starts = [i for i in (text.find("{", pos), text.find("[", pos)) if i >= 0]
        if not starts:
            return
        pos = min(starts)
        try:
            document, pos = decoder.raw_decode(text, pos)
        except (ValueError, RecursionError):
            newline = text.find("\n", pos)
            if newline < 0:
                return
            pos = newline + 1
            continue
        yield document
        if pos >= end:
            return


def _document(document: Mapping[str, Any], newest: dict[str, int], at: datetime) -> Parsed:
    """One document; `at` stands in for the clock that a Describe answer lacks, so that a later answer is newer."""
    if isinstance(document.get("InstanceStatuses"), list):
        return _ec2_rows(document["InstanceStatuses"], at)
    if "InstanceId" in document and ("SystemStatus" in document or "InstanceState" in document):
        return _ec2_rows([document], at)
    if isinstance(document.get("containerInstances"), list):
        return _ecs_rows(document, at)
    if "detail-type" in document:
        return _event(document, newest)
    if "containerInstanceArn" in document and "agentConnected" in document:
        return _ecs_rows({"containerInstances": [document]}, at)
    return Parsed()


def _ec2_rows(rows: list[Any], at: datetime) -> Parsed:
    if not rows:
        return Parsed((Event(UNDATED, "EC2_STATUS_EMPTY", "ec2", attrs={"undated": True}),), known=1)
    readings: list[Reading] = []
    for row in rows:
        readings += ec2.read_status(row, at=at)[1]
    return Parsed((), tuple(_undated(r) for r in readings), known=len(rows))


def _ecs_rows(document: Mapping[str, Any], at: datetime) -> Parsed:
    events: list[Event] = []
    readings: list[Reading] = []
    rows = document["containerInstances"]
    for row in rows:
        e, r = ecs.read_container_instance(row, at=_ecs_time(row, at))
        events += e
        readings += [_undated(x) for x in r]
    failures = document.get("failures")
    missing = [f for f in failures if isinstance(f, Mapping)] if isinstance(failures, list) else []
    for failure in missing:
        text = f"{failure.get('arn')}: {failure.get('reason')}"
        events.append(Event(UNDATED, "ECS_INSTANCE_MISSING", "ecs", text=text[:300], attrs={"undated": True}))
    if not rows and not missing:
        events.append(Event(UNDATED, "ECS_INSTANCE_MISSING", "ecs", attrs={"undated": True}))
    return Parsed(tuple(events), tuple(readings), known=1)


def _ecs_time(row: Any, at: datetime) -> datetime:
    """The newest time in the health details: a Describe answer carries no clock of its own."""
    health = row.get("healthStatus") if isinstance(row, Mapping) else None
    details = health.get("details") if isinstance(health, Mapping) else None
    times = [
        t
        for d in (details if isinstance(details, list) else [])
        if isinstance(d, Mapping)
        for key in ("lastUpdated", "lastStatusChange")
        if (t := parse_time(d.get(key)))
    ]
    return max(times, default=at)


def _event(document: Mapping[str, Any], newest: dict[str, int]) -> Parsed:
    """An event; one that arrives after a newer version of the same instance says nothing."""
    detail = document.get("detail")
    if isinstance(detail, Mapping) and isinstance(detail.get("version"), int):
        arn = str(detail.get("containerInstanceArn"))
        if detail["version"] < newest.get(arn, 0):
            text = f"version {detail['version']} of {arn}"
            return Parsed(ignored=(Ignored("an older version of the same instance", 1, text[:160]),), known=1)
        newest[arn] = detail["version"]
    events, readings = ecs.read_event(document)
    more_events, more_readings = aws_events.read(document)
    known = bool(events or readings or more_events or more_readings) or "ECS " in str(document.get("detail-type"))
    known = known or aws_events.is_known(document)
    return Parsed(tuple(events + more_events), tuple(readings + more_readings), known=int(known))


def _undated(r: Reading) -> Reading:
    return replace(r, attrs={**r.attrs, "undated": True})
