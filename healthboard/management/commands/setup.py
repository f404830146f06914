"""`manage.py setup`: what every start needs after `migrate`: the mode stamp, the default policy, sandbox log-ins."""

import sys

from django.conf import settings
from django.core.management.base import BaseCommand

from healthboard import clock
from healthboard.audit import heads
from healthboard.audit.models import AuditRow
from healthboard.fleet import gaps
from healthboard.fleet.models import Installation
from healthboard.management.alone import alone
from healthboard.repairs import restored
from healthboard.repairs.models import Switch


class Command(BaseCommand):
    help = "Stamp the mode into the database, create the fleet default policy and, in the sandbox, its log-ins."
    requires_system_checks = ()

    def handle(self, *args, **options):
        with alone(self.stdout.write):
            self._stamp()

    def _stamp(self):
        stamped = Installation.objects.order_by("pk").first()
        new = stamped is None
        if new:
            stamped = Installation.objects.create(mode=settings.MODE, created_at=clock.now())
        if stamped.mode != settings.MODE:
            self.stderr.write(
                f"This database belongs to mode {stamped.mode}, but HEALTHBOARD_MODE is {settings.MODE}: "
                "use another DATABASE_URL or HEALTHBOARD_HOME."
            )
            sys.exit(2)
        if not Switch.objects.exists():
            # a fresh real installation only observes until an admin switches acting on
            Switch.objects.create(
                acting=settings.SANDBOX, changed_at=clock.now(), changed_by="healthboard", reason="first start"
            )
        if new and not AuditRow.objects.exists():
            heads.begin_again("a new, empty database")
        elif why := restored.look():  # before any worker runs
            self.stderr.write(f"{why}. The stop switch is thrown.")
        from healthboard.policies.versions import ensure_default

        ensure_default()
        gaps.begin("healthboard was started")
        if settings.SANDBOX:
            from healthboard import config
            from healthboard.people.sandbox import ensure_sandbox_people

            ensure_sandbox_people(config.read("HEALTHBOARD_SANDBOX_PASSWORD") or config.secret("sandbox-password"))
