"""Pages are sent compressed; those that may hold a secret are not."""

from __future__ import annotations

import gzip

import pytest

from tests import factories as make

TAKES = {"Accept-Encoding": "gzip, br"}


@pytest.mark.parametrize("address", ["/", "/fleet/", "/repairs/", "/audit/", "/system/", "/fleet/?format=csv"])
def test_a_page_is_compressed_for_whoever_takes_it(home, log_in, address):
    for _ in range(10):
        make.instance(home)
    client = log_in("viewer")
    plain = client.get(address)
    packed = client.get(address, headers=TAKES)
    assert "Content-Encoding" not in plain
    assert packed["Content-Encoding"] == "gzip" and "Accept-Encoding" in packed["Vary"]
    assert packed["Cache-Control"] == "no-store"
    text = gzip.decompress(packed.content)
    assert len(packed.content) < len(text)
    assert text[:15] == plain.content[:15]


def test_the_same_page_has_not_the_same_length_twice(home, log_in):
    client = log_in("viewer")
    lengths = {len(client.get("/fleet/", headers=TAKES).content) for _ in range(12)}
    assert len(lengths) > 3


@pytest.mark.parametrize("address", ["/accounts/login/", "/accounts/again/", "/admin/", "/admin/policies/policy/"])
def test_where_secrets_are_entered_or_shown_nothing_is_compressed(home, log_in, address):
    answer = log_in("admin").get(address, headers=TAKES, follow=True)
    assert answer.status_code == 200
    assert "Content-Encoding" not in answer
