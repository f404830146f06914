"""Credentials of aws mode: the default chain, or a role per account, assumed and renewed by itself before it ends."""

from __future__ import annotations

import os
import re
from datetime import timedelta

import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError

from healthboard import config
from healthboard.config import BadSetting

ARN = re.compile(r"arn:(aws[\w-]*):iam::(\d{12}):role/[\w+=,.@/-]{1,512}")
_NAME = re.compile(r"[\w+=,.@-]{1,64}")
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}")
#: how long assumed credentials last; renewed a quarter of an hour before that
LASTS = timedelta(hours=1)

_sessions: dict[tuple, botocore.session.Session] = {}


def arn(role: str, account: str) -> str:
    """The role that the reader or the actor assumes in this account; empty where none is set. Raises BadSetting.

    `HEALTHBOARD_READER_ROLE` and `HEALTHBOARD_ACTOR_ROLE` are a role's name that is the same in every account, or ARNs,
    each of the account that it names.
    """
    if not role:
        return ""
    variable = f"HEALTHBOARD_{role.upper()}_ROLE"
    found = ""
    for text in config.listed(variable):
        named = ARN.fullmatch(text)
        if named is None and not _NAME.fullmatch(text):
            raise BadSetting(f"{variable}: {text!r} is neither a role's name nor its ARN")
        if named is None:
            found = found or f"arn:aws:iam::{account}:role/{text}"
        elif named.group(2) == account:
            found = text
    return found


def external_id() -> str:
    """What the roles' trust policies ask for, so that nobody else can have us assume them. Raises BadSetting."""
    value = config.read("HEALTHBOARD_EXTERNAL_ID")
    if value and not _EXTERNAL_ID.fullmatch(value):
        raise BadSetting("HEALTHBOARD_EXTERNAL_ID must have 2 to 1224 letters, digits or any of + = , . @ : / -")
    return value


def session(account: str, role: str, region: str, how: Config, name: str = "") -> botocore.session.Session:
    """The account's session, proven once per process to belong to that account, so that two never mix. Raises BadSetting.

    `role`: the ARN to assume, or empty. `name`: reader or actor, which CloudTrail then shows as the session's name.
    """
    key = (os.getpid(), account, role)
    if key in _sessions:
        return _sessions[key]
    made = _plain()
    if made.get_credentials() is None:
        raise BadSetting(
            "no AWS credentials found: give the process a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or use HEALTHBOARD_MODE=sandbox"
        )
    if role:
        made = _assumed(made, role, region, how, f"healthboard-{name}" if name else "healthboard")
    told = _caller(made, region, account, how)
    if told != account:
        raise BadSetting(
            f"the credentials for account {account} belong to account {told}: "
            f"write HEALTHBOARD_ACCOUNTS={account}=arn:aws:iam::{account}:role/NAME"
        )
    _sessions[key] = made
    return made


def _plain() -> botocore.session.Session:
    made = botocore.session.Session()
    # tokens come from the region's own STS, whatever a profile says: the global host would be one more dependency
    made.set_config_variable("sts_regional_endpoints", "regional")
    return made


def _assumed(
    source: botocore.session.Session, role: str, region: str, how: Config, name: str
) -> botocore.session.Session:
    extra = {"RoleSessionName": name, "DurationSeconds": int(LASTS.total_seconds())}
    if given := external_id():
        extra["ExternalId"] = given
    fetcher = AssumeRoleCredentialFetcher(
        lambda *args, **kw: source.create_client(*args, **{"region_name": region, "config": how, **kw}),
        source.get_credentials(),
        role,
        extra_args=extra,
    )
    made = _plain()
    made._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return made


def _caller(made: botocore.session.Session, region: str, account: str, how: Config) -> str:
    try:
        return made.create_client("sts", region_name=region, config=how).get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise BadSetting(f"account {account} cannot be reached: {error}") from None
