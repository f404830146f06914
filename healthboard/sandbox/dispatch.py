"""One AWS request, from bytes to bytes."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

from healthboard.sandbox import identity, spoil
from healthboard.sandbox.calls import handler_of, is_changing, sqs
from healthboard.sandbox.interfere import Behaviour, Call, interfere
from healthboard.sandbox.protocol import errors, serialize
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.protocol.models import SERVICES, protocol_of
from healthboard.sandbox.protocol.parse import parse
from healthboard.sandbox.world import Sandbox, World

SCOPE = re.compile(r"Credential=([^/\s,]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
ACCOUNT = re.compile(r"(\d{12})")


@dataclass(slots=True)
class Answer:
    """`status` None: end the connection without a word."""

    status: int | None
    content_type: str = ""
    body: bytes = b""
    request_id: str = ""
    query_error: str = ""  # the code that a service told before it spoke JSON


#: how often a long poll looks again
LOOK_S = 0.05


def handle(sandbox: Sandbox, headers: Any, body: bytes) -> Answer:
    request_id = str(uuid.uuid4())
    service = "sts"
    try:
        key, region, service = _scope(headers)
        account = _account(sandbox, key, service)
        operation, params = parse(service, headers, body)
        if arn := identity.arn_of(sandbox, headers, body):
            if operation != "GetCallerIdentity":
                raise AwsError("AccessDenied", f"User: {arn} is not authorized to perform: {service}:{operation}")
            params["caller"] = arn
    except AwsError as error:
        return Answer(*errors.render(error, protocol_of(service), request_id), request_id)
    if operation == "ReceiveMessage":
        _wait_for_message(sandbox, account, region, sqs.wait_of(params))
    call = Call(sandbox.now(), service, operation, account, region, params)
    answer, delay = _serve(sandbox, call, request_id)
    if delay:
        time.sleep(delay)
    return answer


def _wait_for_message(sandbox: Sandbox, account: str, region: str, seconds: float) -> None:
    """A long poll ends with the first message, or after `seconds`; the world goes on meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and sandbox.mode == "ok":
        with sandbox.lock:
            if sqs.visible(sandbox.world(account, region)):
                return
        time.sleep(LOOK_S)


def _scope(headers: Any) -> tuple[str, str, str]:
    """(access key, region, service) of the signature's credential scope. The signature itself is not checked."""
    match = SCOPE.search(headers.get("Authorization") or "")
    if not match:
        raise AwsError("MissingAuthenticationToken", "Request is missing Authentication Token")
    key, _, region, service = match.groups()
    if service not in SERVICES:
        raise AwsError("UnsupportedOperation", f"The sandbox does not know the service {service}.")
    return key, region, service


def _account(sandbox: Sandbox, key: str, service: str) -> str:
    match = ACCOUNT.search(key)
    if match and any(account == match.group(1) for account, _ in sandbox.worlds):
        return match.group(1)
    if service == "ec2":
        raise AwsError("AuthFailure", "AWS was not able to validate the provided access credentials")
    code = "UnrecognizedClientException" if service == "ecs" else "InvalidClientTokenId"
    raise AwsError(code, "The security token included in the request is invalid.")


def _serve(sandbox: Sandbox, call: Call, request_id: str) -> tuple[Answer, float]:
    """Handler, log row and effects under one lock and in one commit, before the answer goes out."""
    protocol = protocol_of(call.service)
    with sandbox.lock:
        world = sandbox.world(call.account, call.region)
        behaviour = interfere(sandbox, call)
        result: dict[str, Any] | None = None
        error = behaviour.error
        if not (behaviour.drop or error):
            try:
                result = _result(world, call, behaviour)
            except AwsError as refused:
                error = refused
        late = error or behaviour.error_after
        outcome = behaviour.outcome or (late.code if late else _failed(call, result) or "ok")
        target = target_of(world, call, result)
        sandbox.store.log_call(call.at, world.where, call.service, call.operation, target, outcome)
        if is_changing(call.operation):
            if sandbox.hostile is not None and result is not None and outcome == "ok":
                sandbox.hostile.served(world, call, target)
            sandbox.flush()
        if behaviour.drop or (behaviour.drop_after and error is None):
            return Answer(None), behaviour.delay_s
        if late or result is None:
            late = late or AwsError("InternalFailure", "no result")
            old = errors.query_error(late) if call.service == "sqs" else ""
            return Answer(*errors.render(late, protocol, request_id), request_id, old), behaviour.delay_s
        if behaviour.empty:
            result = {k: [] if isinstance(v, list) else v for k, v in result.items() if "oken" not in k}
    return Answer(*serialize.render(call.service, call.operation, result, request_id), request_id), behaviour.delay_s


def _result(world: World, call: Call, behaviour: Behaviour) -> dict[str, Any]:
    """What the handler answers, spoiled as the behaviour says. Raises AwsError."""
    handler = handler_of(call.service, call.operation)
    params, rest = spoil.split(call.operation, call.params) if behaviour.half else (call.params, None)
    if params is None:
        return rest or {}
    if is_changing(call.operation):
        result = _changed(world, call, handler, params, behaviour.lag_s)
    else:
        with spoil.as_it_was(world.sandbox, world, call.service):
            result = handler(world, params)
    if rest is not None:
        result = spoil.joined(result, rest)
    return spoil.without(result, behaviour.fields) if behaviour.fields else result


def _changed(world: World, call: Call, handler: Any, params: dict[str, Any], lag_s: float) -> dict[str, Any]:
    if not lag_s:
        return handler(world, params)
    named = [one for one in target_of(world, call, None).split(",") if one]
    past = spoil.photograph(world, named, str(params.get("AutoScalingGroupName", "")), world.after(lag_s))
    known = set(world.instances)
    result = handler(world, params)
    past.hidden += [i for id_, i in world.instances.items() if id_ not in known]
    world.sandbox.pasts.append(past)
    return result


def _failed(call: Call, result: dict[str, Any] | None) -> str:
    """Why a change failed altogether although the answer is HTTP 200."""
    if not result or not result.get("failures") or not is_changing(call.operation):
        return ""
    done = any(isinstance(value, list) and value for name, value in result.items() if name != "failures")
    return "" if done else str(result["failures"][0].get("reason", "FAILURE"))


def target_of(world: World, call: Call, result: dict[str, Any] | None) -> str:
    """The EC2 instance that a changing call is about, several with commas between; empty for reading calls."""
    if not is_changing(call.operation):
        return ""
    p = call.params
    if call.operation == "RunInstances":
        return ",".join(i["InstanceId"] for i in (result or {}).get("Instances", ()))
    ids = [*(p.get("InstanceIds") or ()), *([p["InstanceId"]] if p.get("InstanceId") else ())]
    ids += [r for r in p.get("Resources") or () if str(r).startswith("i-")]
    refs = [*(p.get("containerInstances") or ()), *([p["containerInstance"]] if p.get("containerInstance") else ())]
    for ref in refs:
        container = world.containers.get(str(ref).rpartition("/")[2])
        if container:
            ids.append(container.instance)
    task = world.tasks.get(str(p.get("task", "")).rpartition("/")[2])
    if task and task.container in world.containers:
        ids.append(world.containers[task.container].instance)
    return ",".join(dict.fromkeys(ids))
