"""What happens and is told: each moment of a case, of a repair, of what guards them, and of what sees."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.cases import alarm, answers, ends, lifecycle
from healthboard.cases.models import Case
from healthboard.cases.states import Resolution
from healthboard.notices import outbox
from healthboard.notices.models import Notice
from healthboard.people.actors import WORKER
from healthboard.repairs import brakes
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.states import State as RepairState
from tests import factories as make
from tests import two
from tests.cases import scene
from workers.notify import watch

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def home():
    make.switch()
    return make.pool("train")


def told(thread: str = "") -> list[tuple[str, str]]:
    rows = Notice.objects.filter(**({"thread": thread} if thread else {})).order_by("pk")
    return [(row.kind, row.event) for row in rows]


def asked(case: Case, *, ago: float = 0, to: tuple[str, ...] = ("llm",)) -> None:
    from healthboard.cases import telling

    telling.tell(case, "case_waiting", key=f"asked-{case.pk}", subject=case.title, to=to)
    Notice.objects.filter(key=f"asked-{case.pk}").update(created_at=make.ago(ago))


def test_a_cases_card_says_what_a_person_needs_to_know(home):
    case = make.case(make.instance(home))
    asked(case)
    row = Notice.objects.get()
    assert row.facts["Machine"] == case.instance.instance_id and row.facts["Proposed"] == "Drain and reboot"
    assert row.facts["Plan"] == case.plan["sentence"] and row.facts["Expires"].endswith("UTC")
    assert (row.link, row.pool, row.account) == (f"/cases/{case.pk}/", "train", "111122223333")


def test_a_question_is_told_again_before_it_expires_once(home):
    case = make.case(make.instance(home), expires_at=clock.now() + timedelta(minutes=9))
    asked(case, ago=3600)
    watch.look()
    watch.look()
    assert told(f"case:{case.pk}") == [("case_waiting", "trigger"), ("case_expiring", "trigger")]
    row = Notice.objects.get(kind="case_expiring")
    assert (row.severity, row.receivers) == ("critical", ["llm"]) and "expires in 9 min" in row.subject


@pytest.mark.parametrize("left, since", [(1000, 3600), (290, 10), (-5, 3600)])
def test_a_question_with_time_left_or_just_asked_or_over_is_not(home, left, since):
    case = make.case(make.instance(home), expires_at=make.ago(-left))
    asked(case, ago=since)
    watch.look()
    assert told() == [("case_waiting", "trigger")]


def test_expiry_a_decision_and_the_end_are_told_to_who_was_asked(home):
    case = make.case(make.instance(home), expires_at=make.ago(1))
    asked(case)
    assert ends.expire(case.pk)
    case.refresh_from_db()
    person = make.actor(make.person("operator", "ann"))
    answers.decide(
        case.pk,
        actor=person,
        kind="snooze",
        plan_version=case.plan_version,
        evidence_hash=case.evidence_hash,
        snooze_s=60,
    )
    case.refresh_from_db()
    lifecycle.close(case, Resolution.CLEARED, "it cleared", WORKER)
    assert told(f"case:{case.pk}") == [
        ("case_waiting", "trigger"), ("case_expired", "trigger"), ("case_decided", "acknowledge"), ("case_closed", "resolve"),
    ]  # fmt: skip
    assert {tuple(row.receivers) for row in Notice.objects.all()} == {("llm",)}
    decided = Notice.objects.get(kind="case_decided")
    assert "snoozed by ann" in decided.subject
    assert decided.facts["State"] == "Snoozed" and "Expires" not in decided.facts
    assert Notice.objects.get(kind="case_closed").facts["State"] == "Closed"


def test_the_end_of_a_case_that_nobody_was_told_of_is_not_told(home):
    lifecycle.close(make.case(make.instance(home)), Resolution.CLEARED, "it cleared", WORKER)
    assert told() == []


@pytest.mark.parametrize("step, kind", [("verify", "verify_failed"), ("tasks", "repair_asks")])
def test_a_repair_that_asks_is_told_in_its_cases_matter_and_so_is_the_answer(home, step, kind):
    case = make.case(make.instance(home), state="DECIDED")
    repair = make.repair(case.instance, settings={"notify": ["llm"]})
    make.decision(case, repair=repair)
    make.steps(repair, "recheck", step)
    repairs.ask(repair, "Two tasks have not left", [{"key": "wait", "title": "Wait"}])
    row = Notice.objects.get()
    assert (row.kind, row.thread, row.receivers) == (kind, f"case:{case.pk}", ["llm"])
    assert row.link == f"/repairs/{repair.pk}/" and row.facts["Answers"] == "Wait"
    repairs.answer(repair.pk, actor=make.actor(make.person("operator", "ann")), choice="wait", reason="soon")
    assert told(f"case:{case.pk}") == [(kind, "trigger"), ("repair_answered", "acknowledge")]


def test_a_repair_by_hand_is_a_matter_of_its_own(home):
    repair = make.repair(make.instance(home), automatic=False)
    make.steps(repair, "recheck", "tasks")
    repairs.ask(repair, "Two tasks have not left", [{"key": "wait", "title": "Wait"}])
    repairs.finish(repair, RepairState.FAILED, "GAVE_UP", "no way")
    assert told(f"repair:{repair.pk}") == [("repair_asks", "trigger"), ("repair_ended", "resolve")]


def test_a_failed_repair_is_told(home):
    case = make.case(make.instance(home), state="DECIDED")
    repair = make.repair(case.instance, state="FAILED", outcome="LAUNCH_FAILED", outcome_why="no capacity")
    make.decision(case, repair=repair)
    ends.carry_back(repair)
    assert told(f"case:{case.pk}") == [("repair_failed", "trigger")]


def test_a_breaker_is_told_and_so_is_its_release(home):
    kind = {"kind": "LAUNCH", "scope_kind": "pool", "scope": "train"}
    breaker = brakes.open_breaker(account=home.account, region=home.region, why="three failed", actor=WORKER, **kind)
    brakes.open_breaker(account=home.account, region=home.region, why="three failed", actor=WORKER, **kind)
    assert Notice.objects.get().pool == "train"
    two.release_breaker(breaker.pk, make.actor(make.person("admin")), "capacity is back")
    assert told(f"breaker:{breaker.pk}") == [
        ("breaker", "trigger"),
        ("second_person", "trigger"),
        ("breaker_released", "resolve"),
    ]


def test_a_broken_invariant_is_told_seen_and_over():
    alarm.keep(["INV1: two open repairs on i-1"])
    alarm.acknowledge(make.actor(make.person("operator")), "looking")
    alarm.keep([])
    alarm.keep([])
    assert [kind for kind, _ in told()] == ["invariant", "invariant_seen", "invariant_holds"]
    assert len(set(Notice.objects.values_list("thread", flat=True))) == 1


def test_a_blind_place_is_told_once_and_when_it_sees_again():
    ec2, ecs = make.source("ec2", age=500, error="AccessDenied"), make.source("ecs", scope="gpu")
    make.source("events", age=0, succeeded_at=None)  # not asked yet
    for _ in range(2):
        watch.look()
    assert told() == [("blind", "trigger")]
    row = Notice.objects.get()
    assert "ec2" in row.subject and "AccessDenied" in row.body and row.severity == "critical"
    type(ecs).objects.filter(pk=ecs.pk).update(succeeded_at=make.ago(400))
    for _ in range(2):
        watch.look()
    assert len(told()) == 2 and "ecs gpu" in Notice.objects.latest("pk").subject  # what went blind since
    type(ec2).objects.update(succeeded_at=clock.now())
    for _ in range(2):
        watch.look()
    assert told()[-1] == ("sees", "resolve") and len(told()) == 3
    type(ec2).objects.filter(pk=ec2.pk).update(succeeded_at=make.ago(300))
    watch.look()
    assert told()[-1] == ("blind", "trigger")


def test_a_second_outage_of_many_sources_is_told_too():
    for n in range(40):
        rows = type(make.source("ecs", scope=f"cluster-{n}", age=900, pk=10**8 + n)).objects
    for _ in range(2):
        watch.look()
        rows.update(succeeded_at=clock.now())
        watch.look()
        rows.update(succeeded_at=make.ago(500))
    assert [kind for kind, _ in told()] == ["blind", "sees", "blind", "sees"]
    assert max(len(key) for key in Notice.objects.values_list("key", flat=True)) <= 200


def test_an_applications_fault_is_counted_over_instances_for_its_owner():
    about = {"code": "XID_31", "workload": "llm-train", "why": "an illegal address", "link": "/instances/1/", "to": []}
    for instance, count in (("i-1", 2), ("i-1", 2), ("i-2", 1), ("i-1", 4)):
        outbox.tally(key="w-1", instance=instance, count=count, **about)
    row = Notice.objects.get()
    assert (row.count, row.tally) == (5, {"i-1": 4, "i-2": 1})
    assert row.subject == "XID_31 in llm-train on 2 instances: 5 times"
    assert row.next_at > clock.now()  # told once it is known how far it reaches


def test_a_workload_of_that_name_elsewhere_is_another_matter():
    about = {"code": "XID_31", "workload": "llm\u202e", "why": "", "link": "", "to": [], "instance": "i-1", "count": 1}
    for account in ("111122223333", "444455556666"):
        outbox.tally(key=f"w-{account}", account=account, region="us-east-1", **about)
    assert len(set(Notice.objects.values_list("thread", flat=True))) == 2
    assert {row.subject for row in Notice.objects.all()} == {"XID_31 in llm  on i-1: 1 time"}


def test_a_count_that_stands_writes_nothing(django_assert_num_queries):
    about = {"code": "XID_31", "workload": "llm", "why": "", "link": "", "to": [], "instance": "i-1", "count": 2}
    outbox.tally(key="w-1", **about)
    with django_assert_num_queries(4) as seen:
        outbox.tally(key="w-1", **about)
    assert not [q for q in seen if q["sql"].startswith(("INSERT", "UPDATE"))]


def test_text_that_no_database_takes_is_told_all_the_same():
    assert outbox.announce(key="k", kind="storm", subject="a\0b" + "x" * 500, body="\ud800\0", facts={"What": "\0"})


# --- from real evidence


def test_a_new_question_goes_to_whom_the_policy_names_after_one_round_and_once():
    scene.policy(notify=["llm", "sre"])
    case = scene.asked()
    scene.read(case.instance)
    row = Notice.objects.get()
    assert (row.kind, row.thread, row.receivers) == ("case_waiting", f"case:{case.pk}", ["llm", "sre"])
    assert row.subject.endswith(": drain and reboot?") and row.facts["Machine"] == case.instance.instance_id
    assert row.next_at - row.created_at >= timedelta(seconds=7.5)


def test_a_question_that_gets_worse_is_told_again_and_graver():
    scene.policy(mode_hardware="ask")
    case = scene.asked()
    assert Notice.objects.get().severity == "warning"
    gpu = make.gpus(case.instance, 8, bad={0: "lost"})[0]
    scene.shows(case.instance, "XID_79", gpu=gpu.uuid)
    scene.lost(case.instance, gpu.uuid)
    for _ in range(2):
        scene.read(case.instance)
    case.refresh_from_db()
    assert (case.state, case.verdict) == ("WAITING", "HARDWARE")
    assert told(f"case:{case.pk}") == [("case_waiting", "trigger"), ("case_waiting", "trigger")]
    worse = Notice.objects.latest("pk")
    assert worse.severity == "critical" and worse.subject.startswith("It got worse: XID_79")


def test_what_a_policy_decides_is_told_as_decided():
    scene.policy(notify=["llm"])
    scene.acting()
    on = scene.machine()
    gpu = make.gpus(on, 8, bad={0: "lost"})[0]
    scene.shows(on, "XID_79", gpu=gpu.uuid)
    scene.lost(on, gpu.uuid)
    case = scene.read(on)
    assert case.state == "DECIDED"
    row = Notice.objects.get()
    assert (row.kind, row.event, row.receivers) == ("case_decided", "acknowledge", ["llm"])
    assert "drain and replace, by policy" in row.subject


def test_an_applications_own_fault_is_told_its_owner_with_counts_and_no_operator(monkeypatch):
    monkeypatch.setattr(clock, "_virtual", clock.now().replace(minute=30))  # it is told hour by hour
    owner = make.workload("llm-train")
    for seconds in (30, 25):
        on = scene.machine()
        make.task(on, owner)
        for again in range(2):
            scene.shows(on, "XID_31", seconds=seconds * 20 * (again + 1))
        scene.read(on)
        scene.read(on)
    row = Notice.objects.get()
    assert (row.kind, row.receivers, row.workloads) == ("workload", [], ["llm-train"])
    assert len(row.tally) == 2 and row.count == sum(row.tally.values()) >= 2
    assert f"on 2 instances: {row.count} times" in row.subject and not Case.objects.exists()
