"""``manage.py inject``: let an instance of the sandbox show a fault, or take it away."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from healthboard.sandbox import client, config
from healthboard.sandbox.faults import FAULTS, listing


class Command(BaseCommand):
    help = "Show on one or several instances of the sandbox what a real node, EC2 or ECS would show for a code."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("instances", nargs="?", help="one instance id, or several with commas between")
        parser.add_argument("code", nargs="?", help="a code of --list")
        parser.add_argument("--gpu", type=int, help="index of the GPU (default 0)")
        parser.add_argument("--clear", action="store_true", help="take the fault away")
        parser.add_argument("--list", action="store_true", help="the codes, what is expected of each, and its cure")

    def handle(self, *args: Any, **options: Any) -> None:
        if config.is_aws_mode():
            raise CommandError("inject does not exist in aws mode", returncode=2)
        if options["list"]:
            self.stdout.write(listing())
            return
        if not options["instances"] or not options["code"]:
            raise CommandError("name an instance and a code, or use --list", returncode=2)
        if options["code"] not in FAULTS:
            raise CommandError(f"no such code: {options['code']} (see inject --list)", returncode=2)
        ids = [part.strip() for part in options["instances"].split(",") if part.strip()]
        body = {"instances": ids, "code": options["code"], "gpu": options["gpu"], "clear": options["clear"]}
        try:
            answer = client.call("inject", body)
        except (client.Unreachable, client.Refused, config.BadSetting) as error:
            raise CommandError(str(error), returncode=2) from None
        verb = "cleared from" if options["clear"] else "on"
        self.stdout.write(f"{answer['code']} {verb} {', '.join(answer['instances'])}")
