from __future__ import annotations

import re

from tests import factories as make


def test_it_shows_counts_and_the_oldest_waiting_case_and_nothing_to_press(home, log_in):
    old = make.case(make.instance(home), opened_at=make.ago(7200), title="The oldest")
    for _ in range(2):
        make.case(make.instance(home))
    make.case(make.instance(home), state="DECIDED")
    make.repair(make.instance(home), state="ASKING")
    client = log_in("viewer")
    text = client.get("/wall/").content.decode()
    numbers = dict(re.findall(r"<dt>([^<]+)</dt><dd>(\d+)</dd>", text))
    assert numbers == {
        "wait for a person": "4", "repairs ask": "1", "under repair": "1", "failed verification": "0",
        "held by a breaker": "0", "repaired today": "0",
    }  # fmt: skip
    assert "The oldest" in text and old.instance.instance_id in text
    assert not re.search(r"<(form|button|input|select|textarea|a)\b", text)


def test_it_is_renewed_by_its_fragment_alone(home, log_in):
    make.case(make.instance(home))
    client = log_in("operator")
    shown = re.search(r'"X-Shown": "(\w+)"', client.get("/wall/").content.decode())[1]
    headers = {"HX-Request": "true", "X-Shown": shown}
    assert client.get("/wall/", headers=headers).status_code == 204
    make.switch(stopped=True, reason="fire")
    answer = client.get("/wall/", headers=headers).content.decode()
    assert "Stopped" in answer and 'id="frame"' not in answer and "<button" not in answer and "<html" not in answer


def test_a_calm_wall_says_so(home, log_in):
    assert "Nothing waits for a person" in log_in("viewer").get("/wall/").content.decode()


def test_it_counts_the_places_of_the_person(home, log_in):
    make.case(make.instance(make.pool("infer")))
    text = log_in("viewer", pool="train").get("/wall/").content.decode()
    assert "<dt>wait for a person</dt><dd>0</dd>" in text and "Nothing waits" in text
