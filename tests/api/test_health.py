import pytest
from prometheus_client.parser import text_string_to_metric_families

from healthboard import clock, ready
from healthboard.cases import lifecycle as cases
from healthboard.fleet import itself
from healthboard.fleet.models import Installation, Pulse
from healthboard.people.actors import system
from healthboard.repairs import lifecycle as repairs
from tests import factories


def test_the_process_lives_without_a_database(client, django_db_blocker):
    answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


@pytest.mark.django_db
def test_ready_says_in_one_line_what_is_missing(client, monkeypatch):
    monkeypatch.setattr(ready, "_migrated", False)
    answer = client.get("/readyz")
    assert answer.status_code == 503 and answer.content.decode() == (
        "the database is not stamped with a mode: run python -m healthboard.processes prepare\n"
    )
    Installation.objects.create(mode="sandbox", created_at=clock.now())
    assert client.get("/readyz").status_code == 200
    Installation.objects.update(mode="aws")
    assert "belongs to mode aws" in client.get("/readyz").content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_missing_migration_is_not_ready(client, monkeypatch):
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.recorder import MigrationRecorder

    monkeypatch.setattr(ready, "_migrated", False)
    [(app, newest)] = MigrationLoader(None).graph.leaf_nodes("people")
    row = MigrationRecorder.Migration.objects.get(app=app, name=newest)
    row.delete()
    try:
        assert "lacks migrations" in client.get("/readyz").content.decode()
    finally:
        MigrationRecorder.Migration.objects.create(app=row.app, name=row.name)


@pytest.mark.django_db
def test_a_database_that_does_not_answer_is_not_ready(client, monkeypatch):
    from django.db import OperationalError

    def broken(*args):
        raise OperationalError("connection refused\nmore")

    monkeypatch.setattr(Installation.objects, "order_by", broken)
    answer = client.get("/readyz")
    assert answer.status_code == 503 and answer.content == b"the database does not answer: connection refused\n"


def numbers(client):
    text = client.get("/metrics", HTTP_AUTHORIZATION="Bearer s3cret").content.decode()
    return {
        (s.name, *sorted(s.labels.values())): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }


@pytest.mark.django_db
def test_the_numbers_are_what_the_database_says(client, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_METRICS_TOKEN", "s3cret")
    on = factories.instance(verdict="HARDWARE")
    factories.case(on)
    factories.repair(on)
    factories.breaker()
    factories.switch(stopped=True)
    factories.source("events", dropped={"not JSON": 2})
    Pulse.objects.create(name="canary", at=factories.ago(40), ok=True)
    found = numbers(client)
    assert 39 < found["healthboard_pulse_age_seconds", "canary"] < 60 and found["healthboard_pulse_ok", "canary"] == 1
    assert found["healthboard_instances", "HARDWARE"] == 1 and found["healthboard_instances", "HEALTHY"] == 0
    assert found["healthboard_cases_open", "WAITING"] == 1 and found["healthboard_repairs", "RUNNING"] == 1
    assert found["healthboard_breakers_open", "CORRELATED"] == 1 and found["healthboard_stopped",] == 1
    place = ("", "111122223333", "events", "not JSON", factories.REGION)
    assert found["healthboard_source_dropped_messages_total", *place] == 2
    assert 170 < found["healthboard_case_waiting_oldest_seconds",] < 300


@pytest.mark.django_db
def test_what_waits_is_as_old_as_its_question(client, monkeypatch):
    """Not as what it is about: a case that comes back and a repair that asks at last were not waited for before."""
    monkeypatch.setenv("HEALTHBOARD_METRICS_TOKEN", "s3cret")
    on = factories.instance()
    repair = factories.repair(on, state="RUNNING", opened_at=factories.ago(5 * 3600))
    case = factories.case(on, opened_at=factories.ago(5 * 3600))
    assert numbers(client)["healthboard_case_waiting_oldest_seconds",] > 4 * 3600
    with clock.virtual(factories.ago(3000)):
        cases.move(case, "SNOOZED", system("test"), "later")
    with clock.virtual(factories.ago(100)):
        cases.move(case, "WAITING", system("test"), "back")
        repairs._move(repair, "ASKING", actor=system("test"), why="what now?")
    found = numbers(client)
    for name in ("case_waiting", "repair_asking"):
        assert 99 < found[f"healthboard_{name}_oldest_seconds",] < 200
    assert found["healthboard_repair_open_oldest_seconds",] > 4 * 3600


@pytest.mark.django_db
def test_a_host_that_found_out_what_it_runs_on_is_no_part_that_comes_round(client, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_METRICS_TOKEN", "s3cret")
    Pulse.objects.create(name=f"{itself.NAME}i-0123456789abcdef0", at=factories.ago(40_000), ok=True)
    assert not [name for name in numbers(client) if "i-0123456789abcdef0" in str(name)]


@pytest.mark.django_db
def test_the_numbers_are_for_the_bearer_of_their_token(client, monkeypatch):
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", HTTP_AUTHORIZATION="Bearer ").status_code == 401
    monkeypatch.setenv("HEALTHBOARD_METRICS_TOKEN", "s3cret")
    for header in ("", "s3cret", "Basic s3cret", "Bearer wrong", "Bearer \xe9"):
        assert client.get("/metrics", HTTP_AUTHORIZATION=header).status_code == 401
    assert client.post("/metrics", HTTP_AUTHORIZATION="Bearer s3cret").status_code == 405


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.django_db
def test_a_check_by_address_is_answered_and_a_page_is_not(client, path):
    """A load balancer asks a target by its address, which is none of HEALTHBOARD_HOSTS."""
    by_address = {"HTTP_HOST": "10.0.3.17:8000"}
    assert client.get(path, **by_address).status_code == client.get(path).status_code in (200, 503)
    assert client.get(path, **by_address)["X-Content-Type-Options"] == "nosniff"
    assert client.get("/", **by_address).status_code == 400
