"""The driven installation in parts: what collects is the reader, what repairs is the actor, all else has no rights in
AWS. Its sandbox asks IAM: a call that the part's shipped policy does not allow is refused as AWS refuses it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from healthboard.sandbox import dispatch
from healthboard.sandbox.interfere import Behaviour, Call
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import Sandbox
from tests.repairs.driver import Drive
from tests.rights import asked, iam

#: the role of the sandbox's nodes: what an installation gives as NodeRole
NODES = "ecsInstanceRole"


def shipped(name: str) -> list[iam.Statement]:
    """A shipped policy, with this installation's node role in it."""
    return [
        {**one, "Resource": [arn.replace("healthboard-node", NODES) for arn in iam.listed(one["Resource"])]}
        for one in iam.policy(name)
    ]


class Gate:
    """Stands where the sandbox asks what happens to a call. `policies`: process -> its statements."""

    def __init__(self, honest: Any) -> None:
        self.honest = honest
        self.policies = {name: shipped(f"{name}-policy") for name in ("reader", "actor")}
        self.boundary = shipped("boundary-policy")
        self.made: Counter[tuple[str, str, str]] = Counter()
        self.refused: list[str] = []

    def __call__(self, sandbox: Sandbox, call: Call) -> Behaviour:
        process = os.environ["HEALTHBOARD_PROCESS"]  # the caller waits for this answer and does nothing else
        self.made[process, call.service, call.operation] += 1
        for request in asked.requests(sandbox.world(call.account, call.region), call):
            statements = self.policies.get(process, [])
            if not iam.allowed(statements, request) or not iam.allowed(self.boundary, request):
                self.refused.append(f"{process}: {request.action} on {request.resource}")
                return Behaviour(error=denied(call, request))
        return self.honest(sandbox, call)


def denied(call: Call, request: iam.Request) -> AwsError:
    code = {"ec2": "UnauthorizedOperation", "ecs": "AccessDeniedException"}.get(call.service, "AccessDenied")
    return AwsError(code, f"User is not authorized to perform: {request.action} on resource: {request.resource}", 403)


@contextmanager
def process(name: str) -> Iterator[None]:
    before = os.environ["HEALTHBOARD_PROCESS"]
    os.environ["HEALTHBOARD_PROCESS"] = name
    try:
        yield
    finally:
        os.environ["HEALTHBOARD_PROCESS"] = before


class Split(Drive):
    gate: Gate

    def step(self, seconds: float = 1.0) -> None:
        with process("web"):
            super().step(seconds)

    def collect(self) -> None:
        with process("reader"):
            super().collect()

    def sweep(self) -> None:
        with process("actor"):
            super().sweep()


def gated(monkeypatch: Any) -> Gate:
    gate = Gate(dispatch.interfere)
    monkeypatch.setattr(dispatch, "interfere", gate)
    return gate
