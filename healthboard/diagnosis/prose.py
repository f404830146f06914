"""What people write about machines: the few statements of a note or a ticket that name a reading, and how many nodes.

Only the plain words of EC2, ECS and AWS Health are taken; statistics and stories give nothing.
"""

from __future__ import annotations

import re
from datetime import timedelta

from healthboard.diagnosis import nvml
from healthboard.diagnosis.kernel_prefix import START
from healthboard.diagnosis.parsed import UNDATED, Parsed, at_line
from healthboard.diagnosis.signals import CheckStatus, Event, Reading

_NODES = r"(?:GPU |container |EC2 |worker )?(?:nodes|instances|hosts|machines)"
_OF = re.compile(rf"\b(\d[\d,]{{0,20}}) (?:of|out of) (?:the )?(\d[\d,]{{0,20}}) {_NODES}\b", re.IGNORECASE)
_SOME = re.compile(
    rf"(?<![\d,.] of )\b(\d[\d,]{{0,20}}) {_NODES}\b(?!.{{0,60}}\b(?:no|nothing|none|still on|fine|healthy|unaffected|quiet)\b)",
    re.IGNORECASE,
)
_EVERY = re.compile(r"\b(?:every|all|each) (?:\w+ ){0,3}(?:nodes?|instances?|hosts?|machines?)\b", re.IGNORECASE)
_EVERY_COUNT = 10
#: nodes that are stood for one by one; more change nothing about the reading
_MOST = 1_000
#: from here on the number counts something else
_NO_FLEET = 1_000_000
#: the story of one node, whatever its mates show
_ONE = re.compile(
    r"\b(?:one|a single|only one) (?:(?:of|out of) (?:\w+ )?\d[\d,]* )?(?:nodes|instances|hosts|machines|node|instance|host|machine)\b|\b(?:node|instance|host) #?\d+ (?:log|show|report)",
    re.I,
)

_STATEMENTS = (
    ("EC2_SYSTEM", re.compile(r"system status check (?:is|are|was) (?:impaired|failed|failing)|SystemStatus.{0,20}impaired", re.I)),
    ("EC2_INSTANCE", re.compile(r"instance status check (?:is|are|was) (?:impaired|failed|failing)|InstanceStatus.{0,20}impaired", re.I)),
    ("EC2_ATTACHED_EBS", re.compile(r"(?:attached )?EBS (?:status )?check (?:is|are|was) (?:impaired|failed|failing)", re.I)),
    ("AGENT_CONNECTIVITY", re.compile(r"agentConnected (?:has been |is |was )?false|agent (?:has been |is )?disconnected", re.I)),
)  # fmt: skip
_HEALTH = re.compile(r"AWS Health (?:notice|event|notification|reports)", re.IGNORECASE)
_ISSUE = re.compile(
    r"availability zone|power|cooling|service (?:issue|event)|operational issue|connectivity issue", re.I
)
_CORRECTED = re.compile(r"(\d[\d,]{0,20}) corrected (?:ECC |memory )?errors (?:per|a|each) second", re.IGNORECASE)
_STALLED = re.compile(
    r"(?:dcgmi?|host ?engine)\b.{0,60}(?:takes? more than|hangs|does not (?:return|answer))", re.IGNORECASE
)
_LONG = re.compile(
    r"for (?:over |more than |about )?(?:an? |\d+ )(?:hour|day)|for (?:over |more than |about )?(\d{1,6}) min", re.I
)


def _prose(text: str) -> str:
    """The text without log lines and bracketed remarks."""
    rows = (row for row in text.splitlines() if not START.search(row) and not row.lstrip().startswith(("[", "(", "{")))
    return " ".join(rows)


def breadth(text: str) -> int | None:
    """How many nodes the text says show the same, or None if it speaks of one."""
    if len(text) > 20_000:
        return None
    prose = _prose(text)
    if m := _OF.search(prose):
        found = int(m[1].replace(",", ""))
        return min(found, _MOST) if found < _NO_FLEET else None
    if _ONE.search(prose):
        return None
    counts = [int(m[1].replace(",", "")) for m in _SOME.finditer(prose)]
    found = max([n for n in counts if 1 < n < _NO_FLEET], default=None)
    if found is None and _EVERY.search(prose):
        return _EVERY_COUNT
    return min(found, _MOST) if found else None


def is_prose(text: str) -> bool:
    """Whether the text is sentences for people, log lines in it or not."""
    return len(text) <= 20_000 and len(re.findall(r"\b[a-z]{2,}\b", _prose(text))) > 7


def read(text: str, *, without: frozenset[str] = frozenset(), tools: bool = True) -> Parsed:
    """Readings and events of plain statements; `known` is 0 if there is none. `without` are codes already read;
    `tools` also takes what NVML's clients say."""
    prose = _prose(text)
    readings, events = [], []
    m = _LONG.search(prose)
    held = timedelta(minutes=int(m[1]) if m[1] else 60) if m else timedelta()
    for name, pattern in _STATEMENTS:
        if pattern.search(prose):
            source = "ecs" if name == "AGENT_CONNECTIVITY" else "ec2"
            attrs = {} if held else {"undated": True}
            readings.append(Reading(name, CheckStatus.IMPAIRED, source, UNDATED, UNDATED + held, attrs=attrs))
    if _HEALTH.search(prose):
        attrs = {"undated": True, "topic": "issue" if _ISSUE.search(prose) else "notice"}
        events.append(Event(at_line(1), "AWS_HEALTH_EVENT", "aws-health", text=prose[:300], attrs=attrs))
    if m := _CORRECTED.search(prose):
        rate = float(m[1].replace(",", ""))
        readings.append(Reading("SBE_RATE", rate, "dcgm", UNDATED, UNDATED, attrs={"undated": True}))
    if _STALLED.search(prose):
        events.append(Event(at_line(3), "DCGM_UNREACHABLE", "dcgm", text=prose[:300], attrs={"undated": True}))
    code, _ = nvml.code_of(prose) if tools else (None, False)
    if code and not code.startswith("XID"):
        events.append(Event(at_line(2), code, "nvml", text=prose[:300], attrs={"undated": True}))
    events = [e for e in events if e.code not in without]
    return Parsed(tuple(events), tuple(readings), known=len(events) + len(readings))
