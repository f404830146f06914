"""Each invariant, broken on purpose, is named; nothing else is."""

from __future__ import annotations

import http.server
import json
import threading
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from healthboard import clock
from healthboard.audit import chain
from healthboard.cases import alarm, invariants
from healthboard.cases.models import Case, Decision
from healthboard.fleet.models import Instance, Pulse
from healthboard.notices.models import Notice
from healthboard.people.actors import WORKER
from healthboard.refusals import Closed, Invalid, NotAllowed
from healthboard.repairs.models import Call, Repair
from tests import factories as make
from workers.verify import tasks


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    return tmp_path


@pytest.fixture
def repair(db):
    """A repair that was carried through as it should be."""
    make.switch()
    on = make.instance(make.pool("solo", "TEMPLATE"))
    new = make.instance(on.pool, launched_by_us=True)
    row = make.repair(on, state="SUCCEEDED", replacement=new, outcome="REPLACED", closed_at=make.ago(30),
                      carried_back_at=make.ago(20))  # fmt: skip
    *_, ended = make.steps(row, "drain", "replacement", "tasks", "terminate", last="DONE")
    called(ended)
    make.occupancy(row, released_at=make.ago(30))
    return row


def called(step, operation: str = "TerminateInstances", **fields) -> Call:
    """A call, and the row that the record has of its intent."""
    made = make.call(step, operation, service="ec2", request={}, **{"token": "", **fields})
    make.audit("repair.intent", operation, by=WORKER, repair_id=step.repair_id, payload={"call": made.pk})
    return made


def names() -> set[str]:
    return {sentence.split(":")[0].split(" ")[0] for sentence in invariants.check()}


def decision(kind: str = "approve", **fields) -> Decision:
    case = make.case(make.instance(), **fields.pop("case", {}))
    values = {"actor": "olga", "via": "web", "plan_version": 1, "evidence_hash": case.evidence_hash, "at": make.ago(60),
              "action": "REPLACE", **fields}  # fmt: skip
    return Decision.objects.create(case=case, kind=kind, **values)


def test_what_is_as_it_should_be_breaks_nothing(repair):
    assert invariants.check() == []


def test_inv1_two_open_repairs_of_one_instance(repair):
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX one_open_repair")
    for _ in range(2):
        make.repair(repair.instance, state="RUNNING", closed_at=None, next_at=clock.now())
    assert names() == {"INV1"}


def test_inv2_more_out_than_the_budget_allows(repair):
    other = make.repair(make.instance(repair.pool), state="RUNNING", next_at=clock.now())
    make.occupancy(other, allowed=2, out_before=2)
    assert names() == {"INV2"}


def test_inv2_more_repairs_at_once_than_allowed_and_a_unit_that_was_never_given_back(repair):
    for _ in range(3):
        other = make.repair(make.instance(repair.pool), state="RUNNING", next_at=clock.now())
        make.occupancy(other, allowed=2, out_before=0, taken_at=make.ago(10))
    assert [s for s in invariants.check() if "3 repairs at once in solo" in s]
    Repair.objects.filter(pk=other.pk).update(state="FAILED", closed_at=make.ago(5), carried_back_at=make.ago(5))
    assert any(f"closed repair {other.pk} still holds" in s for s in invariants.check())


def test_inv2_a_repair_that_has_begun_without_a_unit(repair):
    on = make.instance(repair.pool)
    other = make.repair(on, state="ASKING", action="REBOOT", why_waiting="asks", next_at=clock.now())
    (drained,) = make.steps(other, "drain")
    refused = called(drained, "UpdateContainerInstancesState", outcome="AccessDenied")
    assert invariants.check() == []
    Call.objects.filter(pk=refused.pk).update(outcome="ok")
    assert invariants.check() == [f"INV2: repair {other.pk} has begun to change its instance and holds no unit"]
    make.occupancy(other, units=0)
    assert invariants.check() == []
    Repair.objects.filter(pk=other.pk).update(action="RETURN")
    other.occupancy.delete()
    assert invariants.check() == []
    Repair.objects.filter(pk=other.pk).update(action="REPLACE", facts={"inherited_drain": True})
    Call.objects.filter(pk=refused.pk).update(outcome="AccessDenied")
    assert names() == {"INV2"}


@pytest.mark.parametrize(
    ("step", "word"), [("replacement", "before its replacement served"), ("tasks", "tasks had left")]
)
def test_inv3_a_termination_too_early(repair, step, word):
    repair.steps.filter(name=step).update(ended_at=clock.now())
    (sentence,) = invariants.check()
    assert sentence.startswith("INV3") and word in sentence


def test_inv3_allowed_by_a_named_person_is_none(repair):
    repair.steps.filter(name__in=["replacement", "tasks"]).delete()
    Repair.objects.filter(pk=repair.pk).update(allowed=["terminate_first", "dead_host"])
    assert invariants.check() == []


def test_inv4_two_launches_of_one_repair_and_one_launch_of_two_repairs(repair):
    step = repair.steps.get(name="replacement")
    for token in ("hb-1-1", "hb-1-2"):
        called(step, "RunInstances", token=token)
    make.repair(make.instance(repair.pool), state="SUCCEEDED", closed_at=make.ago(5), carried_back_at=make.ago(5),
                replacement=repair.replacement)  # fmt: skip
    told = invariants.check()
    assert len(told) == 2 and all(s.startswith("INV4") for s in told)


def test_inv4_another_launch_takes_an_ended_one_and_a_persons_word(repair):
    def told(verb: str, **payload) -> None:
        make.audit(verb, "as it is told", by=WORKER, repair_id=repair.pk, payload=payload)

    step = repair.steps.get(name="replacement")
    for token in ("hb-1-1", "hb-1-2"):
        called(step, "RunInstances", token=token)
    told("repair.answered", choice="wait_longer")
    told("repair.replacement_ended")
    assert names() == {"INV4"}, "a launch ended, and nobody asked for another"
    told("repair.answered", choice="launch_again")
    assert names() == set()
    called(step, "RunInstances", token="hb-1-3")
    told("repair.answered", choice="launch_again")
    assert names() == {"INV4"}, "the second one has not ended"


def test_inv4_entered_standby_twice(repair):
    for _ in range(2):
        called(repair.steps.get(name="drain"), "EnterStandby")
    assert names() == {"INV4"}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"outcome": "DONE"}, "was not carried out"),
        ({"outcome": "PENDING", "case": {"state": "CLOSED"}}, "pending on a closed case"),
        ({"outcome": "REFUSED"}, "refused without a reason"),
    ],
)
def test_inv5_an_approval_that_came_to_nothing(db, fields, word):
    decision(**fields)
    (sentence,) = invariants.check()
    assert sentence.startswith("INV5") and word in sentence


def test_inv6_a_call_without_an_outcome(repair):
    Call.objects.update(answered_at=None)
    assert names() == {"INV6"}


def test_inv6_a_call_that_stands_open_for_too_long(repair):
    Call.objects.update(answered_at=None, intended_at=make.ago(1000))
    Repair.objects.filter(pk=repair.pk).update(state="RUNNING", closed_at=None, next_at=clock.now())
    assert "INV6" in names()


def test_inv6_a_call_that_the_audit_record_does_not_know(repair):
    make.call(repair.steps.get(name="terminate"), "TerminateInstances", service="ec2")
    (sentence,) = invariants.check()
    assert sentence == f"INV6: repair {repair.pk} has 2 intended calls, 1 are in the audit record"


@pytest.fixture
def aws(home):
    """What the sandbox answers when it is asked for the calls that it saw."""
    seen: list[dict[str, str]] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"calls": seen}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    (home / "run" / "sandbox.url").write_text(f"http://127.0.0.1:{server.server_port}")
    yield lambda *calls: seen.extend(
        {"at": "", "service": "ec2", "operation": o, "target": t, "outcome": "ok"} for o, t in calls
    )
    server.shutdown()
    server.server_close()


def test_inv6_a_call_that_aws_saw_and_nobody_intended(repair, aws):
    old, new = repair.instance.instance_id, repair.replacement.instance_id
    aws(("TerminateInstances", old), ("DescribeInstances", ""), ("TerminateInstances", "i-of-somebody-else"))
    assert invariants.check() == []
    aws(("RebootInstances", old))
    assert invariants.check() == [f"INV6: AWS saw 1 RebootInstances on {old}, 0 were intended"]
    aws(("TerminateInstances", old), ("TerminateInstances", f"{old},{new}"))
    told = invariants.check()
    assert f"INV6: AWS saw 2 TerminateInstances on {old}, 1 were intended" in told
    assert any("several instances at once" in s for s in told) and len(told) == 3


def test_inv7_decided_by_policy_on_evidence_that_is_not_kept_or_says_nothing(db):
    made = decision("auto", outcome="PENDING")
    Case.objects.update(mode="auto")
    made.case.evidence.all().delete()
    assert names() == {"INV7"}
    for verdict, wrong in (("UNKNOWN", True), ("HEALTHY", True), ("HARDWARE", False)):
        made.case.evidence.all().delete()
        made.case.evidence.create(at=make.ago(90), hash=made.evidence_hash, verdict=verdict, inputs={}, assessment={})
        assert (names() == {"INV7"}) is wrong, verdict


def test_inv8_a_repair_that_stands_still_asks_nothing_or_was_never_told(repair):
    still = make.repair(make.instance(repair.pool), state="RUNNING", next_at=make.ago(1000))
    mute = make.repair(make.instance(repair.pool), state="ASKING", why_waiting="", next_at=clock.now())
    Repair.objects.filter(pk=repair.pk).update(carried_back_at=None, closed_at=make.ago(1000))
    told = invariants.check()
    assert len(told) == 3 and all(s.startswith("INV8") for s in told)
    assert {True} == {any(f"repair {row.pk} " in s for s in told) for row in (still, mute, repair)}


def test_inv8_a_case_that_is_decided_and_carried_out_by_nothing(db):
    case = make.case(make.instance(), state="DECIDED", changed_at=make.ago(1000))
    assert invariants.check() == [f"INV8: case {case.pk} is decided, and no repair carries it out"]


@pytest.mark.parametrize("owner", ["BATCH", "OTHER", "UNKNOWN"])
def test_inv9_a_call_about_what_is_not_ours(repair, owner):
    Repair.objects.filter(pk=repair.pk).update(owner=owner)
    assert names() == {"INV9"}


def test_inv9_a_call_about_the_machine_that_healthboard_runs_on(repair):
    Instance.objects.filter(pk=repair.instance_id).update(is_self=True)
    assert names() == {"INV9"}


def test_a_launch_of_ours_that_belongs_to_nothing_is_an_orphan(repair):
    home = repair.pool
    lost = make.instance(home, launched_by_us=True)
    tagged = make.instance(home, tags={"healthboard:repair": "99999"})
    make.instance(home, tags={"healthboard:repair": str(make.repair(make.instance(home), next_at=clock.now()).pk)})
    make.instance(home, launched_by_us=True, gone_at=make.ago(5))
    make.instance(make.pool("train"), launched_by_us=True)  # its group owns it
    make.instance(home, tags={"healthboard:repair": ["odd"], "x": None}, state="terminated")
    told = invariants.check()
    assert len(told) == 2 and all(s.startswith("ORPHAN") for s in told)
    assert str(lost) in told[0] + told[1] and str(tagged) in told[0] + told[1]
    Repair.objects.filter(pk=repair.pk).update(state="FAILED")
    assert any(str(repair.replacement) in s for s in invariants.check())


@pytest.mark.parametrize("outcome, orphan", [("ok", False), ("unknown", False), ("OperationNotPermitted", True)])
def test_what_we_have_just_ended_is_no_orphan_until_the_collectors_see_it(repair, outcome, orphan):
    """Also where the worker was killed before AWS's answer and the next one read that it is gone."""
    surplus = make.instance(repair.pool, launched_by_us=True)
    undone = make.repair(make.instance(repair.pool), state="CANCELLED", closed_at=clock.now(),
                         carried_back_at=clock.now(), replacement=surplus)  # fmt: skip
    (step,) = make.steps(undone, "undo_launch", last="DONE")
    call = called(step, target=surplus.instance_id, outcome=outcome, answered_at=clock.now())
    assert names() == ({"ORPHAN"} if orphan else set())
    Call.objects.filter(pk=call.pk).update(intended_at=make.ago(16 * 60 + 1), answered_at=make.ago(16 * 60))
    assert names() == {"ORPHAN"}, "by then they would have seen it"


def test_an_edited_audit_row_is_named(repair):
    from healthboard.audit import guard

    chain.seal()
    guard.remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE audit_auditrow SET summary = 'nothing'")
    guard.install(connection)
    (sentence,) = invariants.check()
    assert sentence.startswith("AUDIT: row ")


def test_a_sealer_that_stands_still_or_keeps_no_head_is_told(db):
    pulse = Pulse.objects.create(name="audit", at=make.ago(1000), detail={"problem": ""})
    assert invariants.check()[0].startswith("AUDIT: nothing was sealed since ")
    Pulse.objects.filter(pk=pulse.pk).update(at=clock.now())
    assert invariants.check() == []
    for detail, said in (({"problem": "no space"}, "AUDIT: no space"), (["odd"], "AUDIT: not sealed")):
        Pulse.objects.filter(pk=pulse.pk).update(ok=False, detail=detail)
        assert invariants.check() == [said]


def test_odd_rows_break_a_rule_and_never_the_check(repair, monkeypatch):
    for odd in (None, {"a": 1}, [["x"], 3, None], "terminate_first", 7):
        Repair.objects.filter(pk=repair.pk).update(allowed=odd if odd is not None else [None])
        Instance.objects.filter(pk=repair.replacement_id).update(tags=odd if odd is not None else {})
        Pulse.objects.update_or_create(name="invariants", defaults={"at": clock.now(), "detail": odd or []})
        assert invariants.check() == [] and alarm.unseen() == []

    def broken():
        yield "INV2: something"
        raise KeyError("odd")

    broken.__name__ = "inv2"
    monkeypatch.setattr(invariants, "inv2", broken)
    assert invariants.check() == ["INV2: something", "INV2: cannot be read to its end: KeyError: 'odd'"]


def test_the_command_names_what_is_broken(repair, capsys):
    call_command("check_invariants")
    assert capsys.readouterr().out == "all invariants hold\n"
    Repair.objects.filter(pk=repair.pk).update(owner="BATCH")
    with pytest.raises(SystemExit) as ended:
        call_command("check_invariants")
    assert ended.value.code == 1 and capsys.readouterr().out.startswith("INV9: TerminateInstances on i-")


def test_a_breach_is_told_once_and_is_an_alarm_until_it_holds_again_or_is_acknowledged(repair, monkeypatch):
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))
    operator = make.actor(make.person("operator", "olga"))
    Repair.objects.filter(pk=repair.pk).update(owner="BATCH")
    tasks.invariants()
    tasks.invariants()
    (sentence,) = alarm.unseen()
    assert sentence.startswith("INV9") and Notice.objects.filter(kind="invariant").count() == 1

    for who, reason, refusal in (
        (make.actor(make.person("viewer")), "x", NotAllowed), (WORKER, "x", NotAllowed), (operator, " ", Invalid),
    ):  # fmt: skip
        with pytest.raises(refusal):
            alarm.acknowledge(who, reason)
    alarm.acknowledge(operator, "the account is being moved")
    with pytest.raises(Closed):
        alarm.acknowledge(operator, "again")
    tasks.invariants()
    assert alarm.unseen() == [] and alarm.standing()[0]["seen_by"] == "olga"
    assert not Pulse.objects.get(name="invariants").ok

    Repair.objects.filter(pk=repair.pk).update(owner="TEMPLATE")
    tasks.invariants()
    assert alarm.standing() == [] and Pulse.objects.get(name="invariants").ok
    with clock.virtual(clock.now() + timedelta(minutes=1)):
        Repair.objects.filter(pk=repair.pk).update(owner="BATCH")
        tasks.invariants()
    assert len(alarm.unseen()) == 1 and Notice.objects.filter(kind="invariant").count() == 2
