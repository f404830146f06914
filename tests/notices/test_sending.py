"""From the outbox to the receivers: each once, tried again, in order, by one worker at a time, never for long."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta

import pytest
from django.db import connection

from healthboard import clock
from healthboard.notices import outbox
from healthboard.notices.models import Delivery, Notice, QuietHours
from healthboard.notices.senders import Failed
from tests import factories as make
from tests import standing
from tests.notices.test_senders import say
from workers.notify import send


def states(**filters) -> list[str]:
    return list(Delivery.objects.filter(**filters).order_by("pk").values_list("state", flat=True))


def later(**span) -> clock.virtual:
    return clock.virtual(clock.now() + timedelta(**span))


def test_each_notice_reaches_each_target_once(target, receiver):
    target("slack")
    target("webhook")
    say()
    assert not outbox.announce(key="k1", kind="case_waiting", subject="again")
    assert (send.sweep(), send.sweep(), len(receiver.got)) == (2, 0, 2)
    assert states() == ["SENT", "SENT"]


def test_a_failure_is_tried_again_with_back_off_and_given_up_in_the_end(target, receiver, caplog):
    target("webhook")
    receiver.answer = (503, {}, b"SECRETPART is down: ssssssssssssssssssssssssssssssss " + receiver.url.encode())
    say()
    waits, now = [], clock.now()
    for _ in range(send.TRIES):
        with clock.virtual(now):
            send.sweep()
            row = Delivery.objects.get()
            waits.append((row.next_at - now).total_seconds())
            now = row.next_at
    assert waits[:4] == [30, 60, 120, 240] and max(waits[:-1]) == 3600
    assert (row.state, row.attempts, len(receiver.got)) == ("FAILED", send.TRIES, send.TRIES)
    assert "It answers 503 (Service Unavailable): the receiver has trouble" in row.error
    for text in (row.error, caplog.text):  # what the other side repeats is kept nowhere
        assert "s" * 32 not in text and receiver.url not in text


@pytest.mark.parametrize("status", [404, 599])
def test_an_answer_that_repeats_the_path_is_not_kept(target, receiver, caplog, status):
    target("webhook")
    receiver.answer = (status, {}, b"<pre>Cannot POST /hook/T0/SECRETPART</pre>")
    say()
    send.sweep()
    error = Delivery.objects.get().error
    assert f"It answers {status}" in error and "SECRETPART" not in error + caplog.text


def test_a_secret_across_the_cut_leaves_no_beginning_and_a_path_is_hidden_alone(target):
    from healthboard.notices.senders.failed import MOST, tidy

    row = target("webhook", secret="S3CR3T" * 6, address="https://hooks.example.com/in/TOK%20EN?key=QUERY")
    for said in ("S3CR3T" * 6, "/in/TOK%20EN?key=QUERY", "/in/TOK EN", "key=QUERY"):
        text = tidy("x" * (MOST - 5) + said + "y" * 9, row)
        assert len(text) <= MOST and not any(part in text for part in ("S3C", "TO", "QUE", "/in")), said
    plain = target("slack", address="https://hooks.example.com/")
    assert tidy("TCP/IP to hooks.example.com/ failed?", plain) == "TCP/IP to hooks.example.com/ failed?"


@pytest.mark.parametrize(
    "status, for_good", [(302, True), (400, True), (410, True), (404, False), (401, False), (429, False)]
)
def test_what_can_never_succeed_is_not_tried_again(target, receiver, status, for_good):
    target("webhook")
    receiver.answer = (status, {"Retry-After": "400"}, b"no")
    say()
    send.sweep()
    row = Delivery.objects.get()
    assert row.state == ("FAILED" if for_good else "PENDING") and row.error
    if status == 429:
        assert row.next_at - clock.now() > timedelta(seconds=390)


def test_a_matter_is_told_in_order_and_a_failing_target_waits_as_a_whole(target, receiver):
    target("webhook")
    receiver.answer = (500, {}, b"")
    say("case_waiting")
    outbox.follow("case:12", key="k2", kind="case_decided", subject="decided")
    say("breaker", key="k3", thread="breaker:1")
    send.sweep()
    assert len(receiver.got) == 1  # the rest would only cost its time-out again
    receiver.answer = (200, {}, b"")
    assert send.sweep() == 0
    with later(seconds=31):
        assert send.sweep() == 3
    told = [json.loads(body) for _, body in receiver.got[1:]]
    assert [m["kind"] for m in told if m["thread"] == "case:12"] == ["case_waiting", "case_decided"]


def test_an_end_is_not_told_before_its_beginning_arrived(target, receiver):
    target("webhook")
    say("case_waiting")
    outbox.follow("case:12", key="k2", kind="case_closed", subject="closed")
    send.make_deliveries()
    Delivery.objects.filter(notice__kind="case_waiting").update(next_at=make.ago(-600))
    assert send.sweep() == 0 and receiver.got == []


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_send_it_once(target, receiver):
    if connection.vendor == "sqlite":
        pytest.skip("one worker on SQLite")
    target("webhook")
    say()
    send.make_deliveries()
    hold, counts = threading.Barrier(2), []
    receiver.before_answer = lambda: time.sleep(0.3)  # the other one comes meanwhile

    def work() -> None:
        hold.wait()
        counts.append(send.sweep())
        connection.close()

    both = [threading.Thread(target=work) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(counts) == [0, 1] and len(receiver.got) == 1


def test_a_worker_that_died_while_sending_is_followed_by_another_after_its_lease(target, receiver):
    target("webhook")
    say()
    send.make_deliveries()
    died = send._claim()
    assert send.sweep() == 0 and receiver.got == []
    with later(seconds=send.LEASE.total_seconds() + 1):
        assert send.sweep() == 1
    assert not send._write(died, state="FAILED")  # it lives after all: its claim is lost
    assert states() == ["SENT"]


def test_one_that_stands_still_right_after_its_claim_leaves_the_message_to_the_next(target, receiver):
    target("webhook")
    say()
    send.make_deliveries()
    taken_over = []

    def others():
        Delivery.objects.update(lease_until=make.ago(1))
        taken_over.append(send._claim())

    with standing.once_written(others):
        assert send._claim() is None
    assert taken_over[0].fence == 2


def test_a_clock_that_was_set_back_holds_nothing_up(target, receiver):
    target()
    say()
    with later(hours=5):
        send.make_deliveries()
        assert send._claim()
    Delivery.objects.update(next_at=make.ago(1))
    assert send.sweep() == 1


def test_a_try_never_outlasts_its_lease():
    from healthboard.notices import outgoing

    assert send.LEASE.total_seconds() > outgoing.WHOLE_S + 60  # what is left is for a slow look-up of the name


def test_a_round_ends_in_bounded_time_whatever_the_receivers_do(target, receiver, monkeypatch):
    monkeypatch.setattr(send, "ROUND_S", 0.2)
    receiver.before_answer = lambda: time.sleep(0.15)
    target("webhook")
    for n in range(20):
        say(key=f"k{n}", thread=f"case:{n}")
    began = time.monotonic()
    assert 0 < send.sweep() < 10
    assert time.monotonic() - began < 2


def test_a_notice_that_cannot_be_routed_stops_no_other(target, receiver, caplog):
    target("webhook")
    say(key="bad")
    say(key="good", thread="case:13")
    Notice.objects.filter(key="bad").update(receivers=7)
    assert send.sweep() == 1
    assert [row.notice.key for row in Delivery.objects.all()] == ["good"]
    bad = Notice.objects.get(key="bad")
    assert bad.routed_at is None and bad.next_at > clock.now() and "routing.py:" in caplog.text
    Notice.objects.filter(key="bad").update(receivers=["operators"])
    with later(seconds=31):
        assert send.sweep() == 1  # nothing is lost


def test_a_person_whose_hours_cannot_be_read_stops_no_other(target, receiver, caplog):
    sleeper(target)
    target("webhook")
    say()
    send.make_deliveries()
    QuietHours.objects.update(zone="No/Where")
    Delivery.objects.filter(target__kind="email").update(next_at=make.ago(60))
    assert send.sweep() == 1
    row = Delivery.objects.get(target__kind="email")
    assert row.state == "PENDING" and row.error.startswith("ZoneInfoNotFoundError") and "quiet.py:" in caplog.text


def test_an_address_that_no_row_holds_keeps_the_notice_from_nobody(target):
    target("email", address="a" * 250 + "@example.com\nteam@example.com")
    say()
    send.make_deliveries()
    assert [row.to for row in Delivery.objects.all()] == ["team@example.com"]


def test_what_is_in_the_outbox_is_sent_though_the_watch_breaks(target, receiver, monkeypatch):
    from workers.notify import tasks

    def breaks():
        raise ValueError("no")

    monkeypatch.setattr(tasks.watch, "look", breaks)
    target()
    say()
    tasks.sweep()
    assert states() == ["SENT"]


def test_a_sender_that_breaks_keeps_its_secret_and_stops_nobody_else(target, receiver, monkeypatch, caplog):
    from healthboard.notices import senders

    def breaks(delivery):
        raise KeyError(delivery.target.secret)

    monkeypatch.setitem(senders._BY_KIND, "webhook", breaks)
    target("webhook")
    target("slack")
    say()
    assert send.sweep() == 1
    row = Delivery.objects.get(target__kind="webhook")
    assert row.state == "PENDING" and row.error.startswith("KeyError") and "sss" not in row.error + caplog.text
    assert "KeyError at " in caplog.text and "test_sending.py:" in caplog.text
    with pytest.raises(Failed):
        senders.send(row)


def test_what_was_told_long_ago_is_forgotten_and_what_is_on_its_way_is_not(target, receiver):
    target()
    say(key="old")
    say(key="old but on its way", thread="case:2")
    send.sweep()
    say(key="new", thread="case:3")
    Notice.objects.exclude(key="new").update(created_at=make.ago(91 * 86400))
    Delivery.objects.filter(notice__key="old but on its way").update(state="PENDING", next_at=make.ago(-60))
    send.sweep()
    assert set(Notice.objects.values_list("key", flat=True)) == {"old but on its way", "new"}


# --- whom it concerns


def test_a_target_is_told_what_was_chosen_for_it(target, receiver):
    target(name="all")
    target(name="grave", minimum="critical")
    target(name="breakers", kinds=["breaker"])
    target(name="llm", receivers=["llm"])
    target(name="train", pools=["train", "solo*"])
    target(name="off", enabled=False)
    target(name="owner", workloads=["llm-*"])
    say(key="1", severity="critical", pool="train")
    say(key="2", thread="case:2", to=["llm"], pool="solo-1")
    say("breaker", key="3", thread="breaker:3")
    say(key="4", thread="case:4", pool="infer", workloads=["llm-train"])
    say("workload", key="5", thread="", to=[], workloads=["llm-train"])
    say("workload", key="6", thread="", to=["train"], workloads=["chat"], pool="train")
    send.make_deliveries()
    got = {}
    for key, name in Delivery.objects.values_list("notice__key", "target__name"):
        got.setdefault(key, set()).add(name)
    assert got == {
        "1": {"all", "grave", "train"},
        "2": {"llm"},
        "3": {"all", "grave", "breakers"},
        "4": {"all", "owner"},
        "5": {"owner"},
        "6": {"train"},
    }


def test_who_was_told_that_it_began_is_told_how_it_went_on(target):
    target(name="grave", minimum="critical")
    say(severity="critical")
    send.make_deliveries()
    outbox.follow("case:12", key="k2", kind="case_decided", subject="decided")
    send.make_deliveries()
    assert Delivery.objects.filter(target__name="grave").count() == 2


def test_who_chose_only_the_beginning_is_told_how_it_went_on_too(target):
    target(name="asked", kinds=["case_waiting"])
    target(name="storms", kinds=["storm"])
    say()
    send.make_deliveries()
    outbox.follow("case:12", key="k2", kind="case_closed", subject="closed")
    send.make_deliveries()
    assert list(Delivery.objects.values_list("target__name", flat=True)) == ["asked", "asked"]


def test_of_what_nobody_was_told_or_is_over_nothing_is_told(db):
    assert not outbox.follow("case:1", key="a", kind="case_closed", subject="x")
    say()
    assert outbox.follow("case:12", key="b", kind="case_closed", subject="x")
    assert not outbox.follow("case:12", key="c", kind="case_closed", subject="x")
    assert Notice.objects.count() == 2


def test_nobody_is_mailed_what_they_may_not_see(target):
    mine, other, gone = make.person("viewer", pool="train"), make.person("viewer", pool="infer"), make.person("")
    target("email", address="").people.add(mine, other, gone)
    say(account="111122223333", region="us-east-1", pool="train")
    send.make_deliveries()
    assert [row.person for row in Delivery.objects.all()] == [mine]


def test_a_question_that_was_taken_up_within_its_first_round_wakes_nobody(target):
    target()
    for number, went_on in enumerate(("case_decided", "case_held", "case_closed", "")):
        say(key=f"w{number}", thread=f"case:{number}", after=timedelta(seconds=9))
        if went_on:
            outbox.follow(f"case:{number}", key=f"f{number}", kind=went_on, subject="went on")
    send.make_deliveries()
    with later(seconds=10):
        send.make_deliveries()
    told = Delivery.objects.order_by("pk").values_list("notice__key", flat=True)
    assert list(told) == ["f0", "f2", "w3"] and not Notice.objects.filter(routed_at=None).exists()
    say("case_waiting", key="told", thread="case:9")
    send.make_deliveries()
    outbox.follow("case:9", key="held", kind="case_held", subject="held")
    send.make_deliveries()
    assert Delivery.objects.filter(notice__key="held").exists()  # who was woken is told that it is held


def test_what_is_on_its_way_to_one_who_was_switched_off_is_not_sent(target, receiver, settings):
    settings.EMAIL_HOST = "127.0.0.1"
    hook, person = target(), make.person("viewer")
    target("email", address="").people.add(person)
    say()
    send.make_deliveries()
    type(hook).objects.filter(pk=hook.pk).update(enabled=False)
    type(person).objects.filter(pk=person.pk).update(is_active=False)
    assert send.sweep() == 0 and receiver.got == []
    assert states() == ["SKIPPED", "SKIPPED"]
    assert "switched off" in Delivery.objects.first().error


def test_what_waited_is_not_mailed_to_one_who_may_not_see_it_any_more(target, settings):
    settings.EMAIL_HOST = "127.0.0.1"
    person = sleeper(target)
    say(account="111122223333", region="us-east-1", pool="train")
    send.sweep()
    person.grants.update(pool="infer")
    with later(minutes=61):
        send.sweep()
    row = Delivery.objects.get()
    assert (row.state, row.error) == ("SKIPPED", f"{person} may not see it any more")


# --- quiet hours


def sleeper(target, **fields):
    person = make.person("operator")
    at = clock.now()
    hours = {"starts": (at - timedelta(hours=1)).time(), "ends": (at + timedelta(hours=1)).time(), "zone": "UTC"}
    QuietHours.objects.create(user=person, **{**hours, **fields})
    target("email", address="").people.add(person)
    return person


def test_in_quiet_hours_mail_waits_and_is_dropped_if_it_is_over_by_then(target):
    sleeper(target)
    say()
    say(key="k2", thread="case:13")
    outbox.follow("case:13", key="k3", kind="case_closed", subject="closed")
    assert send.sweep() == 0
    assert set(states()) == {"PENDING"} and Delivery.objects.filter(put_off=True, attempts=0).count() == 3
    with later(minutes=61):
        send.sweep()
    assert states(notice__key="k2") == ["SKIPPED"]
    tried = Delivery.objects.get(notice__key="k1")  # no mail server here: it was tried, and that is what counts
    assert "No mail server" in tried.error


def test_what_is_critical_goes_through_quiet_hours_unless_its_person_says_no(target):
    sleeper(target)
    say(severity="critical")
    send.make_deliveries()
    assert not Delivery.objects.get().put_off
    QuietHours.objects.update(critical_through=False)
    say(key="k2", severity="critical")
    send.make_deliveries()
    assert Delivery.objects.get(notice__key="k2").put_off


def test_a_try_again_does_not_fall_into_quiet_hours(target, settings):
    person = sleeper(
        target, starts=(clock.now() + timedelta(hours=1)).time(), ends=(clock.now() + timedelta(hours=3)).time()
    )
    say()
    send.make_deliveries()
    Delivery.objects.update(next_at=clock.now() + timedelta(hours=2))
    with later(hours=2, minutes=1):
        send.sweep()
    row = Delivery.objects.get(person=person)
    assert (row.state, row.put_off, row.attempts, row.error) == ("PENDING", True, 0, "")
