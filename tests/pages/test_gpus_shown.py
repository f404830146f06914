"""GPUs of an instance: unknown is never shown as good, nor an old reading as one of now."""

from __future__ import annotations

import re

import pytest

from tests import factories as make


def _row(home, log_in, status: str = "ok", **measured) -> str:
    """The text of the only GPU's row."""
    on = make.instance(home)
    (gpu,) = make.gpus(on, 1)
    gpu.status = status
    gpu.measurements = {name: value for name, value in {**gpu.measurements, **measured}.items() if value is not ...}
    gpu.measured_at = make.ago(7200) if status != "ok" else gpu.measured_at
    gpu.save()
    table = log_in("viewer").get(f"/instances/{on.pk}/").content.decode().split("GPUs by index")[1]
    rows = table.split("<tbody")[1].split("</tbody>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", rows.split(">", 1)[1]).split())


@pytest.mark.parametrize(
    "remap, shown",
    [({"pending": False, "failure": False}, "good"), ({"pending": None, "failure": None}, "?"), (..., "?"),
     ({"pending": False, "failure": True}, "remap failed"), ({"pending": True, "failure": False}, "remap pending")],
)  # fmt: skip
def test_rows_are_good_only_where_that_was_read(home, log_in, remap, shown):
    assert _row(home, log_in, row_remap=remap).endswith(f" 0 {shown}")


@pytest.mark.parametrize("ecc", [..., {}, {"volatile_uncorrected": None}])
def test_errors_that_were_not_read_are_not_zero(home, log_in, ecc):
    assert _row(home, log_in, ecc=ecc).endswith(" ? good")


def test_readings_of_a_gpu_that_is_lost_have_their_age(home, log_in):
    assert "last read 2" in _row(home, log_in, "lost")
    assert "last read" not in _row(home, log_in)


def test_the_picture_gives_the_temperature_of_now_alone(home, log_in):
    on = make.instance(home)
    good, lost = make.gpus(on, 2)
    lost.status, lost.measurements = "lost", good.measurements
    lost.save()
    drawn = log_in("viewer").get(f"/instances/{on.pk}/").content.decode().split('<figure class="machine">')[1]
    assert drawn.split("</figure>")[0].count("°C") == 1
