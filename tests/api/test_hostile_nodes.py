"""A small part of the safety rows T16 and T17; `make safety` sends 100,000 forged requests and a million mangled inputs."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.api import node_intake
from healthboard.fleet import evidence
from healthboard.fleet.models import Gpu, Instance
from healthboard.people import refused, tokens
from healthboard.people.actors import system
from tests import factories
from tests.api.node_helpers import UUIDS, gpu, post, report, xid
from tests.repairs.conftest import drives  # noqa: F401
from tests.safety.rows import forged, fuzz

pytestmark = pytest.mark.django_db


@pytest.fixture
def drive(drives):  # noqa: F811
    refused._waiting.clear()
    return drives("solo=template:4")


def test_forged_and_replayed_reports_concern_their_sender_only_and_are_counted(drive):
    attacker, broken = forged.attack(drive, random.Random(7), 600)
    assert broken == [] and sum(attacker.asked.values()) == 600


def test_mangled_inputs_are_read_or_refused_in_words(drive):
    assert fuzz.throw(random.Random(7), 3000) == ([], 3000)


@pytest.fixture
def two(monkeypatch):
    """A node that lost a GPU, and another one that names all the first one's GPUs as its own."""
    monkeypatch.setattr(node_intake, "_measure", node_intake.Every(0))
    day = clock.now() - timedelta(days=1)
    rows = [factories.instance(gpus_expected=8, launched_at=day, boot_id="", booted_at=None) for _ in range(2)]
    return rows, [tokens.issue_node(row, actor=system("test")) for row in rows]


LOST = [gpu(n) if n != 3 else gpu(3, status="lost", code=15) for n in range(8)]


def _faults(row):
    row.refresh_from_db()
    events, readings, _ = evidence.load(row, now=clock.now())
    return [(e.code, e.gpu) for e in events], [r.gpu for r in readings if r.value == "lost"]


def _holder():
    return Gpu.objects.get(uuid=UUIDS[3]).instance


def test_a_silent_node_keeps_its_gpus_and_their_faults(client, two):
    (victim, _), (his, theirs) = two
    post(client, report(1, gpus=LOST, kernel=[xid(5)]), his)
    Instance.objects.filter(pk=victim.pk).update(node_seen_at=clock.now() - timedelta(hours=1))
    assert post(client, report(1), theirs).status_code == 200
    assert _holder() == victim and Gpu.objects.filter(instance=victim).count() == 8
    assert _faults(victim) == ([("XID_79", UUIDS[3])], [UUIDS[3]])


@pytest.mark.parametrize(
    "left",
    [lambda now: {"state": "stopped"}, lambda now: {"gone_at": now}, lambda now: {"launched_at": now}],
    ids=["stopped", "gone", "started again since"],
)
def test_a_gpu_moves_once_ec2_says_that_its_machine_left_the_host(client, two, left):
    (first, second), (old, new) = two
    post(client, report(1), old)
    Instance.objects.filter(pk=first.pk).update(**left(clock.now() + timedelta(minutes=5)))
    post(client, report(1), new)
    assert _holder() == second


def test_a_gpu_moves_once_its_machine_shows_all_it_should_have_without_it(client, two):
    (first, second), (old, new) = two
    post(client, report(1, gpus=LOST, kernel=[xid(5)]), old)
    others = [gpu(n, uuid=UUIDS[n].replace("GPU-1", "GPU-9")) for n in range(8)]
    post(client, report(2, gpus=others[:7], gpu_count=7), old)
    post(client, report(1), new)
    assert _holder() == first, "seven of eight say nothing of the eighth"
    post(client, report(3, gpus=others), old)
    post(client, report(2), new)
    assert _holder() == second
    assert _faults(first) == ([], []), "hardware that was exchanged speaks of another machine"


@pytest.mark.parametrize("held", ["by another machine", "by nobody"])
def test_what_a_node_itself_says_of_a_gpu_is_read_there_whoever_holds_it(client, two, held):
    (first, second), (old, new) = two
    post(client, report(1), old)
    post(client, report(1, gpus=LOST, kernel=[xid(5)]), new)
    if held == "by nobody":
        Gpu.objects.filter(uuid=UUIDS[3]).update(instance=None)
    assert _holder() == (None if held == "by nobody" else first)
    assert _faults(second) == ([("XID_79", UUIDS[3])], [UUIDS[3]])
    Instance.objects.filter(pk=second.pk).update(launched_at=clock.now() + timedelta(minutes=5))
    assert _faults(second) == ([], []), "told before it was started on another host"
