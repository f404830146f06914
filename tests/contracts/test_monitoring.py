"""The alerts and the dashboard that are shipped name metrics, labels and values that /metrics really tells."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from healthboard import clock, queues
from healthboard.audit import chain
from healthboard.cases import alarm
from healthboard.fleet.models import Pulse
from healthboard.notices.models import Notice, Target
from healthboard.people import refused
from tests import factories as make
from workers import pulse, rounds
from workers.verify import sealing

DOCS = Path(__file__).parents[2] / "docs/monitoring"
USED = re.compile(r"\b(healthboard_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|=)\s*"([^"]*)"')


@pytest.fixture
def told(db, client, monkeypatch, tmp_path) -> dict[str, list[dict[str, str]]]:
    """Metric -> labels of its series, of a world in which every part has something to tell."""
    monkeypatch.setenv("HEALTHBOARD_METRICS_TOKEN", "s3cret")
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))
    on = make.instance()
    make.occupancy(make.repair(on))
    make.repair(make.instance(), state="SUCCEEDED", closed_at=clock.now())
    make.source("events", dropped={"not JSON": 2})
    make.switch()
    make.audit("test.done", "x", by=make.actor(make.person("viewer")))
    Target.objects.create(name="chat", kind="slack", address="http://127.0.0.1:1/")
    for name in ("decide", "repair", "verify", "notify", "breadth", "canary"):
        pulse.beat(name)
    alarm.keep(["ORPHAN: i-1 was launched by repair 1 and belongs to none"])
    sealing.come_round()
    book = rounds.Book()
    book.add("workers.repair.sweep", 0.2, "OperationalError")
    book.write()
    refused.count("unknown token")
    refused.flush(force=True)
    monkeypatch.setattr(queues, "lengths", lambda: {"repair": 1})
    return _numbers(client)


def _numbers(client) -> dict[str, list[dict[str, str]]]:
    answer = client.get("/metrics", HTTP_AUTHORIZATION="Bearer s3cret")
    assert answer.status_code == 200
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append({**sample.labels, "": str(sample.value)})
    return found


def _expressions() -> dict[str, str]:
    """Name -> expression: of each alert, and of each query of the dashboard."""
    groups = yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"]
    found = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    for panel in json.loads((DOCS / "grafana.json").read_text())["panels"]:
        for query in panel.get("targets", ()):
            found[f"{panel['title']} {query['refId']}"] = query["expr"]
    return found


def _wrong(expression: str, told: dict[str, list[dict[str, str]]]) -> list[str]:
    wrong = []
    for name, matchers in USED.findall(expression):
        if name not in told:
            wrong.append(f"{name} is not exported")
            continue
        for label, how, value in MATCHER.findall(matchers or ""):
            for one in value.split("|") if how == "=~" else [value]:
                if not any(series.get(label) == one for series in told[name]):
                    wrong.append(f"{name} has no series with {label}={one}")
    return wrong


def test_everything_that_alerts_and_dashboard_name_is_exported(told):
    expressions = _expressions()
    assert len(expressions) > 30
    assert {name: bad for name, expression in expressions.items() if (bad := _wrong(expression, told))} == {}


def test_the_table_of_metrics_is_complete(told):
    written = set(re.findall(r"`(healthboard_\w+)", (DOCS / "README.md").read_text()))
    assert written == set(told)


def test_a_misspelt_metric_or_label_would_be_seen(told):
    assert _wrong('healthboard_pulse_age{name="decide"} > 1', told) == ["healthboard_pulse_age is not exported"]
    assert _wrong('healthboard_pulse_ok{name="decides"}', told) == [
        "healthboard_pulse_ok has no series with name=decides"
    ]


def test_the_outbox_is_late_when_nobody_sends_and_an_unwritten_head_ages(told, client):
    assert float(_numbers(client)["healthboard_outbox_overdue_seconds"][0][""]) < 60
    Notice.objects.update(next_at=make.ago(900))
    assert 890 < float(_numbers(client)["healthboard_outbox_overdue_seconds"][0][""]) < 1000
    row = Pulse.objects.get(name="audit")
    Pulse.objects.filter(pk=row.pk).update(detail={**row.detail, "logged_at": make.ago(9000).isoformat()})
    assert 8990 < float(_numbers(client)["healthboard_audit_head_written_age_seconds"][0][""]) < 9100
    assert float(_numbers(client)["healthboard_orphans"][0][""]) == 1
    assert chain.end() is not None


def test_promtool_finds_the_alerts_right():
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("WANT_PROMTOOL"), "promtool is missing: apt-get install prometheus"
        pytest.skip("no promtool here: apt-get install prometheus")
    for verb in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run([promtool, *verb], cwd=DOCS, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_it_is_and_what_to_do_and_is_tried():
    tried = (DOCS / "alerts_test.yaml").read_text()
    for group in yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["alert"] in tried, rule["alert"]
