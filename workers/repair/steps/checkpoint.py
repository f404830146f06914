"""The call to the workload before its machine is drained: checkpoint now, and say when you are ready.

Each address that the policy names is asked by a signed POST, again and again with the same id, until it answers `ready`
or `refuse`, or the longest wait is over. Each try is a call with its intent and its outcome, committed as those to AWS; a
worker that dies in between is a try without an answer. What is answered decides only whether the drain begins: whether
the tasks have left is read from AWS, whatever was said.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings

from healthboard import clock, words
from healthboard.notices.models import Target
from healthboard.notices.senders.failed import Failed, deliver, tidy
from healthboard.notices.senders.webhook import signature
from healthboard.repairs import lifecycle
from healthboard.repairs.models import WORKLOAD, Call
from workers.repair.left import of_daemon, on_living_host
from workers.repair.look import tasks_on
from workers.repair.results import Ask, Done, Result, Skip, Wait
from workers.repair.run import Run
from workers.repair.steps.leave import _AGAIN, _UNDO, _choice

OPERATION = "Checkpoint"
#: outcomes of a call
READY, REFUSED, WAITS, SILENT = "ok", "refused", "wait", "no answer"
#: between two tries, at speed 1: the first, doubled each time, and the longest
FIRST_S, LONGEST_S = 15.0, 300.0


def checkpoint(run: Run) -> Result:
    names = list(run.values.get("checkpoint") or ())
    here = _there(run)
    if not here:
        nobody = "nothing runs on it that could checkpoint"
        return Skip("the host is dead: nothing on it can checkpoint" if here is None else nobody)
    if set(here) <= set(run.facts.get("without_answer") or ()):
        return Skip("drained without its answer by a person")
    tries = {name: _tries(run, name) for name in names}
    last = {name: made[-1] for name, made in tries.items() if made}
    refused = [name for name in last if last[name].outcome == REFUSED]
    if refused:
        said = "; ".join(f"{name} refuses{_reason(last[name])}" for name in refused)
        run.remember(called_for=here)
        return Ask(f"The workload does not want to be drained now: {said}.", _choices("Drain it against its word"))
    missing = [name for name in names if name not in last or last[name].outcome != READY]
    if not missing:
        return Done(f"ready, says {words.listing(names)}")
    if run.late("checkpoint_wait_s", 600):
        span = words.span(run.span("checkpoint_wait_s", 600).total_seconds())
        silent = f"No “ready” from {words.listing(missing)} within {span}"
        if run.values.get("checkpoint_silence") == "go_on":
            return Done(f"{silent}; the policy says to go on")
        told = "; ".join(f"{name}: {last[name].detail or 'waits'}" for name in missing if name in last)
        run.remember(called_for=here)
        return Ask(f"{silent}{f' ({told})' if told else ''}.", _choices("Drain it without an answer"))
    due = {name: _due_in(tries[name]) for name in missing}
    name = min(due, key=lambda one: due[one])
    if due[name] <= timedelta(0):
        _ask(run, name)
        return Wait(1, f"asking {words.listing(missing)} to checkpoint")
    seconds = due[name].total_seconds() * settings.SPEED
    return Wait(seconds, f"waiting for “ready” from {words.listing(missing)}")


def _there(run: Run) -> list[str] | None:
    """The tasks on it that could checkpoint; None where its host is dead."""
    here = on_living_host(run) if run.look.container is not None else []
    return None if here is None else sorted(task["taskArn"] for task in here if not of_daemon(run, task))


def _ask(run: Run, name: str) -> None:
    """One signed POST, its intent before and its outcome after it."""
    token = f"checkpoint-{run.repair.pk}-{run.step.number}"
    body = _body(run, token)
    call = lifecycle.intend(
        run.repair, service=WORKLOAD, operation=OPERATION, target=run.instance.instance_id,
        request={"target": name, "body": body}, token=token,
    )  # fmt: skip
    outcome, detail = _post(name, token, json.dumps(body).encode())
    lifecycle.answered(run.repair, call, outcome, detail)


def _post(name: str, token: str, body: bytes) -> tuple[str, str]:
    target = Target.objects.filter(name=name, kind=Target.Kind.WEBHOOK, enabled=True).first()
    secrets = [secret for secret in (target.secret, target.secret_before) if secret] if target else []
    if target is None or not secrets:
        return SILENT, "there is no webhook target of this name that is switched on and has a secret"
    at = str(int(clock.now().timestamp()))
    headers = {
        "X-Healthboard-Timestamp": at,
        "X-Healthboard-Signature": signature(secrets, at, body),
        "X-Healthboard-Delivery": token,
    }
    try:
        answer = deliver(target.address, body, headers, advice="look at what the workload expects")
    except Failed as failed:
        return SILENT, tidy(failed.why, target)
    if answer.status == 202:
        return WAITS, "it is not ready yet"
    return _read(answer.text, target)


def _read(text: str, target: Target) -> tuple[str, str]:
    """What the workload said; anything but one of three words is no answer."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    word = told.get("answer") if isinstance(told, dict) else None
    if word == "ready":
        return READY, "ready"
    if word == "wait":
        return WAITS, "it is not ready yet"
    if word == "refuse":
        reason = told.get("reason")
        return REFUSED, tidy(_clean(reason), target) if isinstance(reason, str) else ""
    return SILENT, "it answers, but neither ready, wait nor refuse"


def _body(run: Run, token: str) -> dict[str, Any]:
    at = run.instance
    tasks = tasks_on(at) if run.look.container is not None else []
    answer_by = run.step.started_at + run.span("checkpoint_wait_s", 600)
    return {
        "kind": "checkpoint",
        "call": token,
        "repair": run.repair.pk,
        "action": run.repair.action,
        "account": at.account.account_id,
        "region": at.region,
        "cluster": at.cluster.name if at.cluster else "",
        "pool": run.repair.pool.name if run.repair.pool else "",
        "instance": at.instance_id,
        "tasks": [{"task": t["taskArn"], "group": t.get("group", "")} for t in tasks],
        "answer_by": answer_by.isoformat(),
        "url": f"{settings.URL}/repairs/{run.repair.pk}/" if settings.URL else "",
    }


def _tries(run: Run, name: str) -> list[Call]:
    """Those of this step, oldest first: asked again by a person, it is another step and another call."""
    return [c for c in run.step.calls.all() if c.operation == OPERATION and c.request.get("target") == name]


def _due_in(tries: Sequence[Call]) -> timedelta:
    if not tries:
        return timedelta(0)
    pause = clock.scaled(min(FIRST_S * 2 ** (len(tries) - 1), LONGEST_S))
    return tries[-1].intended_at + pause - clock.now()


def _choices(title: str) -> tuple[dict[str, str], ...]:
    return ({**_AGAIN, "title": "Ask it again"}, _choice("without_answer", title), _UNDO)


def _reason(call: Call) -> str:
    return f": “{call.detail}”" if call.detail else ""


def _clean(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())
