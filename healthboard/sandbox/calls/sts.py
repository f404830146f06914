"""STS: who am I, and keys for another account."""

from __future__ import annotations

import re
from typing import Any

from healthboard.sandbox.hardware import digest
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World


def get_caller_identity(world: World, p: dict[str, Any]) -> dict[str, Any]:
    if caller := p.get("caller"):  # a machine's own role
        return {"UserId": f"AROASANDBOX:{caller.rpartition('/')[2]}", "Account": world.account, "Arn": caller}
    return {
        "UserId": "AIDASANDBOX",
        "Account": world.account,
        "Arn": f"arn:aws:iam::{world.account}:user/healthboard",
    }


def assume_role(world: World, p: dict[str, Any]) -> dict[str, Any]:
    match = re.fullmatch(r"arn:aws:iam::(\d{12}):role/([\w+=,.@/-]+)", p["RoleArn"])
    if not match:
        raise AwsError("ValidationError", f"{p['RoleArn']} is invalid")
    account, role = match.groups()
    if account not in {a for a, _ in world.sandbox.worlds}:
        raise AwsError("AccessDenied", f"User is not authorized to perform: sts:AssumeRole on resource: {p['RoleArn']}")
    session = p["RoleSessionName"]
    return {
        "Credentials": {
            "AccessKeyId": f"ASIASANDBOX{account}",
            "SecretAccessKey": digest("secret", account)[:40],
            "SessionToken": digest("session", account, session),
            "Expiration": world.now() + p.get("DurationSeconds", 3600),
        },
        "AssumedRoleUser": {
            "AssumedRoleId": f"AROASANDBOX{account}:{session}",
            "Arn": f"arn:aws:sts::{account}:assumed-role/{role.rpartition('/')[2]}/{session}",
        },
    }
