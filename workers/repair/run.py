"""What a step works with: the claimed repair, a fresh look, and the only way to make a changing call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError
from django.db import transaction

from healthboard import aws, clock
from healthboard.aws import client
from healthboard.fleet import aws_answers
from healthboard.fleet.models import Instance
from healthboard.policies.reading import Reread, reread
from healthboard.refusals import Held
from healthboard.repairs import lifecycle, opening
from healthboard.repairs.models import Call, Repair, Step
from workers.repair.look import AwsTrouble, Look, ask_aws, look_at

#: AWS errors after which the same request may be sent again later
PASSING = re.compile(
    r"Throttl|RequestLimit|TooManyRequests|ServiceUnavailable|InternalError|InternalFailure|ServerException"
)
#: refusals that EC2 sends with HTTP status 500, although nothing was done
REFUSED = re.compile(r"Insufficient\w*Capacity$")
#: a changing call leaves within so many seconds of its intent: call and outcome then fit into the lease
SEND_WITHIN_S = 20.0
_PLACED = Instance.objects.select_related("account", "pool", "cluster")


class Run:
    def __init__(self, repair: Repair) -> None:
        self.repair = repair
        self.instance: Instance = repair.instance
        self.values: dict[str, Any] = repair.settings
        self.away = False  # in this claim AWS could not be asked

    @cached_property
    def look(self) -> Look:
        return look_at(self.instance)

    @cached_property
    def launch_data(self) -> dict[str, Any]:
        """What the version of its launch template holds; a version never changes. Raises AwsTrouble."""
        kept, at = self.facts.get("launch_from") or {}, self.instance
        answer = ask_aws(
            self.client("ec2").describe_launch_template_versions,
            LaunchTemplateId=kept.get("template", at.template_id), Versions=[kept.get("version", at.template_version)],
        )  # fmt: skip
        if not answer["LaunchTemplateVersions"]:
            raise AwsTrouble("DescribeLaunchTemplateVersions tells nothing of the version")
        return answer["LaunchTemplateVersions"][0].get("LaunchTemplateData") or {}

    def look_again(self) -> Look:
        self.__dict__.pop("look", None)
        return self.look

    @cached_property
    def step(self) -> Step:
        return self.repair.steps.order_by("-number").first()

    def forget(self) -> None:
        """After a step ended: the next one looks for itself."""
        for name in ("look", "step", "reading"):
            self.__dict__.pop(name, None)

    @cached_property
    def reading(self) -> Reread:
        self.renew()
        return reread(self.instance)

    def renew(self) -> None:
        """Its row as it is now, with where it stands."""
        self.instance.refresh_from_db(from_queryset=_PLACED)

    def replacement(self) -> Instance | None:
        """Its row as it is now, with where it stands."""
        pk = self.repair.replacement_id
        return _PLACED.get(pk=pk) if pk else None

    # --- time ---

    def span(self, setting: str, default: float) -> timedelta:
        value = self.values.get(setting)
        return clock.scaled(default if value is None else float(value))

    def in_step_for(self) -> timedelta:
        """How long the step under way has lasted, without the time in which AWS could not be asked about it."""
        now, kept = clock.now(), self._kept_away()
        since = datetime.fromisoformat(kept["since"]) if kept["since"] else now
        return now - self.step.started_at - timedelta(seconds=kept["s"]) - max(now - since, timedelta(0))

    def stands(self) -> None:
        """AWS cannot be asked now: until it can, no time-out of the step under way runs."""
        self.away = True
        if self.step is not None and not (kept := self._kept_away())["since"]:
            self.remember(away={**kept, "since": clock.now().isoformat()})

    def goes_on(self) -> None:
        """A pass came to its end with an AWS that answers."""
        if self.away or not (self.facts.get("away") or {}).get("since") or self.step is None:
            return
        kept = self._kept_away()
        if not kept["since"]:
            return  # of an earlier step
        gone = max((clock.now() - datetime.fromisoformat(kept["since"])).total_seconds(), 0)
        self.remember(away={**kept, "s": kept["s"] + gone, "since": ""})

    def _kept_away(self) -> dict[str, Any]:
        kept = self.facts.get("away") or {}
        return kept if kept.get("step") == self.step.number else {"step": self.step.number, "s": 0.0, "since": ""}

    def late(self, setting: str, default: float) -> bool:
        return self.in_step_for() > self.span(setting, default)

    # --- memory ---

    @property
    def facts(self) -> dict[str, Any]:
        return self.repair.facts

    def remember(self, **facts: Any) -> None:
        lifecycle.remember(self.repair, **facts)

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """What a step writes about its machine is one commit, under this worker's claim. Raises LostFence before it."""
        with transaction.atomic():
            lifecycle.hold(self.repair)
            yield

    def calls(self, operation: str, *, target: str | None = None, **request: Any) -> list[Call]:
        """Calls of this repair that may have had an effect, oldest first."""
        rows = self.repair.calls.filter(operation=operation, target=target or self.instance.instance_id)
        return [c for c in rows if c.outcome in opening.MAY_HAVE_CHANGED and request.items() <= c.request.items()]

    def tries(self, calls: list[Call]) -> int:
        """How many of these calls the step under way has made: where a person says "Try again", it begins anew."""
        return sum(call.step_id == self.step.pk for call in calls)

    def settling(self, calls: list[Call], seconds: float = 60) -> bool:
        """True while an earlier call may still be on its way into what Describe shows."""
        return bool(calls) and clock.now() - calls[-1].intended_at < max(clock.scaled(seconds), timedelta(seconds=2))

    # --- AWS ---

    def client(self, service: str, *, changing: bool = False):
        at = self.instance
        return client(service, account=at.account.account_id, region=at.region, changing=changing, part="actor")

    def close_lost_calls(self) -> None:
        """Calls of a worker that died before it could write the outcome: only reading back can tell."""
        if not getattr(self.repair, "unanswered", True):
            return  # the claim has looked, and from then on nobody else makes calls of this repair
        for call in self.repair.calls.filter(answered_at=None):
            lifecycle.answered(self.repair, call, "unknown", "the worker ended before an answer; read back")

    def change(
        self, service: str, operation: str, request: dict[str, Any], *, target: str | None = None, token: str = "",
        irreversible: bool = False,
    ) -> tuple[str, dict[str, Any]]:  # fmt: skip
        """Commit the intent, make the call once, write its outcome. Returns (outcome, answer or {"message"}).

        `outcome` is ``ok``, AWS's error code, or ``unknown`` after a time-out or a broken connection. Raises Held where
        this worker stood still until the call was stale: it is not sent, and its outcome is ``not sent``.
        """
        begun = aws.monotonic()
        call = lifecycle.intend(
            self.repair, service=service, operation=operation, target=target or self.instance.instance_id,
            request=request, token=token, irreversible=irreversible,
        )  # fmt: skip
        method = xform_name(operation)
        answer: dict[str, Any] = {}
        try:
            with aws.sent_until(begun + SEND_WITHIN_S):
                answer = getattr(self.client(service, changing=True), method)(**request)
            failures = answer.get("failures") or []
            outcome = failures[0].get("reason", "FAILURE") if failures else "ok"
            detail = f"{failures[0].get('arn', '')}: {failures[0].get('detail', '')}" if failures else ""
        except aws.NotSent as late:
            lifecycle.answered(self.repair, call, lifecycle.NOT_SENT, str(late))
            raise Held(f"{operation} was not sent: {late}") from None
        except ClientError as error:
            outcome = error.response["Error"].get("Code") or "error"
            detail = error.response["Error"].get("Message", "")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status >= 500 and not REFUSED.match(outcome):
                outcome = "unknown"  # a 500 may come after the effect
        except BotoCoreError as error:
            outcome, detail = "unknown", str(error)
        failed = outcome == "unknown" or bool(PASSING.search(outcome))
        with transaction.atomic():  # counted under the same claim: a worker that has lost it writes nothing
            lifecycle.answered(self.repair, call, outcome, detail)
            aws_answers.note(
                self.instance.account, self.instance.region, good=int(not failed), bad=int(failed),
                error=f"{operation}: {outcome}" if failed else "",
            )  # fmt: skip
        return outcome, answer or {"message": detail}


def newest(call_rows: list[Call]) -> datetime | None:
    return call_rows[-1].intended_at if call_rows else None
