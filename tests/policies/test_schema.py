"""The schema that is shipped is that of the settings, and every exported file keeps to it and comes back as it was."""

from __future__ import annotations

import io

import jsonschema_rs
import pytest
import yaml
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import transaction
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from healthboard.notices.models import Target
from healthboard.policies import exchange, fields, schema, versions
from healthboard.refusals import Invalid
from tests import factories
from tests.policies import draw

shipped = jsonschema_rs.validator_for(schema.FILE.read_text())


def one(**fields):
    return {"version": 1, "policies": [{"name": "llm", "match": {"workload": "llm"}, **fields}]}


def test_what_is_shipped_is_what_the_settings_say_and_what_the_command_prints():
    assert schema.FILE.read_text() == schema.text(), (
        "run: manage.py policies schema > healthboard/policies/policies.schema.json"
    )
    printed = io.StringIO()
    call_command("policies", "schema", stdout=printed)
    assert printed.getvalue() == schema.text()
    jsonschema_rs.meta.validate(schema.schema())


def test_the_defaults_keep_to_it():
    assert shipped.is_valid(one(settings=fields.defaults()))
    assert shipped.is_valid(
        one(settings={"undo_s": "1 min", "windows": ["Sat 00:00-24:00 UTC"], "budget_absolute": None})
    )


@pytest.mark.parametrize(
    "file",
    [
        {"version": 2, "policies": []},
        {"version": 1},
        one(colour="red"),
        one(settings={"mode_hardware": "maybe"}),
        one(settings={"undo_s": -1}),
        one(settings={"undo_s": "soon!"}),
        one(settings={"budget_share": 0.9}),
        one(settings={"tries_24h": None}),
        one(settings={"windows": "Sat"}),
        one(settings={"codes": {"XID_79": {}}}),
        one(settings={"codes": {"XID_79": {"mode": "auto", "colour": "red"}}}),
        one(settings={"nonsense": 1}),
        one(match={"colour": "red"}),
    ],
)
def test_what_it_refuses_is_refused_by_apply_as_well(db, file):
    versions.ensure_default()
    assert not shipped.is_valid(file)
    with pytest.raises(Invalid):
        exchange.apply(yaml.safe_dump(file), actor=factories.actor(factories.person("admin")), reason="x")


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(draw.settings, min_size=1, max_size=3), draw.settings)
def test_what_is_exported_keeps_to_it_and_comes_back_as_it_was(db, some, default):
    with transaction.atomic():
        Group.objects.get_or_create(name="sre")[0].user_set.set([factories.person("operator") for _ in range(2)])
        for name in ("hook-a", "hook-b"):
            Target.objects.get_or_create(name=name, defaults={"kind": "webhook"})
        admin = factories.actor(factories.person("admin"))
        versions.ensure_default()
        rows = [{"name": "Fleet default", "default": True, "settings": default}]
        rows += [{"name": f"p{n}", "match": {"workload": f"w{n}"}, "settings": one} for n, one in enumerate(some)]
        try:
            exchange.apply(yaml.safe_dump({"version": 1, "policies": rows}), actor=admin, reason="x")
        except Invalid:
            transaction.set_rollback(True)
            reject()
        text = exchange.export()
        assert shipped.is_valid(yaml.safe_load(text)), text
        assert exchange.apply(text, actor=admin, reason="again") == [] and exchange.export() == text
        told = {row["name"]: row.get("settings", {}) for row in yaml.safe_load(text)["policies"]}
        for row in rows:
            kept = {k: v for k, v in row["settings"].items() if not (k == "codes" and not v)}
            blackouts = [f"{b[:10]} 00:00 to {b[14:24]} 24:00 UTC" for b in kept.pop("blackouts", [])] or None
            found = told[row["name"]]
            assert (found.pop("blackouts", None) or None) == blackouts and found == kept
        transaction.set_rollback(True)
