"""Each migration since the last release, operation by operation: none may break or hold up the release before."""

from __future__ import annotations

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader

from tests.upgrade.gentle import troubles
from tests.upgrade.test_columns import RELEASED

#: (app, migration, operation) -> why it may do so all the same. Rows are those of a fleet of 10,000 machines
ALLOWED = {
    ("cases", "0004_would_have", "AddIndex evidence.evidence_at"):
        "a row for each reading that a case rests on, hundreds a day: built in less than a second",
    ("cases", "0005_what_people_said", "AddField decision.token"): "a row for each decision of a person",
    ("people", "0005_own_default_view", "AddConstraint savedview.saved_view_one_own_default"):
        "a row for each view that somebody saved",
    ("people", "0008_what_people_said", "AddField apitoken.account"): "a row for each token of a person or program",
}  # fmt: skip


def _since_the_release():
    """(app, migration, operation, the state that it meets), in the order in which they are applied."""
    loader = MigrationLoader(None)
    state = loader.project_state(list(RELEASED.items()))
    released = set(state.models)
    done = {node for last in RELEASED.items() for node in loader.graph.forwards_plan(last)}
    for target in [node for node in loader.graph.leaf_nodes() if node[0] in RELEASED]:
        for node in loader.graph.forwards_plan(target):
            if node in done:
                continue
            done.add(node)
            for operation in loader.graph.nodes[node].operations:
                if node[0] in RELEASED:
                    yield *node, operation, state, released
                operation.state_forwards(node[0], state)


def _found() -> dict[tuple[str, str, str], str]:
    found = {}
    for app, name, operation, state, released in _since_the_release():
        for sentence in troubles(operation, app, state, released):
            what, _, why = sentence.partition(": ")
            found[app, name, what] = why
    return found


def test_no_migration_stands_in_the_way_of_the_release_before():
    found = _found()
    assert {key: why for key, why in found.items() if key not in ALLOWED} == {}
    assert set(ALLOWED) == set(found), "allowed, but there is no such operation any more"


def _state():
    state = MigrationLoader(None).project_state(list(RELEASED.items()))
    return state, set(state.models)


TEXT = models.CharField(max_length=10, db_default="")


@pytest.mark.parametrize(
    "operation",
    [
        migrations.RemoveField("instance", "zone"),
        migrations.DeleteModel("Gpu"),
        migrations.RenameField("instance", "zone", "place"),
        migrations.RenameModel("Gpu", "Card"),
        migrations.AddField("instance", "colour", models.CharField(max_length=10)),
        migrations.AddField("instance", "colour", models.CharField(max_length=10, db_default="", db_index=True)),
        migrations.AlterField("instance", "gone_at", models.DateTimeField()),
        migrations.AlterField("instance", "zone", models.TextField(db_index=True)),
        migrations.AlterField("instance", "zone", models.CharField(max_length=3)),
        migrations.AddIndex("healthevent", models.Index(fields=["at"], name="at")),
        migrations.AddConstraint("instance", models.UniqueConstraint(fields=["zone"], name="one")),
        migrations.RunPython(migrations.RunPython.noop),
        migrations.RunSQL("SELECT 1"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_what_would_stand_in_its_way_is_seen(operation):
    state, released = _state()
    assert list(troubles(operation, "fleet", state, released))


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("instance", "colour", TEXT),
        migrations.AddField("instance", "colour", models.IntegerField(null=True)),
        migrations.AlterField("instance", "zone", models.CharField(max_length=200)),
        migrations.CreateModel("Other", [("id", models.BigAutoField(primary_key=True)), ("name", models.TextField())]),
        migrations.AddIndex("other", models.Index(fields=["name"], name="of_a_table_of_this_release")),
        AddIndexConcurrently("healthevent", models.Index(fields=["at"], name="at")),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_what_does_not_is_let_through(operation):
    state, released = _state()
    assert list(troubles(operation, "fleet", state, released)) == []
