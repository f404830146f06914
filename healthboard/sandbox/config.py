"""The sandbox's settings, read once from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_POOLS = "train=group:20,infer=group:6,solo=template:14"
DEFAULT_ACCOUNT = "111122223333"
DEFAULT_REGION = "us-east-1"
REPO = Path(__file__).resolve().parents[2]


class BadSetting(ValueError):
    """A setting that cannot be read; the message is one line for the person who set it."""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    name: str
    owner: str  # "group" or "template"
    size: int


@dataclass(frozen=True, slots=True)
class Config:
    """Times are wall seconds, except that `speed` divides everything AWS does."""

    home: Path
    speed: float = 10.0
    seed: str = "0"
    script: bool = True
    pools: tuple[PoolSpec, ...] = ()
    accounts: tuple[str, ...] = (DEFAULT_ACCOUNT,)
    regions: tuple[str, ...] = (DEFAULT_REGION,)
    port: int = 0
    web_url: str = "http://127.0.0.1:8000"
    post: bool = True
    exporters: bool = False
    #: the fleet is not in the account's default VPC, so that EC2 refuses a launch of its templates that names no subnet
    own_vpc: bool = False
    #: a group replaces an impaired or stopped member no sooner than this
    replace_after_s: float = 45.0
    tick_s: float = 0.2

    @property
    def url_file(self) -> Path:
        return self.home / "run" / "sandbox.url"

    @property
    def enrol_key_file(self) -> Path:
        return self.home / "run" / "enrol.key"

    @property
    def state_file(self) -> Path:
        return self.home / "sandbox" / "state.sqlite3"


def parse_pools(text: str) -> tuple[PoolSpec, ...]:
    """``train=group:20,solo=template:14`` -> pool specs. Raises BadSetting."""
    pools = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, rest = part.partition("=")
        owner, _, size = rest.partition(":")
        if not name or owner not in ("group", "template") or not size.isdigit():
            raise BadSetting(
                f"HEALTHBOARD_SANDBOX_POOLS: cannot read {part!r}, expected NAME=group:N or NAME=template:N"
            )
        pools.append(PoolSpec(name, owner, int(size)))
    if not pools or len({p.name for p in pools}) != len(pools):
        raise BadSetting("HEALTHBOARD_SANDBOX_POOLS: needs at least one pool, each name once")
    return tuple(pools)


def is_aws_mode(env: Mapping[str, str] | None = None) -> bool:
    return (os.environ if env is None else env).get("HEALTHBOARD_MODE", "sandbox") == "aws"


def from_env(env: Mapping[str, str] | None = None) -> Config:
    """Read the environment. Raises BadSetting with one line on a bad value."""
    env = os.environ if env is None else env

    def number(name: str, default: float) -> float:
        try:
            value = float(env.get(name) or default)
        except ValueError:
            raise BadSetting(f"{name}: {env[name]!r} is not a number") from None
        if value < 0:
            raise BadSetting(f"{name}: must not be negative")
        return value

    def names(name: str, default: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(re.findall(r"[^,\s]+", env.get(name) or default)))

    speed = number("HEALTHBOARD_SANDBOX_SPEED", 10)
    if speed <= 0:
        raise BadSetting("HEALTHBOARD_SANDBOX_SPEED: must be above 0")
    # an entry may name a role to assume: 123456789012=arn:aws:iam::…
    accounts = tuple(entry.partition("=")[0] for entry in names("HEALTHBOARD_ACCOUNTS", DEFAULT_ACCOUNT))
    for account in accounts:
        if not (account.isdigit() and len(account) == 12):
            raise BadSetting(f"HEALTHBOARD_ACCOUNTS: {account!r} is not an account of 12 digits")
    web_url = env.get("HEALTHBOARD_WEB_URL") or f"http://127.0.0.1:{int(number('PORT', 8000))}"
    parts = urlsplit(web_url)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost"):
        raise BadSetting(f"HEALTHBOARD_WEB_URL: simulated nodes report to loopback only, not to {web_url}")
    return Config(
        home=Path(env.get("HEALTHBOARD_HOME") or REPO / "var").resolve(),
        speed=speed,
        seed=env.get("HEALTHBOARD_SANDBOX_SEED") or "0",
        script=(env.get("HEALTHBOARD_SANDBOX_SCRIPT") or "on").lower() != "off",
        pools=parse_pools(env.get("HEALTHBOARD_SANDBOX_POOLS") or DEFAULT_POOLS),
        accounts=accounts,
        regions=names("HEALTHBOARD_REGIONS", DEFAULT_REGION),
        port=int(number("HEALTHBOARD_SANDBOX_PORT", 0)),
        web_url=web_url,
        post=(env.get("HEALTHBOARD_SANDBOX_NODES") or "on").lower() != "off",
        exporters=(env.get("HEALTHBOARD_EXPORTERS") or "off").strip().lower() != "off",
        replace_after_s=number("HEALTHBOARD_SANDBOX_REPLACE_AFTER", 45),
    )
