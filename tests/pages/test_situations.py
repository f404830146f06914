"""The situations in which nothing happens: each has its picture in the docs, and its page says what to do next."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from tests.browser import situations

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: situation -> what its page tells a person to do, or why there is nothing to do
NEXT = {
    "breaker": "An admin asks for its release once the cause is clear, and an approver confirms.",
    "room": "Make room, then approve again.",
    "tasks": "Standalone tasks are waited for, never stopped",
    "drain": "Wait longer",
    "dead": "Give these tasks up and go on",
    "stuck": "Count its tasks as gone",
    "condemned": "Stop and undo",
    "budget": "It goes on when one of them is back; two people may let one repair start over the budget.",
    "window": "It begins by itself then; an admin may change the policy.",
    "idle": "It goes on by itself once that has ended; a person may stop it.",
    "checkpoint": "Ask it again",
    "blind": "It goes on by itself once the source tells again.",
    "watching": "1 of 2 full rounds in a row",
    "orphan": "end it there, or give it to a group",
    "switch": "An admin releases it.",
    "restored": "Compare with AWS, then release.",
}


@pytest.fixture
def admin(client, db):
    from django.contrib.auth import get_user_model

    situations.fill()
    client.force_login(get_user_model().objects.get(username="admin"))
    return client


def test_each_situation_says_what_to_do_next_and_has_its_picture(admin):
    text = (DOCS / "when-nothing-happens.md").read_text()
    assert set(situations.SITUATIONS) == set(NEXT)
    for name, prepare in situations.SITUATIONS.items():
        situations.calm()
        answer = admin.get(prepare().partition("#")[0])
        assert answer.status_code == 200 and NEXT[name] in unescape(answer.content.decode()), name
        picture = f"images/waits-{name}.png"
        assert f"]({picture})" in text and (DOCS / picture).stat().st_size > 10_000, name
    assert text.count("**Next:**") == len(NEXT)
