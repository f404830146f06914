"""Text that turns or hides what stands beside it is shown as what it is, on every page that shows it."""

from __future__ import annotations

import gzip

import pytest
from django.contrib.auth.models import User

from healthboard.inert import shown
from healthboard.people import grants
from tests import factories as make

NASTY = "a\x1b[31mb\x07c\u202etxt.exe\u2066d\x7fe\x85f"
SEEN = "a␛[31mb␇c⟨202E⟩txt.exe⟨2066⟩d␡e⟨0085⟩f"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (NASTY, SEEN),
        ("plain é 日本 ünï · … — “quoted”\r\n\t\u2028", "plain é 日本 ünï · … — “quoted”\r\n\t\u2028"),
        ("right to left: שלום \u200f مرحبا \u200e", "right to left: שלום \u200f مرحبا \u200e"),
        ("<p>\x1b</p><textarea id=x>\x1b\u202e</textarea><p>\x1b</p>", "<p>␛</p><textarea id=x>\x1b\u202e</textarea><p>␛</p>"),
        ("<textarea>\x01", "<textarea>␁"),
    ],
)  # fmt: skip
def test_each_character_that_turns_or_hides_is_replaced_and_no_other(text, seen):
    assert shown(text.encode()).decode() == seen


@pytest.mark.parametrize("accepts", ["", "gzip"])
@pytest.mark.parametrize("address", ["/admin/people/grant/", "/fleet/"])
def test_a_page_that_got_longer_is_sent_to_its_end(log_in, accepts, address):
    """Read as a browser does it: as many bytes as the header says."""
    client = log_in("admin", "ada")
    grants.sync(User.objects.get(username="ada"))  # lets admins into the admin's pages
    answer = client.get(address, {"q": "\u202e" * 100}, headers={"Accept-Encoding": accepts})
    assert answer.status_code == 200
    sent = answer.content[: int(answer["Content-Length"])]
    page = gzip.decompress(sent) if answer.get("Content-Encoding") == "gzip" else sent
    assert "⟨202E⟩".encode() in page, "a page that nothing was replaced in proves nothing"
    assert page.rstrip().endswith(b"</html>") and len(sent) == len(answer.content)


def test_pages_show_them_and_files_keep_them(home, log_in):
    on = make.instance(home, verdict="AMBIGUOUS", verdict_why=NASTY, owner_evidence=[NASTY], tags={"Name": NASTY})
    make.event(on, text=NASTY)
    make.task(on, make.workload(NASTY), job=NASTY)
    case = make.case(on, title=NASTY, why=NASTY, plan={**make.plan(), "sentence": NASTY, "warnings": [NASTY]})
    client = log_in("admin")
    addresses = (
        "/",
        "/cases/",
        f"/cases/{case.pk}/",
        f"/instances/{on.pk}/",
        "/jobs/?tab=risk",
        "/fleet/map/?group=job",
    )
    for address in (*addresses, "/handover/"):
        text = client.get(address).content.decode()
        assert not any(strange in text for strange in "\x1b\x07\u202e\u2066\x7f\x85"), address
        assert "⟨202E⟩" in text or address == "/handover/", address  # which leaves them out: it is pasted elsewhere
    assert client.get("/cases/?format=json").json()["items"][0]["title"] == NASTY
