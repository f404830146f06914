"""What a cell of the fleet's map looks like: health by shape and colour, the GPUs as a row of bars, our own stage as a
sign of its own. Each look is one SVG symbol that all cells with it use."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.html import escape

from healthboard import words

#: side of a cell in pixels: a target that a finger meets
SIZE = 24
MOST_GPUS = 16
#: tone of a health -> its shape in a box of 11 by 11; those named in `_LINES` are drawn as a line
_HEALTH = {
    "bad": "M3.4 0h4.2L11 3.400v4.200L7.600 11H3.400L0 7.600V3.400z",
    "many": "M5.500 0 11 11H0z",
    "doubt": "M5.500 0 11 5.500 5.500 11 0 5.500z",
    "watch": "M0 5.500C2.500 1 8.500 1 11 5.500 8.500 10 2.500 10 0 5.500z",
    "app": "M1 1h9v9H1z",
    "blind": "M3 3.600c0-3.600 5.200-3.400 5.200-.4 0 2-2.700 2-2.700 4.200M5.500 9.500v1.500",
    "good": "m1.500 5.800 2.800 2.800 5-6",
}
_LINES = ("app", "blind", "good")
#: sign of a stage -> its shape in a box of 8 by 8; a machine in service has none
_STAGE = {
    "hand": "M4 0a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM0 8c0-4.500 8-4.500 8 0z",
    "lock": "M1 3.500h.8V2.600C1.800-.8 6.200-.8 6.200 2.600v.9H7V8H1zM3 3.500h2V2.600C5 1 3 1 3 2.600z",
    "run": "M0 0 8 4 0 8z",
    "undo": "M8 0v8L0 4z",
    "clock": "M4 0a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM3.400 1.400v3.100l2.300 1.400.5-.9-1.700-1V1.400z",
    "eye": "M0 4c2-3.600 6-3.600 8 0-2 3.600-6 3.600-8 0z",
}


class State(NamedTuple):
    """All that decides a cell's look."""

    verdict: str
    gpus: int  # expected; 0: not known
    bad: int  # mask of the GPUs that are not good
    blind: bool  # nothing was told of the GPUs lately: none counts as good
    stage: str


def symbol(name: str, state: State) -> str:
    """One look as an SVG symbol with that id; `data-words` says the same to people who point at a cell."""
    health = words.VERDICTS.get(state.verdict) or words.VERDICTS["UNKNOWN"]
    tone = "blind" if state.stage == "gone" else health.tone
    line = " line" if tone in _LINES else ""
    return (
        f'<symbol id="{name}" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}" data-words="{escape(_said(state))}">'
        f'<rect class="m-box {tone}" x="1.500" y="1.500" width="21" height="21" rx="4"/>'
        f'<path class="m-shape {tone}{line}" transform="translate(2.500 3)" d="{_HEALTH[tone]}"/>'
        f"{_sign(state.stage)}{_bars(state)}</symbol>"
    )


def _sign(stage: str) -> str:
    mark = words.STAGES.get(stage)
    if mark is None or mark.icon not in _STAGE:
        return ""
    return f'<path class="m-sign {mark.tone}" fill-rule="evenodd" transform="translate(14.600 3) scale(.9)" d="{_STAGE[mark.icon]}"/>'


def _bars(state: State) -> str:
    """A bar for each GPU: short where it is good, tall where it is not, a dot where it is not known."""
    count = min(max(state.gpus, state.bad.bit_length()), MOST_GPUS)
    if not count:
        return ""
    step = min(2.5, 19 / count)
    start = (SIZE - step * count) / 2
    good, bad = [], []
    for index in range(count):
        x, wide = f"{start + index * step:.4g}", f"{step * 0.75:.3g}"
        if state.bad >> index & 1:
            bad.append(f"M{x} 14.500h{wide}v7h-{wide}z")
        else:
            good.append(f"M{x} 20h{wide}v1.500h-{wide}z" if state.blind else f"M{x} 18h{wide}v3.500h-{wide}z")
    dim = " blind" if state.blind else ""
    drawn = f'<path class="m-gpus{dim}" d="{"".join(good)}"/>' if good else ""
    return drawn + (f'<path class="m-gpus bad" d="{"".join(bad)}"/>' if bad else "")


def _said(state: State) -> str:
    health = words.VERDICTS.get(state.verdict)
    said = [health.word if health else state.verdict, _gpus(state)]
    if state.stage != "none":
        said.append(words.STAGES[state.stage].word)
    return ", ".join(part for part in said if part)


def _gpus(state: State) -> str:
    bad = [str(index) for index in range(MOST_GPUS) if state.bad >> index & 1]
    if bad:
        return f"GPU {words.listing(bad, MOST_GPUS)} of {state.gpus or '?'} bad"
    if state.blind or not state.gpus:
        return "GPUs unknown"
    return f"{words.count(state.gpus, 'GPU')} good"


def words_of(instance_id: str, code: str, state: State) -> str:
    """What one cell says. That of a machine that is as it should be is its name alone: the page stays small."""
    if state.verdict == "HEALTHY" and not state.bad and state.stage == "none":
        return instance_id
    return f"{instance_id} {code}".strip() + f": {_said(state)}"
