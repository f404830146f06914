"""The rows of the test table that are here, and the trials of each. Needs no Django."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.safety.classes import Classes, member
from tests.safety.guards import GUARDS

MAIN = ("REPLACE/TEMPLATE", "REPLACE/GROUP", "REBOOT/TEMPLATE", "REBOOT/GROUP")
OTHERS = ("UNDO/TEMPLATE", "UNDO/GROUP", "RELOCATE/PLAIN", "WATCH/GROUP", "DEAD-HOST/TEMPLATE")
FLOWS = (*MAIN, *OTHERS)
CASES = ("CASES/TEMPLATE", "CASES-OF-TWO/TEMPLATE")
CROWDS = ("CROWD/TEMPLATE", "CROWD/GROUP")
ALONE = "in one process"
Specs = Iterator[dict[str, Any]]
#: seeds of each point in the main flows, and of each call and way
SEEDS, WAYS_SEEDS = 5, 3
#: more trials than are wanted are drawn: one that ended before its harm was done is not counted
SPARE = 2
#: seeds that may stand in at one point for those that ended before it was reached
STAND_INS = 5


@dataclass(frozen=True)
class Row:
    title: str
    specs: Callable[[Classes], Specs]
    #: worker processes that a trial may need
    spares: int = 2
    #: kills, pauses or the like in a trial that counts
    least: int = 1
    #: runs that are wanted, of those that count; 0: each trial once
    wanted: int = 0
    #: runs that a trial holds, about
    holds: float = 1.0
    #: planned from recorded fault points
    recorded: bool = False
    #: a trial that ended before its point was reached has another stand in for it, at the same point
    stand_ins: Callable[[Classes, str, str, int], dict[str, Any]] | None = None
    #: the whole loop in one process, on an empty database
    alone: bool = False


def recordings(_: Classes) -> Specs:
    for flow in FLOWS:
        yield {"row": "points", "flow": flow}


def kills(classes: Classes) -> Specs:
    """Each class of each flow, seed by seed; the flows that are not the main ones once."""
    for seed in range(SEEDS):
        for flow in MAIN if seed else FLOWS:
            for key in classes.get(flow, {}):
                yield kill(classes, flow, key, seed)


def kill(classes: Classes, flow: str, key: str, seed: int) -> dict[str, Any]:
    point = member(classes[flow][key], key, seed)
    return {"row": "T1", "flow": flow, "point": key, "seed": seed, "points": [point]}


def pairs(classes: Classes) -> Specs:
    """Two workers die, the second at or behind the class of the first."""
    rng = random.Random("pairs")
    for number in range(400 * SPARE):
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
    """The switch is thrown at each class of the main flows, and at each step of the others."""
    for flow in FLOWS:
        keys = classes.get(flow, {})
        if flow not in MAIN:  # the last class of each step: behind everything that the step does
            keys = {key.split("|", 1)[0]: (key, points) for key, points in keys.items()}
            keys = dict(keys.values())
        for key, points in keys.items():
            yield {"row": "T14", "flow": flow, "point": key, "seed": 0, "points": [member(points, key, 2)]}


def pauses(classes: Classes) -> Specs:
    """Points spread over the flows; none within a transaction, whose locks would only make the others wait."""
    rng = random.Random("pauses")
    for number in range(200 * SPARE):
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
    for number in range(150 * SPARE):
        yield {
            "row": "T4", "flow": MAIN[number % len(MAIN)], "point": ("restarted", "spoiled")[number // len(MAIN) % 2],
            "seed": number,
        }  # fmt: skip


def restarts(classes: Classes) -> Specs:
    rng = random.Random("restarts")
    for number in range(10 * SPARE):
        flow = MAIN[number % len(MAIN)]
        if classes.get(flow):
            key = rng.choice(list(classes[flow]))
            point = rng.choice(classes[flow][key])
            yield {"row": "T5 restart", "flow": flow, "point": key, "seed": number, "points": [point]}


def failing(row: str) -> Callable[[Classes], Specs]:
    """At a moment drawn by the seed."""

    def specs(_: Classes) -> Specs:
        for number in range(10 * SPARE):
            yield {"row": row, "flow": MAIN[number % len(MAIN)], "point": "", "seed": number}

    return specs


def races(_: Classes) -> Specs:
    """Eight races in each; in every third the policy wants two people."""
    for number in range(125 * SPARE):
        yield {"row": "T13", "flow": CASES[number % 3 == 2], "point": "", "seed": number}


def crowds(_: Classes) -> Specs:
    """Eight repairs in each."""
    for number in range(125 * SPARE):
        yield {"row": "T6", "flow": CROWDS[number % len(CROWDS)], "point": "", "seed": number}


def wrong_clocks(_: Classes) -> Specs:
    """A worker's host shows another time than the database."""
    for number in range(5 * SPARE):
        for hours in (2, -2):
            yield {
                "row": "T12 worker", "flow": MAIN[number % len(MAIN)], "point": str(hours * 3600), "seed": number,
            }  # fmt: skip


#: what each main flow is made of: pool and fault
FAULTS = {
    "REPLACE/TEMPLATE": "solo XID_79", "REPLACE/GROUP": "train XID_79", "REBOOT/TEMPLATE": "solo XID_95",
    "REBOOT/GROUP": "train XID_95",
}  # fmt: skip
WAYS = ("error", "drop_before", "drop_after", "error_after", "empty")


def ambiguous(classes: Classes) -> Specs:
    """Each call that a recording made, in each way, three times: where more flows make it, each time in another."""
    made: dict[str, list[str]] = {}
    for flow, fault in FAULTS.items():
        names = {p[0].split("|")[1] for points in classes.get(flow, {}).values() for p in points}
        for name in names:
            if name.startswith("call "):
                made.setdefault(name.removeprefix("call "), []).append(fault)
    for seed in range(WAYS_SEEDS):
        for operation, faults in sorted(made.items()):
            for number, way in enumerate(WAYS):
                fault = faults[(seed + number) % len(faults)]
                yield {"row": "T8", "flow": ALONE, "point": f"{fault} {operation} {way}", "seed": seed}


def alone(row: str, count: int, *points: str) -> Callable[[Classes], Specs]:
    """`count` seeds at each of the points."""

    def specs(_: Classes) -> Specs:
        for number in range(count):
            for point in points or ("",):
                yield {"row": row, "flow": ALONE, "point": point, "seed": number}

    return specs


#: how a fault comes back, and where
RETURNS = tuple(
    f"{kind} in {pool}"
    for kind in (
        "the same fault on the replacement", "another fault on each replacement", "again after the reboot", "flapping",
    )
    for pool in ("solo", "train")
)  # fmt: skip
#: whose clock is wrong, and by how many seconds
CLOCKS = (
    "node 86400", "node -86400", "database 7200", "database -7200", "database 86400", "leap 1", "leap -1", "date",
)  # fmt: skip

#: seconds of processor time of a trial, its servers' share included, as first measured
SECONDS = {
    "T1": 5.5, "T2": 6.0, "T3": 7.5, "T4": 8.0, "T5 restart": 6.0, "T5 read-only": 7.0, "T5 exhausted": 7.0,
    "T5 restored": 12.0, "T6": 22.0, "T7": 12.0, "T8": 7.0, "T9": 9.0, "T10": 32.0, "T11": 10.0, "T12": 10.0,
    "T12 worker": 7.0, "T13": 4.0, "T14": 6.5, "T15": 12.0, "T16": 40.0, "T17": 90.0, "T19": 4.0, "T21": 12.0,
    "T22": 12.0,
}  # fmt: skip

ROWS = {
    "points": Row("undisturbed, its fault points recorded", recordings, least=0),
    "T1": Row("killed at every fault point", kills, recorded=True, stand_ins=kill),
    "T2": Row("killed twice", pairs, spares=3, least=2, recorded=True, wanted=400),
    "T3": Row("paused beyond the lease", pauses, recorded=True, wanted=200),
    "T4": Row(
        "messages lost, late, doubled, in disorder; the broker emptied, restarted (deliveries)", spoiled, spares=4,
        wanted=10_000, holds=300,
    ),
    "T5 restart": Row(
        "the database crashes and comes back, the worker at a fault point", restarts, recorded=True, wanted=10
    ),
    "T5 read-only": Row("the database takes no writes", failing("T5 read-only"), wanted=10),
    "T5 exhausted": Row("the database takes no more connections", failing("T5 exhausted"), wanted=10),
    "T5 restored": Row("the database is put back while AWS moved on", failing("T5 restored"), wanted=10),
    "T6": Row(
        "two to five workers at once, and a hostile AWS (repairs)", crowds, spares=5, wanted=1000, holds=8,
    ),
    "T7": Row("AWS is away or throttles for 30 minutes", alone("T7", 10, "off", "throttle"), alone=True),
    "T8": Row("each call answers ambiguously, in each way", ambiguous, recorded=True, alone=True),
    "T9": Row("no capacity anywhere", alone("T9", 20), alone=True),
    "T10": Row(
        "of a pool of 100 a share turns bad within a minute, seen by all sources or by none",
        alone("T10", 20, "30%", "60%", "100%", "blind"), alone=True,
    ),
    "T11": Row(
        "the fault comes back on the replacement, after the reboot, or on and off", alone("T11", 7, *RETURNS),
        alone=True, wanted=50,
    ),
    "T12": Row("clocks of nodes and of the database are wrong; rare dates", alone("T12", 5, *CLOCKS), alone=True),
    "T12 worker": Row("a worker's host shows another time", wrong_clocks, wanted=10),
    "T13": Row(
        "answers of people race with each other, time, evidence, rights and kills (races)", races, spares=0, wanted=1000,
        holds=8,
    ),
    "T14": Row("the stop switch thrown at every step", stops, recorded=True),
    "T15": Row("10,000 old events after a restart", alone("T15", 10), alone=True),
    "T16": Row(
        "one node's credential, ended ones and what was overheard: forged and replayed reports and enrolments",
        alone("T16", 10 * SPARE), alone=True, wanted=100_000, holds=10_000,
    ),
    "T17": Row(
        "mangled texts, events and bodies for parsers, queue and API (inputs)", alone("T17", 10 * SPARE), alone=True,
        wanted=1_000_000, holds=100_000,
    ),
    "T19": Row("the audit record changed behind its back (changes)", alone("T19", 10), alone=True, wanted=1000, holds=100),
    "T21": Row(
        "messages of any task with any argument, while people were asked and have answered (messages)",
        alone("T21", 20 * SPARE), alone=True, wanted=10_000, holds=500,
    ),
    "T22": Row("a guard taken out: the test that is named for it fails", alone("T22", 1, *GUARDS), alone=True),
}  # fmt: skip


def left(name: str, classes: Classes, results: Iterable[Mapping[str, Any]]) -> Specs:
    """What of a row is not among its results (flow, point, seed, reached); what has to stand in for some of them too."""
    row = ROWS[name]
    specs = list(row.specs(classes))
    wanted = Counter((spec["flow"], spec.get("point", "")) for spec in specs)
    tried: dict[tuple[str, str], dict[int, bool]] = defaultdict(dict)
    for result in results:
        tried[result["flow"], result["point"]][result["seed"]] = result["reached"] >= row.least
    for spec in specs:
        if spec.get("seed", 0) not in tried[spec["flow"], spec.get("point", "")]:
            yield spec
    for (flow, point), count in wanted.items() if row.stand_ins else ():
        done = tried[flow, point]
        ended = sum(1 for seed, reached in done.items() if seed < count and not reached)
        stood_in = sum(1 for seed, reached in done.items() if seed >= count and reached)
        further = [seed for seed in range(count, count + STAND_INS) if seed not in done]
        for seed in further[: max(ended - stood_in, 0)]:
            yield row.stand_ins(classes, flow, point, seed)
