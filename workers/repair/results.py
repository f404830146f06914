"""What one pass over a step can come to."""

from __future__ import annotations

from dataclasses import dataclass, field

#: for a person; of each: key, title, needs (the verb of `people.access`)
Choices = tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class Done:
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skip:
    note: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after `seconds` at speed 1."""

    seconds: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class PutOff:
    """Nothing was changed yet and now is no time to begin: back to waiting, without a unit of the budget."""

    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Stand still for a person. What is offered of the choices: `turns.offered`."""

    why: str
    choices: Choices = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Undo:
    """Take our own steps back, then close as CANCELLED, or as FAILED with `outcome`."""

    why: str
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Back:
    """What an earlier step had proved is so no longer: it is taken once more, and those after it."""

    step: str
    why: str


@dataclass(frozen=True, slots=True)
class Climb:
    """This action did not help: the next rung of the ladder, or a person."""

    why: str


@dataclass(frozen=True, slots=True)
class End:
    """Over, by what others did or because it cannot go on and nothing needs undoing."""

    succeeded: bool
    outcome: str
    why: str


Result = Done | Skip | Wait | PutOff | Ask | Undo | Back | Climb | End
