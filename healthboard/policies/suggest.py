"""Names that a policy's form offers, of what the person may see; anything else can be typed in as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib.auth.models import Group
from django.utils.html import format_html, format_html_join

from healthboard.fleet.models import Instance, Task
from healthboard.notices.models import Target
from healthboard.people import access
from healthboard.policies.form_fields import PREFIX

MOST = 200


def known(user: Any) -> dict[str, list[str]]:
    """By form field."""
    instances = access.within(user, Instance.objects.filter(gone_at=None))
    columns = {"account": "account__account_id", "region": "region", "cluster": "cluster__name", "pool": "pool__name"}
    found = {name: _names(instances, column) for name, column in columns.items()}
    tasks = access.within(user, Task.objects.exclude(workload=None), prefix="instance__")
    found["workload"] = _names(tasks.exclude(workload__kind="DAEMON"), "workload__name")
    found[f"{PREFIX}approver_group"] = _names(Group.objects.all(), "name")
    targets = Target.objects.filter(enabled=True)
    found[f"{PREFIX}checkpoint"] = _names(targets.filter(kind=Target.Kind.WEBHOOK), "name")
    heard = {name for names in targets.values_list("receivers", flat=True) for name in names}
    found[f"{PREFIX}notify"] = sorted({*heard, *_names(targets, "name")})[:MOST]
    return found


def offer(fields: dict[str, forms.Field], user: Any) -> None:
    """Give the form's text fields what is known."""
    for name, names in known(user).items():
        if name in fields and names:
            old = fields[name].widget
            fields[name].widget = Suggesting(names, attrs=old.attrs)


class Suggesting(forms.TextInput):
    """A text field that offers names and takes any text; without a script."""

    def __init__(self, names: Sequence[str], attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.names = names

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> str:
        given = {"list": f"known-{name}", "autocomplete": "off", **(attrs or {})}
        options = format_html_join("", '<option value="{}"></option>', ((known,) for known in self.names))
        field = super().render(name, value, given, renderer)
        return format_html('{}<datalist id="known-{}">{}</datalist>', field, name, options)


def _names(rows: Any, column: str) -> list[str]:
    found: Iterable[Any] = rows.order_by(column).values_list(column, flat=True).distinct()[: MOST + 1]
    return [name for name in found if name][:MOST]
