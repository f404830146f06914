"""The stop switch and acting: what the row goes on saying, and who is told."""

from __future__ import annotations

import re

import pytest
from django.core.management import call_command

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.notices.models import Notice
from healthboard.people.actors import system
from healthboard.repairs import brakes
from tests import factories as make

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def began():
    make.switch()


@pytest.fixture
def ann():
    return make.actor(make.person("operator", "ann"))


@pytest.fixture
def admin():
    return make.actor(make.person("admin", "bob"))


def told(thread: str) -> list[tuple[str, str, str]]:
    rows = Notice.objects.filter(thread=thread).order_by("pk")
    return [(row.kind, row.severity, row.event) for row in rows]


def said() -> tuple[str, str, object]:
    row = brakes.switch()
    return row.changed_by, row.reason, row.changed_at


def test_until_its_release_it_says_who_stopped_everything_and_why(ann, admin):
    brakes.stop(ann, "smoke in row 7")
    first = said()
    assert first[:2] == ("ann", "smoke in row 7")
    brakes.stop(admin, "pressed once more")
    brakes.set_acting(False, admin, "and off as well")
    brakes.set_acting(True, system("command"), "on again")
    assert said() == first and brakes.switch().stopped and brakes.switch().acting
    assert AuditRow.objects.filter(subject="switch").count() == 4, "each is in the record"
    brakes.resume(admin, "the fire is out")
    assert said()[:2] == ("bob", "the fire is out") and not brakes.switch().stopped
    brakes.set_acting(False, admin, "a quiet week")
    assert said()[:2] == ("bob", "a quiet week")


def test_what_the_system_stops_for_is_said_before_what_a_person_had_stopped_for(ann):
    brakes.stop(ann, "x" * 300)
    at = said()[2]
    brakes.stop_by_itself(system("restored"), "RESTORED: the database was put back.")
    who, why, since = said()
    assert (
        (who, since) == ("ann", at) and why.startswith("RESTORED: the database was put back. xxx") and len(why) == 255
    )


def test_both_are_told_once_each_with_their_end(ann, admin):
    brakes.stop(ann, "smoke in row 7")
    brakes.stop(admin, "pressed once more")
    assert told("stop") == [("stopped", "critical", "trigger")]
    notice = Notice.objects.get(thread="stop")
    assert notice.subject.startswith("ann has thrown the stop switch") and notice.body == "smoke in row 7"
    assert notice.link == "/system/#switch"
    brakes.resume(admin, "the fire is out")
    brakes.resume(admin, "pressed once more")
    assert told("stop") == [("stopped", "critical", "trigger"), ("resumed", "info", "resolve")]
    brakes.stop(ann, "again")
    assert told("stop")[-1] == ("stopped", "critical", "trigger")

    brakes.set_acting(True, admin, "it is on already")
    assert told("acting") == []
    brakes.set_acting(False, admin, "a quiet week")
    brakes.set_acting(False, admin, "pressed once more")
    brakes.set_acting(True, admin, "on again")
    assert told("acting") == [("observing", "warning", "trigger"), ("acting", "info", "resolve")]


def test_a_stop_that_the_system_makes_is_told_by_what_it_found_alone():
    brakes.stop_by_itself(system("restored"), "RESTORED: the database was put back.")
    assert told("stop") == [] and brakes.switch().stopped


def test_an_installation_that_begins_tells_nobody():
    brakes.switch().delete()
    call_command("setup")
    assert brakes.switch().acting and not Notice.objects.exists()
    assert brakes.switch().changed_at <= clock.now()


def test_an_open_page_shows_what_was_added_to_the_reason(client, ann):
    """The banner is polled by what it shows, and the time of the stop stays."""
    client.force_login(ann.user)
    brakes.stop(ann, "smoke in row 7")
    before = client.get("/", headers={"HX-Request": "true"})
    shown = re.search(r'X-Shown&quot;: &quot;(\w+)|"X-Shown": ?"(\w+)"', before.content.decode())
    polled = {"HX-Request": "true", "X-Shown": next(filter(None, shown.groups()))}
    assert client.get("/", headers=polled).status_code == 204
    brakes.stop_by_itself(system("restored"), "RESTORED: the database was put back.")
    assert "RESTORED: the database was put back. smoke in row 7" in client.get("/", headers=polled).content.decode()
