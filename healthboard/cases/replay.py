"""Decide recorded evidence again. Nothing is read but what was kept with it, so the answer cannot depend on today.

The kept inputs go through `evaluate()` and the policy's answer exactly as they did; with other policies in place of
those of the same name, the same evidence shows what they would have done. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from healthboard.cases.evidence import answer_json, assessment_json
from healthboard.cases.judge import Circumstances, narrow
from healthboard.cases.models import Evidence
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Assessment, Thresholds
from healthboard.fleet.evidence import thaw
from healthboard.policies.matching import Resolved, Snapshot, Target, combine, snapshot_of
from healthboard.policies.resolve import thresholds

#: what decides, of an assessment and of an answer; the rest is words and times of the same thing
DECIDES = ("verdict", "action", "may_act", "codes")
ANSWERS = ("mode", "action", "watch", "dead_host", "untouchable")
OF_FINDING = ("code", "gpu", "verdict", "action", "role", "count")

COUNTERFACTUAL = "something earlier in this pool would have gone otherwise, so this might never have come"


class Unreadable(Exception):
    """The evidence is not in a form that can be decided again."""


class Purged(Unreadable):
    """Its inputs are older than evidence is kept."""


def purged(at: datetime) -> int:
    """How many pieces of evidence from `at` on cannot be decided again, since their inputs were purged."""
    return Evidence.objects.filter(at__gte=at, inputs__has_key="purged").count()


@dataclass(frozen=True, slots=True)
class Again:
    """One piece of evidence, decided again: the JSON that would be stored now. `answer` is empty where none was kept."""

    assessment: dict[str, Any]
    answer: dict[str, Any]
    thresholds: Thresholds
    policy: Resolved | None  # under which it was decided again
    read: Assessment


@dataclass(frozen=True, slots=True)
class Difference:
    row: Evidence
    stored: str
    now: str
    why: tuple[str, ...]
    #: another policy would have decided something earlier in this pool otherwise, so this might never have come
    counterfactual: bool = False

    def lines(self) -> list[str]:
        case = self.row.case
        head = f"case {case.pk} ({case.instance or case.title}), evidence of {self.row.at:%Y-%m-%d %H:%M:%S}"
        lines = [head, f"  stored: {self.stored}", f"  now:    {self.now}", *(f"  why:    {why}" for why in self.why)]
        return [*lines, "  note:   " + COUNTERFACTUAL] if self.counterfactual else lines


@dataclass(frozen=True, slots=True)
class Instead:
    """Policies, each as a version keeps it (see `exchange.read`), in place of those of the same name, of the default
    where one of them is that, and of those called one of `names`: what a renamed one was called before."""

    policies: Sequence[Mapping[str, Any]]
    names: frozenset[str] = frozenset()

    def removes(self, kept: Snapshot) -> bool:
        named = {*self.names, *(data["name"] for data in self.policies)}
        return kept.name in named or (kept.default and any(data["is_default"] for data in self.policies))

    def concerns(self, row: Evidence) -> bool:
        """Whether one of them matched then, or would have. What none of them concerns is decided as it was."""
        kept = row.inputs.get("policy") or {}
        if any(self.removes(snapshot_of(version["data"])) for version in kept.get("versions", ())):
            return True
        targets = [Target(**target) for target in kept.get("targets", ())]
        given = [snapshot_of(data) for data in self.policies if data["enabled"]]
        return any(snapshot.matches(target) for snapshot in given for target in targets)


def again(row: Evidence, instead: Instead | None = None, known: Again | None = None) -> Again:
    """Decide it again, under the policies that were used, or with `instead`. Raises Unreadable.

    `known`: the same evidence, decided under other policies; where these read it alike, it is not read again.
    """
    if at := row.inputs.get("purged"):
        raise Purged(f"its inputs were purged on {at[:10]}")
    try:
        frozen = thaw(row.inputs)
        resolved = _policies(row.inputs["policy"], instead) if "policy" in row.inputs else None
        given = Circumstances(**row.inputs["given"]) if "given" in row.inputs else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"its inputs cannot be read: {error!r}") from None
    if frozen.now is None:
        raise Unreadable("its inputs do not say when they were read")
    limits = frozen.thresholds
    if instead is not None:
        if resolved is None:
            raise Unreadable("it does not say which policies it was decided under")
        limits = thresholds(resolved.values)
    if known is not None and known.thresholds == limits:
        assessment, told = known.read, known.assessment
    else:
        assessment = evaluate(
            frozen.events, frozen.readings, now=frozen.now, context=frozen.context, thresholds=limits
        )  # fmt: skip
        told = assessment_json(assessment)
    answer = {}
    if resolved is not None and given is not None:
        answer = answer_json(narrow(assessment, resolved, given))
    return Again(told, answer, limits, resolved, assessment)


def _policies(kept: dict[str, Any], instead: Instead | None) -> Resolved:
    """The policies of then, or those that are to stand in their place, matched against what ran there then."""
    found = [snapshot_of(version["data"]) for version in kept["versions"]]
    if instead is not None:
        found = [snapshot for snapshot in found if not instead.removes(snapshot)]
        found += [snapshot_of(data) for data in instead.policies if data["enabled"]]
    return combine(found, [Target(**target) for target in kept["targets"]])


@dataclass(slots=True)
class Course:
    """In which pools another policy would have changed the course of things by now. What comes later there is
    counterfactual. An instance without a pool stands for itself."""

    changed: set[tuple[str, int | None]] = field(default_factory=set)

    def counterfactual(self, row: Evidence) -> bool:
        return self._place(row) in self.changed

    def change(self, row: Evidence) -> None:
        self.changed.add(self._place(row))

    @staticmethod
    def _place(row: Evidence) -> tuple[str, int | None]:
        return ("pool", row.case.pool_id) if row.case.pool_id else ("instance", row.case.instance_id)


def difference(row: Evidence, instead: Instead | None = None) -> Difference | None:
    """What is decided otherwise now; None where it is not. Words that changed decide nothing."""
    try:
        now = again(row, instead)
    except Unreadable as error:
        return Difference(row, _shown(row.assessment, row.answer), "cannot be decided again", (str(error),))
    return compare(row, now)


def compare(row: Evidence, now: Again) -> Difference | None:
    """What was stored with the evidence beside what is decided now."""
    before = _deciding(row.assessment, row.answer)
    after = _deciding(now.assessment, now.answer if row.answer else {})
    if before == after:
        return None
    return Difference(
        row,
        _shown(row.assessment, row.answer),
        _shown(now.assessment, now.answer),
        tuple(_why(row, now, before, after)),
    )


def since(at: datetime, instead: Instead | None = None) -> Iterator[Difference | None]:
    """For each piece of evidence from `at` on that can still be decided again (see `purged`), in the order in which it
    was kept."""
    rows = (
        Evidence.objects.filter(at__gte=at)
        .exclude(inputs__has_key="purged")
        .select_related("case__instance")
        .order_by("pk")
    )
    course = Course()
    for row in rows.iterator(chunk_size=100):
        found = difference(row, instead)
        if found is not None and instead is not None:
            found = replace(found, counterfactual=course.counterfactual(row))
            course.change(row)
        yield found


def alike(one: Again, other: Again) -> bool:
    """Whether both decide the same, whatever their words."""
    return _deciding(one.assessment, one.answer) == _deciding(other.assessment, other.answer)


def _deciding(assessment: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    facts = {name: assessment.get(name) for name in DECIDES}
    facts["findings"] = [tuple(f.get(name) for name in OF_FINDING) for f in assessment.get("findings") or []]
    return facts | {f"policy's {name}": answer[name] for name in ANSWERS if name in answer}


def _shown(assessment: dict[str, Any], answer: dict[str, Any]) -> str:
    codes = ", ".join(assessment.get("codes") or []) or "no code"
    said = f"{assessment.get('verdict')}, {assessment.get('action')}, {codes}"
    said += ", may act" if assessment.get("may_act") else ", may not act alone"
    return said + (f"; the policy: {answer['mode']} {answer['action']}" if answer else "")


def _why(row: Evidence, now: Again, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    old, new = (x.get("catalogue_version") for x in (row.assessment, now.assessment))
    if old != new:
        yield f"the catalogue changed from {old} to {new}"
    then = thaw(row.inputs).thresholds
    for name in Thresholds.__dataclass_fields__:
        if getattr(then, name) != getattr(now.thresholds, name):
            yield f"{name} {_value(getattr(then, name))} → {_value(getattr(now.thresholds, name))}"
    for name in before:
        if name != "findings" and before[name] != after.get(name):
            yield f"{name.replace('_', ' ')} {_value(before[name])} → {_value(after.get(name))}"
    for finding in sorted(set(before["findings"]) ^ set(after["findings"]), key=str):
        which = "no more" if finding in before["findings"] else "now"
        yield f"{which}: {' '.join(str(x) for x in finding if x is not None)}"
    if now.assessment.get("why") != row.assessment.get("why"):
        yield f"now it says: {now.assessment.get('why')}"
    if now.answer.get("why") and now.answer["why"] != row.answer.get("why"):
        yield f"now the policy says: {now.answer['why']}"


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
