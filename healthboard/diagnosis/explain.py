"""`explain`: a text in, the reading of it out, by the same parsers, `evaluate` and `correlate` as everywhere.

The clock is the text's own: its newest line is now, so that an old log reads as it read when it was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from healthboard.diagnosis import catalogue, prose
from healthboard.diagnosis.correlate import Group, Subject, correlate
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.formats import FORMATS, KINDS, read
from healthboard.diagnosis.parsed import MAX_IGNORED, UNDATED, Ignored, Parsed
from healthboard.diagnosis.signals import (
    ACTION_ORDER,
    VERDICT_ORDER,
    Action,
    Assessment,
    Context,
    Event,
    Finding,
    Reading,
    Thresholds,
    Verdict,
)

MAX_TEXT = 200_000_000
_FOREVER = timedelta(days=36_500)
_THRESHOLDS = Thresholds(stale_after=_FOREVER, shown_for=_FOREVER)


#: what was written for people and names no reading
_STORY = Assessment(Verdict.UNKNOWN, Action.NONE, why="a story, a plan or statistics are no evidence about any node")


class Unreadable(ValueError):
    """Nothing of the input was understood; the text is one line for a person."""


def explain(text: str, format_: str = "auto", *, instance: str | None = None) -> dict[str, Any]:
    """The JSON object of `manage.py explain`. Raises `Unreadable`."""
    if format_ not in FORMATS:
        raise Unreadable(f"unknown format {format_!r}: one of {', '.join(FORMATS)}")
    if not text.strip():
        raise Unreadable("the input is empty")
    if len(text) > MAX_TEXT:
        raise Unreadable("the input is too large")
    if "\0" in text[:4096]:
        raise Unreadable("the input is not text")
    parsed = read(text, format_)
    if format_ == "auto" and prose.is_prose(text):
        read_already = bool(parsed.events or parsed.readings)
        parsed = parsed + prose.read(text, without=frozenset(e.code for e in parsed.events), tools=not read_already)
    if not parsed.known and format_ in ("auto", "ec2-status", "ecs-describe", "ecs-event", "aws-health"):
        raise Unreadable(f"the input was not recognised as {'any known format' if format_ == 'auto' else format_}")
    assessments = _assess(parsed, instance)
    groups = _groups(parsed, assessments, prose.breadth(text))
    return _result(assessments, groups, parsed.ignored)


def _assess(parsed: Parsed, instance: str | None) -> list[tuple[str | None, Assessment]]:
    """One assessment per instance that the text names; what names none belongs to the one that is asked about."""
    events: dict[str | None, list[Event]] = {}
    readings: dict[str | None, list[Reading]] = {}
    for event in parsed.events:
        events.setdefault(event.instance, []).append(event)
    for reading in parsed.readings:
        readings.setdefault(reading.instance, []).append(reading)
    names = list(dict.fromkeys([*events, *readings])) or [None]
    times = [t for e in parsed.events for t in (e.at, e.last_at) if t] + [r.last for r in parsed.readings]
    boots = [e.boot_id for e in parsed.events if e.source == "kernel"]
    found = []
    for name in names:
        # one text, one story: all its instances are read at the same moment
        context = Context(instance=name or instance, boot_id=boots[-1] if boots and boots[-1] else None)
        got = evaluate(
            events.get(name, []),
            _intervals(readings.get(name, [])),
            now=max(times, default=UNDATED),
            context=context,
            thresholds=_THRESHOLDS,
        )
        found.append((name or instance, got))
    return found


def _intervals(readings: Iterable[Reading]) -> list[Reading]:
    """Equal readings that follow each other are one interval, as the collectors keep them."""
    rows: dict[tuple[str, str | None, str], list[Reading]] = {}
    for r in sorted(readings, key=lambda r: r.last):
        row = rows.setdefault((r.name, r.gpu, r.source), [])
        if row and row[-1].value == r.value:
            row[-1] = replace(r, since=row[-1].since, observations=row[-1].observations + 1)
        else:
            row.append(r)
    return [r for row in rows.values() for r in row]


def _groups(parsed: Parsed, assessments: list[tuple[str | None, Assessment]], breadth: int | None) -> tuple[Group, ...]:
    zones = {r.instance: str(r.attrs["zone"]) for r in parsed.readings if r.attrs.get("zone")}
    subjects: list[Subject] = []
    for n, (name, got) in enumerate(assessments):
        at = min((f.first for f in got.findings if f.first), default=UNDATED)
        scopes = {"pool": "the input", **({"zone": zones[name]} if name in zones else {})}
        subjects.append(Subject(name or f"instance {n}", at, got.decisive_codes, scopes, (), got.codes))
    if breadth and len(subjects) == 1 and subjects[0].all_codes:
        # the text itself says that so many nodes show this
        only = subjects[0]
        if assessments[0][1].verdict is Verdict.UNKNOWN:
            # one that can't be seen is a blind spot, many at once have a cause
            only = replace(only, codes=only.all_codes)
        subjects = [replace(only, instance=f"node {n}", scopes={"pool": "the text's nodes"}) for n in range(breadth)]
    if len(subjects) < 2:
        return ()
    sizes: dict[tuple[str, str], int] = {}
    for subject in subjects:
        for scope in subject.scopes.items():
            sizes[scope] = sizes.get(scope, 0) + 1
    groups = correlate(subjects, now=max(s.at for s in subjects), sizes=sizes)
    return tuple(g for g in groups if g.kind == "CORRELATED")


def _result(
    assessments: list[tuple[str | None, Assessment]], groups: tuple[Group, ...], ignored: Iterable[Ignored]
) -> dict[str, Any]:
    verdict = min((a.verdict for _, a in assessments), key=VERDICT_ORDER.index)
    worst = [a for _, a in assessments if a.verdict is verdict]
    action = max((a.action for a in worst), key=ACTION_ORDER.index)
    codes = list(dict.fromkeys(code for a in [*worst, *(a for _, a in assessments)] for code in a.codes))
    if groups:
        verdict, action = Verdict.CORRELATED, Action.HOLD
        first = [g.code for g in groups if g.code]
        codes = list(dict.fromkeys([*first, *codes]))
    return {
        "verdict": str(verdict),
        "action": str(action),
        "codes": codes,
        "why": "; ".join(g.why for g in groups) or next((a.why for a in worst if a.why), ""),
        "findings": [_finding(f) for _, a in assessments for f in a.findings],
        "ignored": [{"reason": i.reason, "count": i.count, "example": i.example} for i in _merged(ignored)],
        "catalogue": catalogue.version(),
    }


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "code": f.code, "verdict": str(f.verdict), "action": str(f.action), "scope": f.scope, "instance": f.instance,
        "gpu": f.gpu, "count": f.count, "first": f.first.isoformat() if f.first else None,
        "last": f.last.isoformat() if f.last else None, "rule": f.rule, "why": f.why, "sources": list(f.sources),
    }  # fmt: skip


def _merged(ignored: Iterable[Ignored]) -> list[Ignored]:
    rows: dict[str, Ignored] = {}
    for row in ignored:
        old = rows.get(row.reason)
        rows[row.reason] = replace(old, count=old.count + row.count) if old else row
    return list(rows.values())[:MAX_IGNORED]


def explain_lines(lines: Iterable[str]) -> Iterator[tuple[dict[str, Any], bool]]:
    """(object, good) for each line of ``{"id", "kind", "text"}``; a bad line gives its id and the error."""
    for line in lines:
        if not line.strip():
            continue
        row: Any = None
        try:
            row = json.loads(line)
            text, kind = row["text"], row.get("kind")
            if not isinstance(text, str):
                raise Unreadable("text must be a text")
            format_ = kind if kind in FORMATS else KINDS.get(kind, "auto") if isinstance(kind, str) else "auto"
            yield {"id": row.get("id"), **explain(text, format_)}, True
        except Unreadable as error:
            if row.get("kind") == "incident" and isinstance(row.get("text"), str) and prose.is_prose(row["text"]):
                yield {"id": row.get("id"), **_result([(None, _STORY)], (), ())}, True
            else:
                yield {"id": row.get("id"), "error": str(error)}, False
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            known = row.get("id") if isinstance(row, dict) else None
            yield {"id": known, "error": f"not a line of id, kind and text: {str(error)[:100]}"}, False
