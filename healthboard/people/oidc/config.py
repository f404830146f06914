"""What the environment says about the provider, read once and checked loudly. No Django here."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from healthboard import config

ROLES = ("viewer", "operator", "approver", "admin")
#: the longest that roles from groups may count without a log-in at the provider
MOST_DAYS = 3650
#: group=role, or group=role@account/region/pool with * for all
_RULE = re.compile(
    r"^(?P<group>[^=]+)=(?P<role>[a-z]+)(?:@(?P<account>[^/]*)(?:/(?P<region>[^/]*)(?:/(?P<pool>.*))?)?)?$"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Members of `group` have `role`; an empty part of the place means all."""

    group: str
    role: str
    account: str = ""
    region: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    issuer: str
    client_id: str
    secret: str
    name: str
    claim: str  # that lists a person's groups
    scope: tuple[str, ...]
    rules: tuple[Rule, ...]
    acr: tuple[str, ...] = ()  # how strong a log-in must be, in the provider's words; empty: any

    @property
    def key(self) -> str:
        """Subjects are kept under the issuer that named them: another issuer's are other people."""
        return "oidc-" + hashlib.sha256(self.issuer.encode()).hexdigest()[:24]


def provider() -> Provider | None:
    """None where no issuer is named. A process that serves no pages needs no secret. Raises BadSetting."""
    issuer = config.read("HEALTHBOARD_OIDC_ISSUER").rstrip("/")
    if not issuer:
        return None
    if not fits(issuer):
        raise config.BadSetting(f"HEALTHBOARD_OIDC_ISSUER={issuer} must begin with https:// and have no query")
    client, secret = config.read("HEALTHBOARD_OIDC_CLIENT_ID"), config.read("HEALTHBOARD_OIDC_CLIENT_SECRET")
    if not client or (not secret and config.process() in ("web", "all")):
        raise config.BadSetting(
            "HEALTHBOARD_OIDC_ISSUER is set: HEALTHBOARD_OIDC_CLIENT_ID and _CLIENT_SECRET are needed"
        )
    if (authority := config.read("HEALTHBOARD_OIDC_CA")) and not Path(authority).is_file():
        raise config.BadSetting(f"HEALTHBOARD_OIDC_CA={authority} is no file: name the authority's certificates (PEM)")
    scope = config.listed("HEALTHBOARD_OIDC_SCOPE") or ["profile"]
    return Provider(
        issuer, client, secret, name=config.read("HEALTHBOARD_OIDC_NAME", "single sign-on"),
        claim=config.read("HEALTHBOARD_OIDC_CLAIM", "groups"), scope=("openid", *(s for s in scope if s != "openid")),
        rules=rules(config.read("HEALTHBOARD_OIDC_GROUPS")), acr=tuple(config.listed("HEALTHBOARD_OIDC_ACR")),
    )  # fmt: skip


def local() -> bool:
    """Whether a password that is kept here lets anybody in. Raises BadSetting where nothing else would."""
    if config.choice("HEALTHBOARD_LOCAL_LOGIN", "on", ("on", "off")) == "on":
        return True
    if not config.read("HEALTHBOARD_OIDC_ISSUER"):
        raise config.BadSetting("HEALTHBOARD_LOCAL_LOGIN=off lets nobody in: HEALTHBOARD_OIDC_ISSUER names no provider")
    return False


def days() -> float:
    """How long roles from groups count after a log-in at the provider. Raises BadSetting."""
    found = config.number("HEALTHBOARD_OIDC_DAYS", 30, least=1)
    if found > MOST_DAYS:
        raise config.BadSetting(f"HEALTHBOARD_OIDC_DAYS={found:g} must be at most {MOST_DAYS}")
    return found


def rules(text: str) -> tuple[Rule, ...]:
    """``sre=operator, train-leads=approver@*/us-east-1/train``: groups and the roles that their members have."""
    found = []
    for part in (part.strip() for part in re.split(r"[,\n]", text)):
        if not part:
            continue
        match = _RULE.match(part)
        if match is None or match["role"] not in ROLES:
            raise config.BadSetting(
                f"HEALTHBOARD_OIDC_GROUPS: {part} is not group={'|'.join(ROLES)}[@account/region/pool]"
            )
        place = {
            name: "" if (match[name] or "") == "*" else (match[name] or "") for name in ("account", "region", "pool")
        }
        if place["account"] and not re.fullmatch(r"\d{12}", place["account"]):
            raise config.BadSetting(f"HEALTHBOARD_OIDC_GROUPS: {part}: an account is a number of twelve digits, or *")
        found.append(Rule(match["group"].strip(), match["role"], **place))
    return tuple(found)


def fits(url: str) -> bool:
    """https; in the sandbox also http on the machine itself."""
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname or parts.query or parts.fragment or parts.username:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and config.mode() == "sandbox" and _own(parts.hostname))


def _own(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
