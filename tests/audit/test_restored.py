"""A database that was put back to an earlier time: nothing is changed in AWS until a person has released it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import transaction

from healthboard import clock
from healthboard.audit import chain, heads
from healthboard.audit.models import AuditRow
from healthboard.cases import invariants
from healthboard.fleet.models import Installation, Pulse
from healthboard.notices.models import Notice
from healthboard.people.actors import WORKER, system
from healthboard.refusals import Held, NotAllowed
from healthboard.repairs import brakes, lifecycle, restored
from healthboard.repairs.models import Call
from healthboard.repairs.states import State
from tests import factories
from tests.cases import scene
from workers.verify import sealing


def repair_of():
    on = scene.machine()
    with transaction.atomic():
        row = lifecycle.open_repair(
            instance=on, action="REPLACE", actor=WORKER, values={}, not_before=clock.now() - timedelta(seconds=1)
        )
    return lifecycle.claim(row.pk, "host:1")


def intend(held):
    target = held.instance.instance_id
    return lifecycle.intend(held, service="ecs", operation="UpdateContainerInstancesState", target=target, request={})


@pytest.fixture
def put_back(rows, forge):
    """The database as it was five rows before the head that is known outside."""
    Installation.objects.create(mode="sandbox", created_at=clock.now())
    scene.acting()
    sealing.come_round()

    def back() -> None:
        forge("DELETE FROM audit_seal WHERE position > 7")
        forge("DELETE FROM audit_auditrow WHERE id > %s", rows[6].pk)

    return back


def test_no_intent_and_no_start_even_before_anybody_looked(put_back):
    held = repair_of()
    assert lifecycle.start(held, "drain") is None
    other = repair_of()
    put_back()
    with pytest.raises(Held, match="put back to an earlier time"):
        intend(held)
    assert "put back" in lifecycle.start(other, "drain")
    type(held).objects.filter(pk=held.pk).update(state=State.UNDOING)
    with pytest.raises(Held):
        intend(held)  # our own drain is not taken back either: it may be long done
    assert not Call.objects.exists()


def test_a_start_throws_the_switch_and_a_person_releases_it(put_back, home, capsys):
    put_back()
    before = (home / "audit-heads.log").read_text()
    call_command("setup")
    assert "The stop switch is thrown" in capsys.readouterr().err
    thrown = brakes.switch()
    assert thrown.stopped and thrown.reason.startswith("RESTORED") and thrown.changed_by == "healthboard:restored"
    sealing.come_round()
    sealing.come_round()
    assert AuditRow.objects.filter(verb=restored.VERB).count() == 1
    assert Notice.objects.filter(kind="restored").count() == 1
    pulse = Pulse.objects.get(name="audit")
    assert not pulse.ok and "position 12" in pulse.detail["problem"]
    (told,) = invariants.check()
    factories.audit("more", "more", by=WORKER)
    sealing.come_round()
    assert invariants.check() == [told], "one breach, whatever is added after it"
    assert (home / "audit-heads.log").read_text() == before, "the heads of before stay as they are"
    with pytest.raises(SystemExit):
        call_command("verify_audit")

    with pytest.raises(NotAllowed):
        brakes.resume(factories.actor(factories.person("operator")), "looked")
    with pytest.raises(NotAllowed):
        brakes.resume(system("anything"), "looked")
    brakes.resume(factories.actor(factories.person("admin")), "compared with AWS")
    sealing.come_round()
    assert Pulse.objects.get(name="audit").ok and heads.behind() == ""
    last = json.loads((home / "audit-heads.log").read_text().splitlines()[-1])
    assert last["instead_of"] == json.loads(before.splitlines()[-1])["hash"]
    capsys.readouterr()
    call_command("verify_audit")
    assert f"a person released the stop switch), instead of {last['instead_of']}" in capsys.readouterr().out
    held = repair_of()
    assert lifecycle.start(held, "drain") is None and intend(held)


def test_put_back_once_more_it_stops_once_more(put_back, forge):
    put_back()
    restored.look()
    brakes.resume(factories.actor(factories.person("admin")), "compared with AWS")
    sealing.come_round()
    assert restored.look() == ""
    forge("DELETE FROM audit_seal WHERE position > 5")
    forge("DELETE FROM audit_auditrow WHERE id NOT IN (SELECT row_id FROM audit_seal)")
    assert restored.look() and brakes.switch().stopped


def test_a_chain_that_was_rewritten_is_no_newer_database(put_back, forge):
    forge("DELETE FROM audit_seal")
    with clock.virtual(clock.now() + timedelta(seconds=9)):
        chain.seal()
        assert chain.verify().broken == [] and "rewritten" in restored.look()


def test_a_new_empty_database_begins_a_log_of_its_own(db, home, capsys):
    line = {"at": clock.now().isoformat(), "position": 40, "row": 44, "hash": "a" * 64}
    (home / "audit-heads.log").write_text(json.dumps(line) + "\n")
    call_command("setup")
    assert not brakes.switch().stopped and capsys.readouterr().err == ""
    lines = (home / "audit-heads.log").read_text().splitlines()
    assert json.loads(lines[0]) == line and json.loads(lines[-1])["instead_of"] == "a" * 64
    factories.audit("first", "first", by=system("test"))
    sealing.come_round()
    assert Pulse.objects.get(name="audit").ok


@pytest.mark.parametrize(
    "text",
    ["", "no json\n", "[]\n", '{"at": 3}\n', '{"at": "2026-01-01", "position": 99999999999999999999, "row": 1, "hash": ""}\n',
     '{"at": "2026-01-01", "position": "7", "row": 1, "hash": "x"}\n', "\x00\xff\n", '{"at": "2026-01-01", "hash": 7}\n'],
)  # fmt: skip
def test_a_log_that_cannot_be_read_is_no_head_and_crashes_nothing(rows, home, text):
    for name in ("audit-heads.log", "audit-head.json"):
        (home / name).write_bytes(text.encode("latin-1"))
    assert heads.newest() is None and heads.behind() == ""
    sealing.come_round()
    assert heads.newest()[0] == chain.end()
