"""The admin's form for a new API token: of a service account, or of the admin's own."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.db import transaction

from healthboard.fleet.models import Account
from healthboard.people import tokens
from healthboard.people.access import SCOPES
from healthboard.people.actors import Actor
from healthboard.refusals import Invalid

WORDS = {
    "read": "read: sees",
    "decide": "decide: sees, decides cases, drains, returns, stops",
    "policies": "policies: sees, exports policies, checks and previews a changed file",
    "all": "all that its user may",
}


class TokenForm(forms.Form):
    service = forms.CharField(
        max_length=150, required=False, label="Service account",
        help_text="Its name; it is made if there is none. Its roles are given under Grants. Empty: a token of your own.",
    )  # fmt: skip
    purpose = forms.CharField(max_length=255, required=False, help_text="What a new service account is for.")
    name = forms.CharField(max_length=60, help_text="To tell it from others: who or what holds it.")
    scope = forms.ChoiceField(choices=[(name, WORDS[name]) for name in SCOPES], initial="read")
    account = forms.ModelChoiceField(
        Account.objects.all(), required=False, empty_label="all", help_text="Where it counts."
    )
    region = forms.CharField(max_length=32, required=False, help_text="Empty means all.")
    pool = forms.CharField(max_length=255, required=False, help_text="Name of a pool; empty means all.")
    days = forms.FloatField(
        initial=90, min_value=0.01, max_value=tokens.MOST_DAYS, help_text="Days until it expires, at most 3650."
    )

    def clean_service(self) -> str:
        """A person's tokens are theirs to make: with one of another person's, an admin would act under their name."""
        name = self.cleaned_data["service"].strip()
        found = get_user_model().objects.filter(username__iexact=name).first() if name else None
        if found is not None and not hasattr(found, "service"):
            raise forms.ValidationError(f"{found} is a person, not a service account.")
        return found.username if found else name

    @transaction.atomic
    def issue(self, *, actor: Actor) -> tuple[Any, str]:
        """The user and the token. Raises Invalid."""
        given = dict(self.cleaned_data)
        name, purpose = given.pop("service"), given.pop("purpose")
        user = actor.user
        if name:
            user = get_user_model().objects.filter(username=name).first()
            if user is None and not purpose.strip():
                raise Invalid("Say what the new service account is for.")
            user = user or tokens.make_service(name, purpose, actor=actor)
        return user, tokens.issue_api(user, actor=actor, **given)
