"""A small part of the safety rows T16 and T17; `make safety` sends 100,000 forged requests and a million mangled inputs."""

from __future__ import annotations

import random

import pytest

from healthboard.people import refused
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
