"""While an installation is upgraded, the processes of the release before go on writing into the migrated database: nodes
report, repairs are under way. What they do not know must not stand in their way."""

from __future__ import annotations

from django.apps import apps
from django.db.migrations.loader import MigrationLoader
from django.db.models import NOT_PROVIDED

from tests.upgrade.released import releases

#: the last migration of each app in the release before
RELEASED: dict[str, str] = releases()[-1].told["migrations"]


def _models():
    """(model -> its fields by name) in the release before, and now."""
    loader = MigrationLoader(None)
    before = loader.project_state(list(RELEASED.items()))
    now = loader.project_state([node for node in loader.graph.leaf_nodes() if node[0] in RELEASED])
    return tuple(
        {key: dict(model.fields) for key, model in state.models.items() if key[0] in RELEASED}
        for state in (before, now)
    )


def _needs_a_value(field) -> bool:
    column = not (field.many_to_many or field.auto_created or field.primary_key)
    return column and not field.null and field.db_default is NOT_PROVIDED


def test_what_the_release_before_writes_is_still_taken():
    before, now = _models()
    assert len(before) > 20 and {key[0] for key in now} == set(RELEASED)
    gone = [f"{model}.{name}" for model, fields in before.items() for name in fields if name not in now.get(model, {})]
    assert gone == [], "read and written by the release before: remove it one release later"
    wanted, tightened = [], []
    for model, fields in now.items():
        for name, field in fields.items():
            if model not in before or not _needs_a_value(field):
                continue
            if name not in before[model]:
                wanted.append(f"{'.'.join(model)}.{name}")
            elif before[model][name].null:
                tightened.append(f"{'.'.join(model)}.{name}")
    assert (wanted, tightened) == ([], []), "give it a db_default, or let it be null"


def test_the_migrations_of_the_release_before_are_unchanged():
    """They have run already where it is installed."""
    loader = MigrationLoader(None)
    for app, last in RELEASED.items():
        assert (app, last) in loader.graph.nodes, f"{app} {last} is part of a release"
        assert apps.get_app_config(app)
