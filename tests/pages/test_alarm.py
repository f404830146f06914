"""A broken invariant and the state of the audit record, as people see them."""

from __future__ import annotations

import json

from healthboard import clock
from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.cases import alarm
from healthboard.fleet.models import Pulse


def test_a_broken_invariant_is_on_every_page_until_an_operator_acknowledges_it(home, log_in):
    alarm.keep(["INV9: TerminateInstances on <i-1>, owner BATCH (repair 7)"])
    operator, viewer = log_in("operator"), log_in("viewer")
    for address in ("/", "/fleet/", "/repairs/", "/audit/", "/system/"):
        text = viewer.get(address).content.decode()
        assert "1 invariant is broken" in text and "on &lt;i-1&gt;, owner BATCH" in text, address
    assert viewer.post("/system/invariants/acknowledge/", {"reason": "seen"}).status_code == 403
    assert operator.post("/system/invariants/acknowledge/", {"reason": " "}).status_code == 422
    assert alarm.unseen()
    assert operator.post("/system/invariants/acknowledge/", {"reason": "being moved"}).status_code == 303
    assert operator.post("/system/invariants/acknowledge/", {"reason": "again"}).status_code == 409
    assert AuditRow.objects.filter(verb="invariants.acknowledged").count() == 1
    assert "invariant is broken" not in viewer.get("/fleet/").content.decode()
    text = viewer.get("/system/").content.decode()
    assert "owner BATCH" in text and "being moved" in text


def test_the_system_page_shows_the_head_and_what_is_wrong_with_it(home, log_in):
    viewer = log_in("viewer")
    assert "Not sealed yet" in viewer.get("/system/").content.decode()
    detail = {"position": 12, "hash": "ab" * 32, "log": "/x/audit-heads.log", "problem": "cannot be kept"}
    Pulse.objects.create(name="audit", at=clock.now(), ok=False, detail=detail)
    text = viewer.get("/system/").content.decode()
    assert "ab" * 32 in text and "cannot be kept" in text and "/x/audit-heads.log" in text


def test_the_record_is_exported_whole_with_its_place_in_the_chain(home, log_in):
    client = log_in("admin")
    client.post("/system/stop/", {"reason": "a look"})
    chain.seal()
    (row,) = [
        row
        for row in json.loads(client.get("/audit/?format=json").getvalue())["items"]
        if row["verb"] == "switch.stopped"
    ]
    end = chain.end()
    assert (row["position"], row["hash"]) == (end.position, end.hash)
    assert f",{end.position}," in client.get("/audit/?format=csv").getvalue().decode()
