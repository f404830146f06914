"""Try each assumption once, and keep the answers as JSON: what AWS said, to be read again by tests."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from healthboard import config
from healthboard.probes.ground import Ground, TookTooLong
from healthboard.probes.tries import PROBES, Answer, chosen

WORDS = {True: "holds", False: "does not hold", None: "could not be tried"}


def run(ground: Ground, only: list[str], out: Path) -> tuple[dict[str, Answer], list[str]]:
    """The answers by assumption, and what could not be cleaned up. It cleans up whatever happens, and then lets it
    happen: an interrupt, too."""
    answers: dict[str, Answer] = {}
    try:
        with _interruptible():
            ground.make()
            for name in chosen(only):
                answers[name] = _try(ground, PROBES[name])
                _keep(ground, name, answers[name], out)
                ground.say(f"{name}: {WORDS[answers[name].holds]}: {answers[name].said}")
    finally:
        with _deaf():
            wrong = ground.clean()
    return answers, wrong


def _try(ground: Ground, probe: Any) -> Answer:
    try:
        return probe(ground)
    except (ClientError, BotoCoreError, TookTooLong, LookupError, ValueError) as error:
        return Answer(None, f"{type(error).__name__}: {error}")


def _keep(ground: Ground, name: str, answer: Answer, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    told = {
        "assumption": name, "answer": WORDS[answer.holds], "said": answer.said, "mode": config.mode(),
        "region": ground.region, "at": ground.date(), "calls": ground.taken(),
    }  # fmt: skip
    (out / f"{name}.json").write_text(json.dumps(told, indent=1, sort_keys=True, default=str) + "\n")


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: by an exception, so that everything is cleaned up."""
    with _handled(signal.SIGTERM, signal.default_int_handler):
        yield


@contextmanager
def _deaf() -> Iterator[None]:
    """While it cleans up, a second Ctrl-C is too late."""
    with _handled(signal.SIGINT, signal.SIG_IGN), _handled(signal.SIGTERM, signal.SIG_IGN):
        yield


@contextmanager
def _handled(number: int, handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
