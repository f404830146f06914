"""The lists' filters of the admin: what is empty has a name to click on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.filters import AllValuesFieldListFilter
from django.db.models import CharField


class Named(AllValuesFieldListFilter):
    """Every value that there is, as Django's own, which shows an empty one as an empty link."""

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        for choice in super().choices(changelist):
            yield {**choice, "display": str(choice["display"]) or "(empty)"}


admin.FieldListFilter.register(lambda f: isinstance(f, CharField) and not f.choices, Named, take_priority=True)
