"""The one text of a value, on which it rests whether a report says something new."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType

from hypothesis import example, given
from hypothesis import strategies as st

from healthboard.fleet import heads


class Word(StrEnum):
    LOST = "lost"


class Number(IntEnum):
    THREE = 3


words = st.text(st.characters() | st.sampled_from("\x00\udfff\u2028é\\u"), max_size=6)
plain = st.none() | st.booleans() | st.integers() | st.floats() | words | st.sampled_from([Word.LOST, Number.THREE])
values = st.recursive(
    plain | st.datetimes(timezones=st.just(UTC)) | st.sets(st.integers() | words, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(words | st.integers(), inner, max_size=3)
        | st.dictionaries(words, inner, max_size=3).map(MappingProxyType)
    ),
    max_leaves=8,
)


@given(values)
@example({1: "a", "1": "b"})
@example({10: 0, 9: 0})
@example("\\u0041")
@example([float("nan"), float("inf"), 1e300 * 10])
@example({"at": datetime(2026, 1, 1, tzinfo=UTC), "set": {3, "x"}})
def test_what_needs_no_cleaning_has_the_same_text_as_what_was_cleaned(value):
    by_hand = json.dumps(heads.clean(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert heads.canonical(value) == by_hand
