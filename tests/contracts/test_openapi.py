"""Schemathesis walks the API by its own description: whatever is sent, the answer is one that is documented."""

from __future__ import annotations

from functools import cache

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import negative_data_rejection

from healthboard.api import auth, node_intake
from healthboard.api.api import api
from healthboard.people import tokens
from healthboard.people.actors import system
from healthboard.wsgi import application
from tests import factories

EXAMPLES = 100
#: 422 is the answer to what is well-formed and contradictory; 409 to a case that moved on
CONFIG = {
    "seed": 20,
    "generation": {"mode": "all", "max-examples": EXAMPLES, "deterministic": True, "database": "none"},
    "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 403, 404, 409, 422]}},
}


@pytest.fixture
def world(db, monkeypatch):
    """A case, a repair and an instance to find, and a token for each kind of caller."""
    monkeypatch.setattr(auth.Throttle, "allow_request", lambda *_: True)
    monkeypatch.setattr(node_intake, "limited", lambda _: 0)
    factories.switch()
    instance = factories.instance()
    factories.case(instance)
    factories.repair(factories.instance())
    person = factories.person("operator")
    for signal in (request_started, request_finished):  # as Django's own test client does
        signal.disconnect(close_old_connections)
    yield {
        "examples": 0,
        "person": tokens.issue_api(person, actor=factories.actor(person)),
        "node": tokens.issue_node(instance, actor=system("test")),
    }
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@cache
def described():
    """The API's own description, as schemathesis reads it, and the values that it takes from the code."""
    schema = schemathesis.openapi.from_wsgi(
        "/api/v1/openapi.json", application, config=schemathesis.Config.from_dict(CONFIG)
    )
    load_all_checks()
    return schema, FeedbackSources(constants_value_source=make_constants_value_source(schema))


def _labels() -> list[str]:
    """Operations by method and path, without reading the description: that takes long, and every process collects."""
    found = []
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                place = "/api/v1" + f"/{prefix}/{path}".replace("//", "/").replace("//", "/")
                found += [f"{method} {place}" for method in operation.methods if operation.include_in_schema]
    return sorted(found)


def test_every_operation_of_the_description_is_walked(world):
    schema, _ = described()
    assert sorted(result.ok().label for result in schema.get_all_operations()) == _labels()


@pytest.mark.parametrize("label", _labels())
def test_every_answer_is_a_documented_one(label, world):
    """What `schema.parametrize()` does, but only when its turn comes: it builds all examples while tests are collected,
    in each process."""
    schema, feedback = described()
    operation = schema.find_operation_by_label(label)
    build_operation_test(
        config=schema.config, operation=operation, test_func=_walk, given_kwargs={}, feedback=feedback
    )(world=world)
    assert world["examples"]


@settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
def _walk(case, world):
    world["examples"] += 1
    token = world["node" if "/node/" in case.operation.path else "person"]
    # the client that schemathesis has for WSGI asks for compressed answers and cannot read them
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    left_out = _left_out(case)
    answer = case.call_and_validate(headers=headers, excluded_checks=[negative_data_rejection] if left_out else [])
    if left_out and case.method == "GET":
        case.query = {name: value for name, value in case.query.items() if name not in left_out}
        assert case.call(headers=headers).status_code == answer.status_code, "an empty parameter is one left out"


def _left_out(case) -> set[str]:
    """Empty parameters, the last of several counting: what is wrong by the schema is fine without them. An object
    without members is sent as one."""
    told = (case.query or {}).items()
    last = {name: value[-1] if isinstance(value, list) and value else value for name, value in told}
    return {name for name, value in told if last[name] == "" or value == {}}
