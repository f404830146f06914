"""The rows of the test table that are here, and the trials of each. Needs no Django."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.safety.classes import Classes, member

MAIN = ("REPLACE/TEMPLATE", "REPLACE/GROUP", "REBOOT/TEMPLATE", "REBOOT/GROUP")
OTHERS = ("UNDO/TEMPLATE", "UNDO/GROUP", "RELOCATE/PLAIN", "WATCH/GROUP", "DEAD-HOST/TEMPLATE")
FLOWS = (*MAIN, *OTHERS)
ALONE = "in one process"
Specs = Iterator[dict[str, Any]]
SEEDS, PAIRS, PAUSES, SPOILED, FAILURES, RACES, CROWDS = 5, 400, 200, 60, 16, 125, 200


@dataclass(frozen=True)
class Row:
    title: str
    specs: Callable[[Classes], Specs]
    #: worker processes that a trial may need
    spares: int = 2
    #: kills, pauses or the like in a trial that counts
    least: int = 1
    #: planned from recorded fault points
    recorded: bool = False
    #: the whole loop in one process, on an empty database
    alone: bool = False


def recordings(_: Classes) -> Specs:
    for flow in FLOWS:
        yield {"row": "points", "flow": flow}


def kills(classes: Classes) -> Specs:
    """Each class of each flow, seed by seed; the flows that are not the main ones once."""
    for seed in range(SEEDS):
        for flow in MAIN if seed else FLOWS:
            for key, points in classes.get(flow, {}).items():
                yield {
                    "row": "T1", "flow": flow, "point": key, "seed": seed, "points": [member(points, key, seed)],
                }  # fmt: skip


def pairs(classes: Classes) -> Specs:
    """Two workers die, the second at or behind the class of the first."""
    rng = random.Random("pairs")
    for number in range(PAIRS * 3 // 2):
        flow = MAIN[number % len(MAIN)]
        keys = list(classes.get(flow, {}))
        if not keys:
            continue
        first = rng.randrange(len(keys))
        second = rng.randrange(first, min(first + 12, len(keys)))
        one, two = (rng.choice(classes[flow][keys[n]]) for n in (first, second))
        yield {
            "row": "T2", "flow": flow, "point": f"{keys[first]} + {keys[second]}", "seed": number,
            "points": [one, [two[0], 1]],
        }  # fmt: skip


def stops(classes: Classes) -> Specs:
    """The switch is thrown at each class of each flow."""
    for flow in FLOWS:
        for key, points in classes.get(flow, {}).items():
            yield {"row": "T14", "flow": flow, "point": key, "seed": 0, "points": [member(points, key, 2)]}


def pauses(classes: Classes) -> Specs:
    """Points spread over the flows; none within a transaction, whose locks would only make the others wait."""
    rng = random.Random("pauses")
    for number in range(PAUSES * 5 // 4):
        flow = MAIN[number % len(MAIN)]
        if not classes.get(flow):
            continue
        key = rng.choice(list(classes[flow]))
        outside = [p for p in classes[flow][key] if not _in_transaction(p[0])]
        if outside:
            yield {"row": "T3", "flow": flow, "point": key, "seed": number, "points": [rng.choice(outside)]}


def _in_transaction(name: str) -> bool:
    _, kind, _, when = name.split("|")
    return (kind, when) == ("commit", "before")


def spoiled(classes: Classes) -> Specs:
    for number in range(SPOILED):
        yield {
            "row": "T4", "flow": MAIN[number % len(MAIN)], "point": ("restarted", "spoiled")[number // len(MAIN) % 2],
            "seed": number,
        }  # fmt: skip


def restarts(classes: Classes) -> Specs:
    rng = random.Random("restarts")
    for number in range(FAILURES * 3 // 2):
        flow = MAIN[number % len(MAIN)]
        if classes.get(flow):
            key = rng.choice(list(classes[flow]))
            point = rng.choice(classes[flow][key])
            yield {"row": "T5 restart", "flow": flow, "point": key, "seed": number, "points": [point]}


def failing(row: str) -> Callable[[Classes], Specs]:
    """At a moment drawn by the seed."""

    def specs(_: Classes) -> Specs:
        for number in range(FAILURES * 3 // 2):
            yield {"row": row, "flow": MAIN[number % len(MAIN)], "point": "", "seed": number}

    return specs


def races(_: Classes) -> Specs:
    """Eight races in each."""
    for number in range(RACES):
        yield {"row": "T13", "flow": "CASES/TEMPLATE", "point": "", "seed": number}


def crowds(_: Classes) -> Specs:
    for number in range(CROWDS):
        yield {"row": "T6", "flow": MAIN[number % len(MAIN)], "point": "", "seed": number}


#: what each main flow is made of: pool and fault
FAULTS = {
    "REPLACE/TEMPLATE": "solo XID_79", "REPLACE/GROUP": "train XID_79", "REBOOT/TEMPLATE": "solo XID_95",
    "REBOOT/GROUP": "train XID_95",
}  # fmt: skip
WAYS = ("error", "drop_before", "drop_after", "error_after", "empty")


def ambiguous(classes: Classes) -> Specs:
    """Each call that a recording made, in each way, three times."""
    for seed in range(3):
        for flow, fault in FAULTS.items():
            names = {p[0].split("|")[1] for points in classes.get(flow, {}).values() for p in points}
            for operation in sorted(n.removeprefix("call ") for n in names if n.startswith("call ")):
                for way in WAYS:
                    yield {"row": "T8", "flow": ALONE, "point": f"{fault} {operation} {way}", "seed": seed}


def alone(row: str, count: int, *points: str) -> Callable[[Classes], Specs]:
    """`count` seeds at each of the points."""

    def specs(_: Classes) -> Specs:
        for number in range(count):
            for point in points or ("",):
                yield {"row": row, "flow": ALONE, "point": point, "seed": number}

    return specs


ROWS = {
    "points": Row("undisturbed, its fault points recorded", recordings, least=0),
    "T1": Row("killed at every fault point", kills, recorded=True),
    "T2": Row("killed twice", pairs, spares=3, least=2, recorded=True),
    "T3": Row("paused beyond the lease", pauses, recorded=True),
    "T4": Row("messages lost, late, doubled, in disorder; the broker emptied, restarted (deliveries)", spoiled),
    "T5 restart": Row("the database crashes and comes back, the worker at a fault point", restarts, recorded=True),
    "T5 read-only": Row("the database takes no writes", failing("T5 read-only")),
    "T5 exhausted": Row("the database takes no more connections", failing("T5 exhausted")),
    "T5 restored": Row("the database is put back while AWS moved on", failing("T5 restored")),
    "T6": Row("four workers at once, and a hostile AWS (repairs)", crowds, spares=4),
    "T7": Row("AWS is away or throttles for 30 minutes", alone("T7", 10, "off", "throttle"), alone=True),
    "T8": Row("each call answers ambiguously, in each way", ambiguous, recorded=True, alone=True),
    "T9": Row("no capacity anywhere", alone("T9", 20), alone=True),
    "T10": Row(
        "a share of a pool turns bad within a minute (machines)", alone("T10", 20, "30%", "60%", "100%"), alone=True
    ),
    "T13": Row("answers of people race with each other, time, evidence and rights (races)", races, spares=0),
    "T14": Row("the stop switch thrown at every fault point", stops, recorded=True),
    "T15": Row("old events after a restart (events)", alone("T15", 10), alone=True),
    "T19": Row("the audit record changed behind its back (changes)", alone("T19", 10), alone=True),
}
