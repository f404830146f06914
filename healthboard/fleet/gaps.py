"""Whether healthboard itself stood still, its clock jumped or its database is another one: then all is watched anew.

What the sources told before counts for nothing then: nothing starts, and no repair goes on, until each has told full
rounds that began afterwards; what had arrived meanwhile and is old is kept as backlog and never acted on.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection, transaction

from healthboard import clock
from healthboard.audit.record import record
from healthboard.fleet import bursts
from healthboard.fleet import record as facts
from healthboard.fleet.models import Pulse
from healthboard.fleet.sources import watch_anew
from healthboard.people.actors import CLOCK

#: stages whose standing still means that nobody looked
STAGES = ("decide", "repair")
#: a stage that did not come round for longer stood still; a busy machine's pauses do not shrink with the sandbox's speed
STILL = timedelta(minutes=3)
#: a sign of life that is further in the future means that the clock was set back
BACK = timedelta(seconds=5)
#: another clock than ours, such as AWS's, may go ahead by so much
SKEW = timedelta(minutes=3)


def notice() -> str:
    """Look at the last signs of life; where they show a gap or a jump, begin to watch. Returns why, or nothing.

    A gap is noticed once; where a stage stays away, the watching begins anew each time as long has passed again.
    """
    if not _gaps():
        return ""
    with transaction.atomic():
        _watch(lock=True)
        found = _gaps()  # another may have been faster
        if not found:
            return ""
        for pulse, _ in found:
            _remember(pulse.name, pulse.at.isoformat())
        return begin(found[0][1], since=min(pulse.at for pulse, _ in found))


def _gaps() -> list[tuple[Pulse, str]]:
    now = clock.now()
    pulses = {p.name: p for p in Pulse.objects.filter(name__in=(*STAGES, "watch"))}
    watch = pulses.get("watch")
    begun = now - watch.at if watch is not None and watch.at <= now else timedelta.max
    found = []
    for pulse in sorted((pulses[name] for name in STAGES if name in pulses), key=lambda p: p.at):
        age = now - pulse.at
        if age < -BACK:
            if watch is None or watch.detail.get(pulse.name) != pulse.at.isoformat():
                found.append((pulse, f"the clock was set back by {-age.total_seconds():.0f} s"))
        elif min(age, begun) > STILL:
            found.append((pulse, f"{pulse.name} stood still for {age.total_seconds():.0f} s, or the clock jumped"))
    return found


def notice_database() -> str:
    """As `notice`, where the database was restarted or another one took over: what was committed last may be lost."""
    identity = database()
    if not identity or _watch().detail.get("database") == identity:
        return ""
    with transaction.atomic():
        known = _watch(lock=True).detail.get("database")
        if known == identity:
            return ""
        _remember("database", identity)
        return begin("the database was restarted, or another one took over") if known else ""


def database() -> str:
    """What names the running database server; empty where there is none."""
    if connection.vendor != "postgresql":
        return ""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        return cursor.fetchone()[0].isoformat()


@transaction.atomic
def begin(why: str, *, since: datetime | None = None) -> str:
    """Watch everything anew from now on. `since`: when the last sign of life was, if nobody looked since then."""
    now = clock.now()
    Pulse.objects.update_or_create(name="watch", defaults={"at": now, "ok": True})
    sources = watch_anew(now)
    aside = bursts.set_aside(since, now) if since is not None and since < now else 0
    payload = {"sources": sources, "events": aside, "moved": facts.pull_in(now)}
    record("watch.anew", "sources", f"watched anew: {why}", actor=CLOCK, payload=payload)
    return why


def counted_from(moment: datetime) -> datetime:
    """From when on a span that began at `moment` counts: nobody saw what was before the last gap or jump of the clock.

    A moment a little ahead was told by a clock that goes before ours, AWS's for example: of its span nothing is over. One
    further ahead is of before the clock was set back.
    """
    now = clock.now()
    if now < moment <= now + SKEW:
        return now
    begun = Pulse.objects.filter(name="watch").values_list("at", flat=True).first()
    if begun is None:
        return moment
    return max(moment, begun) if moment <= now else min(begun, now)


def _watch(*, lock: bool = False) -> Pulse:
    """The row that says since when all is watched, and which gaps were noticed."""
    rows = Pulse.objects.select_for_update() if lock else Pulse.objects
    found = rows.filter(name="watch").first()
    if found is None:
        Pulse.objects.get_or_create(name="watch", defaults={"at": clock.now()})
        found = rows.get(name="watch")
    return found


def _remember(name: str, value: str) -> None:
    watch = _watch(lock=True)
    Pulse.objects.filter(pk=watch.pk).update(detail={**watch.detail, name: value})
