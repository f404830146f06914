"""The explain page: the command's reading, for whoever may look, with limits and without a trace."""

from __future__ import annotations

import json
from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from healthboard.approve import explain as view
from healthboard.diagnosis.explain import explain
from tests import factories as make

LOG = "[  12.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=train, GPU has fallen off the bus.\n"


@pytest.fixture
def viewer(home, log_in):
    return log_in("viewer")


def test_the_page_shows_what_the_command_prints(viewer):
    answer = viewer.post("/explain/", {"text": LOG, "format": "kernel-log", "instance": "i-0abc"})
    assert json.loads(answer.context["reading"]["json"]) == explain(LOG, "kernel-log", instance="i-0abc")
    text = unescape(answer.content.decode())
    for said in ("Hardware", "Drain and replace", "XID_79", "0000:3b:00", "NVIDIA", "Amazon EKS", "gpud", LOG.strip()):
        assert said in text, said


def test_a_file_counts_where_both_are_given_and_need_not_be_utf8(viewer):
    file = SimpleUploadedFile("dmesg.txt", LOG.encode() + b"\xff\xfe\n")
    answer = viewer.post("/explain/", {"text": "something else", "file": file})
    assert answer.context["reading"]["codes"] == ["XID_79"]


def test_hostile_text_is_escaped_wherever_it_is_shown(viewer):
    evil = '</textarea></pre><script>alert(1)</script><img src=x onerror="x">{{ 7*7 }}'
    text = viewer.post("/explain/", {"text": LOG + f"{LOG.strip()} {evil}\n{evil}\n"}).content.decode()
    assert "XID_79" in text and "&lt;script&gt;" in text
    assert "<script>alert" not in text and "<img src=x" not in text


def test_to_htmx_the_reading_alone_is_given_and_what_went_wrong_too(viewer):
    headers = {"HX-Request": "true"}
    good = viewer.post("/explain/", {"text": LOG}, headers=headers)
    bad = viewer.post("/explain/", {"text": "nothing that anybody knows"}, headers=headers)
    for answer in (good, bad):
        assert answer.status_code == 200 and answer.content.decode().strip().startswith('<section id="reading"')
    assert "not recognised" in bad.content.decode()


@pytest.mark.parametrize(
    "form, said",
    [
        ({"text": " "}, "Paste a text"),
        ({"text": "nothing that anybody knows"}, "not recognised"),
        ({"text": LOG, "format": "--jsonl"}, "no such format"),
        ({"text": LOG, "instance": "-x; rm"}, "letters, digits"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(viewer, form, said):
    answer = viewer.post("/explain/", form)
    assert answer.status_code == 422 and said in unescape(answer.content.decode())


def test_too_much_is_refused_with_the_limit(viewer):
    for form in (
        {"text": "x" * 1_000_001},
        {"file": SimpleUploadedFile("a", b"x" * 1_000_001)},
        {"text": "x" * 3_000_000},
    ):
        answer = viewer.post("/explain/", form)
        assert (answer.status_code, b"at most 1 MB" in answer.content) == (413, True)


def test_a_text_that_takes_too_long_or_too_much_does_not_hold_the_pages(viewer, monkeypatch):
    monkeypatch.setattr(view, "SECONDS", 0.01)
    assert b"takes longer than" in viewer.post("/explain/", {"text": LOG}).content
    monkeypatch.setattr(view, "SECONDS", 20)
    monkeypatch.setattr(view, "_CHILD", "raise MemoryError")
    assert b"more memory" in viewer.post("/explain/", {"text": LOG}).content
    for _ in range(view.AT_ONCE):
        assert view._slots.acquire(blocking=False)  # both were given back
    try:
        monkeypatch.setattr(view._slots, "acquire", lambda timeout: False)
        assert viewer.post("/explain/", {"text": LOG}).status_code == 503
    finally:
        monkeypatch.undo()
        for _ in range(view.AT_ONCE):
            view._slots.release()


def test_only_people_with_a_role_and_a_token_of_the_form_get_a_reading_and_nothing_is_kept(home, log_in, viewer):
    assert Client().post("/explain/", {"text": LOG}).status_code == 302
    assert log_in("").post("/explain/", {"text": LOG}).status_code == 403
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(make.person("viewer"))
    assert strict.post("/explain/", {"text": LOG}).status_code == 403
    token = strict.get("/explain/").context["csrf_token"]
    assert strict.post("/explain/", {"text": LOG, "csrfmiddlewaretoken": str(token)}).status_code == 200
    with CaptureQueriesContext(connection) as seen:
        answer = viewer.post("/explain/", {"text": LOG})
    assert answer["Cache-Control"] == "no-store"
    assert [q["sql"][:60] for q in seen if not q["sql"].lstrip("(").startswith("SELECT")] == []
