# ruff: noqa: E402
"""``python -m tests.upgrade.carry_on TAG FILE``: this release takes over what a release before left behind. It migrates the
restored database (DATABASE_URL), finishes the repairs that were under way in the sandbox's AWS (HEALTHBOARD_HOME), and
then goes through a restore from a backup that was taken before they were finished. What came of it goes to FILE as JSON.

A process of its own, in the time of that release: the clocks of product and AWS begin shortly after its end.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

os.environ["DJANGO_SETTINGS_MODULE"] = "healthboard.settings"
import django

django.setup()

from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.test.utils import setup_test_environment

from healthboard import aws, clock, versions, wake
from healthboard.api import node_intake
from healthboard.audit import chain, heads
from healthboard.cases.models import Case
from healthboard.people.console import named
from healthboard.repairs import brakes
from healthboard.repairs.models import Repair
from tests import replayed
from tests.pages import addresses
from tests.repairs.driver import Drive, seeded
from tests.upgrade import backup
from tests.upgrade.released import RELEASES, Release
from workers.verify import sealing

#: between the stop of the old release and the start of this one: ten minutes, at the sandbox's speed
UPGRADE = timedelta(seconds=20)
#: between the backup and the restore
HOUR_S = 3600
#: seconds that the restored installation is watched before a person looks
WATCHED_S = 20


def main(release: Release) -> dict[str, Any]:
    setup_test_environment()
    begin = release.at + UPGRADE
    clock._virtual = begin
    told: dict[str, Any] = {"before": _open(), "migrate_s": _migrate()}
    call_command("setup")
    told["schema"] = versions.schema()
    told["audit"], told["invariants"] = _said("verify_audit"), None
    drive = _drive(release, begin)
    try:
        told["calls_before"] = _calls(drive)
        told["invariants"] = _said("check_invariants")
        told["report"] = _report(release)
        told["pages"] = _pages()
        copy = backup.take(Path(os.environ["HEALTHBOARD_HOME"]) / "backup")
        told["finished"] = _finish(drive, release)
        told |= {
            "calls": _calls(drive),
            "sound": _said("check_invariants"),
            "differing": replayed.differing(release.at),
        }
        told["drill"] = _drill(drive, copy)
    finally:
        drive.stop()
    return told


def _drive(release: Release, begin: datetime) -> Drive:
    """The loop over AWS as it was left; in its time, without a broker."""
    seeded()
    wake._quiet_until, aws.READ_ATTEMPTS = float("inf"), 1
    drive = Drive(Path(os.environ["HEALTHBOARD_HOME"]), release.told["pools"], others=True, at=begin)
    drive.since = release.at.timestamp() - 60
    for limit in (limit for limit in vars(node_intake).values() if isinstance(limit, node_intake.Every)):
        limit.tick = lambda: drive.offset
    return drive


def _migrate() -> float:
    begun = time.perf_counter()
    call_command("migrate", verbosity=0)
    return round(time.perf_counter() - begun, 2)


def _open() -> list[dict[str, Any]]:
    """The open repairs as the rows of the release before tell of them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT r.id, i.instance_id, r.action, r.owner, r.state, r.step FROM repairs_repair r"
            " JOIN fleet_instance i ON i.id = r.instance_id WHERE r.closed_at IS NULL ORDER BY r.id"
        )
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _said(*command: str) -> tuple[int, str]:
    """Exit status and words of a command."""
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            call_command(*command, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def _calls(drive: Drive) -> list[tuple[str, str]]:
    """(operation, instance) of every changing call that AWS carried out, of both releases, in order."""
    return [(call["operation"], call["target"]) for call in backup.changing(drive)]


def _report(release: Release) -> tuple[int, str]:
    """Of a node whose token the release before gave out."""
    sent = {
        "schema": 1, "reporter": "1.0.0", "boot_id": "b", "seq": 10**6, "sent_at": clock.now().isoformat(),
        "nvml": {"state": "ok", "code": 0}, "gpus": [], "kernel": [],
    }  # fmt: skip
    answer = Client().post(
        "/api/v1/node/reports", json.dumps(sent), content_type="application/json",
        headers={"Authorization": f"Bearer {release.told['node_token']}"},
    )  # fmt: skip
    return answer.status_code, answer.content.decode()[:500]


def _pages() -> dict[str, int]:
    """Address -> status, of every page that there is, as an admin sees it."""
    client = Client()
    client.force_login(named("admin").user)
    return {address: client.get(address).status_code for address in addresses.every().values()}


def _finish(drive: Drive, release: Release) -> dict[str, Any]:
    """The question is answered under the hash that was shown before, then all goes to its end."""
    asked = Case.objects.filter(instance__instance_id=release.told["asked"], state="WAITING").first()
    drive.steps(5, 3)  # sources are watched anew first
    if asked is not None:
        decided = drive.decide(asked, "dismiss", by=named("operator"), reason="decided before the upgrade")
    ends = {pool: drive.repaired(drive.row(id_).instance_id, 300, 4.0) for pool, id_ in release.told["broken"].items()}
    return {
        "asked": decided.outcome if asked is not None else "none",
        "running": {pool: len(drive.fleet.pool(pool)) for pool in ends},
        "ends": {pool: [repair.state, repair.outcome, repair.outcome_why] for pool, repair in ends.items()},
    }


def _drill(drive: Drive, copy: backup.Copy) -> dict[str, Any]:
    """The backup is restored while AWS has moved on: nothing is changed until a person has looked."""
    chain.seal()
    heads.keep()
    moved = len(_calls(drive))
    drive.fleet.clock.offset += HOUR_S
    drive._set()
    copy.restore()
    call_command("setup")
    told: dict[str, Any] = {
        "intact": _said("verify_audit", f"--head={copy.head}"), "behind": _said("verify_audit"),
        "stopped": brakes.switch().reason if brakes.switch().stopped else "",
    }  # fmt: skip
    drive.steps(WATCHED_S // 4, 4)
    told["watched"] = _calls(drive)[moved:]
    told["open"] = _open()
    brakes.resume(named("admin"), "compared with AWS")
    sealing.come_round()
    drive.until(lambda: not Repair.objects.filter(state__in=("SCHEDULED", "RUNNING", "UNDOING")).exists(), 300, 4.0)
    told |= {
        "after": _calls(drive)[moved:],
        "ends": [[r.instance.instance_id, r.state, r.outcome or r.why_waiting] for r in Repair.objects.order_by("pk")],
        "audit": _said("verify_audit"), "invariants": _said("check_invariants"),
    }  # fmt: skip
    return told


if __name__ == "__main__":
    told = main(Release(RELEASES / sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(told, indent=1))
    connections.close_all()
