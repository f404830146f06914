"""Drawn changes of every kind: each is found, by the chain alone or by the head that was kept outside.

TAMPER_SEEDS=1000 for the long run."""

from __future__ import annotations

import os

import pytest
from django.db import transaction

from healthboard.audit import chain
from tests.audit import tamper

SEEDS = int(os.environ.get("TAMPER_SEEDS", "63"))


class Undone(Exception):
    """Takes the change back by its savepoint."""


def test_every_drawn_change_is_found(rows):
    head = chain.end().hash
    missed = []
    for seed in range(SEEDS):
        with pytest.raises(Undone), transaction.atomic():
            kind = tamper.tamper(seed)
            seen = chain.verify(head)
            if not seen.broken and seen.found:
                missed.append((seed, kind))
            raise Undone
    assert missed == [] and chain.verify(head).broken == [] and chain.verify(head).found
