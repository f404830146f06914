"""`manage.py probe_aws`: try what docs/aws-assumptions.md assumes, on machines that are thrown away afterwards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from healthboard import aws, config
from healthboard.config import BadSetting
from healthboard.probes.ground import Ground, left_over
from healthboard.probes.run import WORDS, run
from healthboard.probes.tries import ONLY_TOLD, PROBES


class Command(BaseCommand):
    help = (
        "Try each assumption about AWS on a throw-away group of t3.micro; exit 1 where one that counts does not hold."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--yes", metavar="ACCOUNT", default="", help="the account id: machines are started there")
        parser.add_argument("--region", default="", help="one of HEALTHBOARD_REGIONS (default: the first)")
        parser.add_argument("--only", default="", help="assumptions, with commas between: A1,A6")
        parser.add_argument("--zone", default="", help="availability zone, where the default VPC has a subnet")
        parser.add_argument("--subnet", default="", help="a subnet instead, with a way to ECS and to the registry")
        parser.add_argument("--instance-profile", default="ecsInstanceRole", help="role of the machines")
        parser.add_argument("--out", default="", help="folder for the answers (default: probes/ in HEALTHBOARD_HOME)")
        parser.add_argument("--clean", action="store_true", help="only clean up what an earlier run left")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            account, region = self._place(options["yes"], options["region"])
            only = [name for name in options["only"].upper().split(",") if name]
            if unknown := sorted(set(only) - set(PROBES)):
                raise CommandError(f"no such assumption: {', '.join(unknown)}", returncode=2)
            folder = config.home() / "probes"
            more = {"account": account, "region": region, "folder": folder, "speed": config.speed(), "say": self._say}
            self._clean(folder, more)
            if options["clean"]:
                return
            ground = Ground(**more, zone=options["zone"], subnet=options["subnet"], profile=options["instance_profile"])
            out = Path(options["out"]) if options["out"] else folder / f"{account}-{region}"
            answers, wrong = run(ground, only, out)
        except (BadSetting, ClientError, BotoCoreError) as error:
            raise CommandError(str(error), returncode=2) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted; what was made was cleaned up", returncode=130) from None
        self._told(answers, out)
        if wrong:
            raise CommandError(f"not cleaned up, run probe_aws --clean: {'; '.join(wrong)}", returncode=3)
        if any(answer.holds is False for name, answer in answers.items() if name not in ONLY_TOLD):
            sys.exit(1)

    def _place(self, yes: str, wanted: str) -> tuple[str, str]:
        known = aws.places()
        regions = sorted({region for _, region in known})
        if wanted and wanted not in regions:
            raise CommandError(f"--region is one of {', '.join(regions)}", returncode=2)
        accounts = list(dict.fromkeys(account for account, _ in known))
        if config.mode() == "aws" and yes not in accounts:
            named = " or ".join(accounts)
            raise CommandError(
                f"this starts machines in a real account, which cost money: say --yes {named}", returncode=2
            )
        if yes and yes not in accounts:
            raise CommandError(f"--yes names no account of HEALTHBOARD_ACCOUNTS ({', '.join(accounts)})", returncode=2)
        account = yes or accounts[0]
        return account, wanted or next(region for one, region in known if one == account)

    def _clean(self, folder: Path, more: dict[str, Any]) -> None:
        for old in left_over(folder, more["account"], more["region"]):
            if wrong := Ground(**more, run=old).clean():
                raise CommandError(f"an earlier run cannot be cleaned up: {'; '.join(wrong)}", returncode=3)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _told(self, answers: dict[str, Any], out: Path) -> None:
        for name in sorted(answers, key=lambda name: int(name[1:])):
            self.stdout.write(f"{name:4} {WORDS[answers[name].holds]:18} {answers[name].said}")
        self.stdout.write(f"kept in {out}")
