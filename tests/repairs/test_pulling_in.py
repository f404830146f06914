"""A clock that was set back frees leases; one that is some milliseconds behind another process's does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.repairs import lifecycle
from tests import factories as make


@pytest.mark.django_db
@pytest.mark.parametrize("ahead, freed", [(0.02, 0), (3600, 1)])
def test_a_lease_that_another_process_has_just_taken_is_left_to_it(ahead, freed):
    now = clock.now()
    repair = make.repair(make.instance(), next_at=now)
    with clock.virtual(now + timedelta(seconds=ahead)):
        assert lifecycle.claim(repair.pk, "worker") is not None
    with clock.virtual(now):
        assert lifecycle.pull_in() == freed
