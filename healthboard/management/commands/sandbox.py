"""``manage.py sandbox``: look at the running sandbox, or take its AWS away."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from healthboard.sandbox import client, config


class Command(BaseCommand):
    help = "sandbox status [--json] | sandbox aws ok|off|throttle | sandbox queue ok|lost | sandbox hostile SEED|off"
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        status = actions.add_parser("status", help="calls, activities, groups and instances")
        status.add_argument("--json", action="store_true", help="everything, as one JSON object")
        aws = actions.add_parser("aws", help="let AWS answer, fall silent, or throttle")
        aws.add_argument("mode", choices=("ok", "off", "throttle"))
        hostile = actions.add_parser("hostile", help="let AWS do its worst, as drawn from a seed")
        hostile.add_argument("seed", help="letters and digits; off: honest again, and what it did is told")
        queue = actions.add_parser("queue", help="let the queue of events be there, or be lost")
        queue.add_argument("mode", choices=("ok", "lost"))

    def handle(self, *args: Any, **options: Any) -> None:
        if config.is_aws_mode():
            raise CommandError("the sandbox does not exist in aws mode", returncode=2)
        try:
            if options["action"] in ("aws", "queue"):
                answer = client.call(options["action"], {"mode": options["mode"]})
                self.stdout.write(f"{options['action']} is {answer[options['action']]}")
                return
            if options["action"] == "hostile":
                self._hostile(options["seed"])
                return
            status = client.call("status")
        except (client.Unreachable, client.Refused, config.BadSetting) as error:
            raise CommandError(str(error), returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps(status))
            return
        self.stdout.write(f"{status['endpoint']}  aws {status['aws']}  {len(status['calls'])} calls")
        for g in status["groups"]:
            self.stdout.write(
                f"group {g['group']}: desired {g['desired']}, in service {g['in_service']}, standby {g['standby']}"
            )
        for i in status["instances"]:
            agent = "connected" if i["agent_connected"] else "away"
            self.stdout.write(
                f"{i['instance_id']}  {i['name']:12} {i['state']:13} {i['pool'] or '-':8} {i['zone']}  "
                f"{i['status'] or '-':9} agent {agent:9} tasks {i['tasks']}  {' '.join(i['faults'])}"
            )

    def _hostile(self, seed: str) -> None:
        answer = client.call("hostile", {"seed": None if seed == "off" else seed})
        if answer["hostile"] is not None:
            self.stdout.write(f"AWS is hostile by seed {answer['hostile']}")
            return
        did = ", ".join(f"{count} {what}" for what, count in sorted(answer["did"].items()))
        self.stdout.write(f"AWS is honest again; it did: {did or 'nothing'}")
