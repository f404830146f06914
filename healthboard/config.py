"""What the environment says, read once and checked loudly. No Django here: the supervisor and the sandbox use it too."""

from __future__ import annotations

import ipaddress
import os
import re
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class BadSetting(Exception):
    """A setting that cannot be used; the message is one line and says what to change."""


def read(name: str, default: str = "") -> str:
    """The variable, or the content of the file that `NAME_FILE` names (for secrets)."""
    value = os.environ.get(name, "")
    if value:
        return value
    path = os.environ.get(f"{name}_FILE", "")
    if path:
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            raise BadSetting(f"{name}_FILE={path} cannot be read: {error.strerror}") from error
    return default


def number(name: str, default: float, *, least: float = 0) -> float:
    raw = read(name)
    try:
        value = float(raw) if raw else default
    except ValueError:
        raise BadSetting(f"{name}={raw} is not a number") from None
    if not value >= least or value == float("inf"):  # nan is not at least anything
        raise BadSetting(f"{name}={raw} must be at least {least:g}")
    return value


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = read(name, default)
    if value not in allowed:
        raise BadSetting(f"{name}={value} must be one of: {', '.join(allowed)}")
    return value


def listed(name: str) -> list[str]:
    return [part for part in re.split(r"[,\s]+", read(name)) if part]


def mode() -> str:
    return choice("HEALTHBOARD_MODE", "sandbox", ("sandbox", "aws"))


def process() -> str:
    """Which part of healthboard this process is, and so what it may do: one alone, or `all` that a worker does."""
    return choice("HEALTHBOARD_PROCESS", "all", ("web", "beat", "reader", "actor", "sender", "all"))


def exporters() -> list[str] | None:
    """Pools whose nodes' dcgm-exporters are read; empty for all of them, None where none are (the default)."""
    value = read("HEALTHBOARD_EXPORTERS", "off").strip()
    return None if value.lower() == "off" else [] if value.lower() == "on" else listed("HEALTHBOARD_EXPORTERS")


def local_gpus() -> str:
    """The EC2 id of this host, where its own GPUs are read by a worker; empty where they are not (the default)."""
    value = read("HEALTHBOARD_LOCAL_GPUS").strip()
    if value in ("", "off"):
        return ""
    if not re.fullmatch(r"i-[0-9a-f]{8,17}", value):
        raise BadSetting(f"HEALTHBOARD_LOCAL_GPUS={value} is not the id of an instance, such as i-0123456789abcdef0")
    return value


def local_queue() -> str:
    """The Celery queue of this host alone."""
    return f"local-{local_gpus()}"


def own_instances() -> set[str]:
    """EC2 ids that healthboard itself runs on: nothing is ever done to them."""
    return {*listed("HEALTHBOARD_SELF_INSTANCE"), local_gpus()} - {""}


def home() -> Path:
    return Path(read("HEALTHBOARD_HOME") or ROOT / "var").resolve()


def run_dir() -> Path:
    return home() / "run"


#: real seconds between two rounds of collecting at least, whatever the speed
LEAST_ROUND_S = 3.0


def speed() -> float:
    """Sandbox only: AWS delays, policy times and collection intervals are divided by it."""
    return number("HEALTHBOARD_SANDBOX_SPEED", 10, least=0.1) if mode() == "sandbox" else 1.0


def port() -> int:
    value = number("PORT", 8000, least=1)
    if value > 65535:
        raise BadSetting(f"PORT={value:g} must be at most 65535")
    return int(value)


def bind() -> str:
    """Address that the web server listens on: loopback unless an aws installation says otherwise."""
    if mode() == "aws":
        return read("HEALTHBOARD_BIND", f"127.0.0.1:{port()}")
    return f"127.0.0.1:{port()}"


def url() -> str:
    """Where people reach these pages, without a slash at the end: the links of messages begin so. Empty: not known."""
    value = read("HEALTHBOARD_URL").rstrip("/")
    if not value:
        return f"http://{bind()}" if mode() == "sandbox" else next(iter(listed("HEALTHBOARD_ORIGINS")), "").rstrip("/")
    parts = urllib.parse.urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadSetting(f"HEALTHBOARD_URL={value} must be like https://healthboard.example.com")
    return value


def smtp() -> dict[str, str | int | bool]:
    """Django's settings of the mail server; no host: no e-mail. In the sandbox it can only be on loopback."""
    host = read("HEALTHBOARD_SMTP_HOST").strip()
    how = choice("HEALTHBOARD_SMTP_TLS", "starttls", ("starttls", "tls", "off"))
    given = number("HEALTHBOARD_SMTP_PORT", 465 if how == "tls" else 587, least=1)
    if given > 65535 or given != int(given):
        raise BadSetting(f"HEALTHBOARD_SMTP_PORT={given:g} is not a port")
    if host and mode() == "sandbox" and not loopback(host):
        raise BadSetting(f"HEALTHBOARD_SMTP_HOST={host}: the sandbox reaches loopback only, such as 127.0.0.1")
    if host and how == "off" and not loopback(host):
        raise BadSetting("HEALTHBOARD_SMTP_TLS=off is for a mail server at a loopback address only, such as 127.0.0.1")
    return {
        "EMAIL_HOST": host,
        "EMAIL_PORT": int(given),
        "EMAIL_HOST_USER": read("HEALTHBOARD_SMTP_USER"),
        "EMAIL_HOST_PASSWORD": read("HEALTHBOARD_SMTP_PASSWORD"),
        "EMAIL_USE_TLS": how == "starttls",
        "EMAIL_USE_SSL": how == "tls",
        "DEFAULT_FROM_EMAIL": read("HEALTHBOARD_MAIL_FROM", "healthboard@localhost"),
    }


def sessions() -> tuple[float | None, float | None]:
    """Seconds that a log-in counts at most, and without a click. In the sandbox only where they are set. Raises BadSetting."""
    real = mode() == "aws"
    longest = number("HEALTHBOARD_SESSION_HOURS", 12 if real else 0) * 3600
    idle = number("HEALTHBOARD_IDLE_MINUTES", 60 if real else 0) * 60
    if real and not 600 <= longest <= 24 * 3600:
        raise BadSetting("HEALTHBOARD_SESSION_HOURS must be at most 24, and more than ten minutes")
    return longest or None, idle or None


def password_list() -> dict[str, str]:
    """Of Django's validator of common passwords: which list it reads, where not its own. Raises BadSetting."""
    path = read("HEALTHBOARD_PASSWORD_LIST")
    if path and not Path(path).is_file():
        raise BadSetting(f"HEALTHBOARD_PASSWORD_LIST={path} is no file: name one with a password in each line")
    return {"password_list_path": path} if path else {}


def database_tls(host: str, told: dict[str, str]) -> dict[str, str]:
    """libpq's options beside those that the URL says: elsewhere than on this host the server's certificate is checked,
    against the system's authorities or those of `sslrootcert`. Raises BadSetting for what says less."""
    if mode() != "aws" or not host or host.startswith("/") or loopback(host):  # a path: a socket of this host
        return {}
    if told.get("sslmode", "verify-full") != "verify-full":
        raise BadSetting(
            f"DATABASE_URL: sslmode={told['sslmode']} does not check who answers: say verify-full, and name the "
            "authority's certificates in sslrootcert"
        )
    return {"sslmode": "verify-full", "sslrootcert": told.get("sslrootcert", "system")}


def loopback(host: str) -> bool:
    """True for a literal loopback address; a name could point anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secret(name: str) -> str:
    """A secret made once and kept, readable by its owner only, in the run folder's parent."""
    path = home() / "secrets" / name
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    import secrets as tokens

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(handle, "w") as out:
        out.write(tokens.token_urlsafe(48))
    return path.read_text().strip()
