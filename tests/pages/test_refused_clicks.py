"""A page that explains why a click was refused stays as it is, and leads to the page's own address."""

from __future__ import annotations

import re

from tests import factories as make


def _explained(answer, status: int, where: str) -> str:
    text = answer.content.decode()
    assert answer.status_code == status
    assert 'class="refusal"' in text
    live = re.search(r'<div id="live"[^>]*>', text)
    assert live and "hx-" not in live[0] and "data-live" not in live[0]
    assert f'name="next" value="{where}"' in text
    assert f'<a href="{where}">Show it anew</a>' in text and f'<a href="{where}">open it anew</a>' in text
    return text


def test_a_refused_click_stays_explained_and_leads_back_to_its_page(home, log_in):
    case, repair = make.case(make.instance(home)), make.repair(make.instance(home))
    client, where = log_in("operator"), f"/cases/{case.pk}/"
    stale = {"plan_version": 7, "evidence_hash": case.evidence_hash, "reason": "because"}
    _explained(client.post(f"{where}answer/dismiss/", stale), 409, where)
    _explained(client.post(f"{where}undo/"), 409, where)
    _explained(client.post(f"/repairs/{repair.pk}/answer/", {}), 422, f"/repairs/{repair.pk}/")
    _explained(client.post("/system/stop/", {"reason": ""}), 422, "/system/")
    for address in (where, f"/repairs/{repair.pk}/", "/system/"):
        assert f'<div id="live" hx-get="{address}" hx-trigger="every 5s' in client.get(address).content.decode()
