"""`manage.py broker_acl FOLDER --at rediss://HOST:6379/0`: users of the broker, one per process, each with a password."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError, CommandParser

from healthboard import broker


class Command(BaseCommand):
    help = (
        "Make an ACL file for Valkey or Redis, and a file with the REDIS_URL of each process; new passwords each time."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", help="where users.acl and NAME.url are written, readable by their owner only")
        parser.add_argument("--at", required=True, metavar="URL", help="the broker without user: rediss://HOST:6379/0")

        parser.add_argument(
            "--beside", action="store_true", help="the passwords that FOLDER/users.acl has count as well, until it is "
            "made again with --alone",
        )  # fmt: skip
        parser.add_argument("--alone", action="store_true", help="only those of FOLDER/NAME.url count: none is made")

    def handle(self, *args: Any, **options: Any) -> None:
        at = urlsplit(options["at"])
        try:
            usable = (
                at.scheme in ("redis", "rediss")
                and at.hostname
                and not (at.username or at.password or at.query)
                and at.port
            )
        except ValueError:
            usable = False
        if not usable:
            raise CommandError("--at is like rediss://redis.internal:6379/0, without a user", returncode=2)
        passwords = {process: secrets.token_urlsafe(32) for process in broker.USERS}
        folder, old = Path(options["folder"]), {}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if options["alone"]:
                urls = {one: urlsplit((folder / f"{one}.url").read_text().strip()) for one in broker.USERS}
                passwords = {process: url.password or "" for process, url in urls.items()}
            elif options["beside"]:
                old = broker.newest((folder / "users.acl").read_text())
            _write(folder / "users.acl", broker.acl(passwords, old))
            for process, password in passwords.items():
                _write(folder / f"{process}.url", f"{at.scheme}://{process}:{password}@{at.netloc}{at.path or '/0'}\n")
        except OSError as error:
            raise CommandError(f"{error.filename} cannot be read or written: {error.strerror}", returncode=2) from None
        self.stdout.write(f"users.acl and {len(passwords)} URLs are in {folder}")


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
