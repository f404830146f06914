"""A target's form: what is secret is typed in, never shown; lists are lines; bad input is said field by field."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from healthboard.notices import outgoing
from healthboard.notices.kinds import CHOICES, OPERATORS
from healthboard.notices.models import Target
from healthboard.notices.outgoing import Refused
from healthboard.notices.routing import addresses, fits

KEEP = "Nothing: it stays as it is. What is kept is never shown."
LEAST_SECRET = 24


class Lines(forms.CharField):
    """Names, one a line or separated by commas."""

    widget = forms.Textarea(attrs={"rows": 2, "cols": 40})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        names = value if isinstance(value, list) else re.split(r"[,\n]", value or "")
        return [name.strip() for name in names if name.strip()]

    def validate(self, value: list[str]) -> None:
        if self.required and not value:
            raise ValidationError(self.error_messages["required"], code="required")

    def run_validators(self, value: list[str]) -> None:
        if any(len(name) > 255 or not name.isprintable() for name in value):
            raise ValidationError("A name has at most 255 characters, all of them printable.")


class TargetForm(forms.ModelForm):
    url = forms.CharField(
        label="Address", required=False, max_length=2000, widget=forms.TextInput(attrs={"size": 80, "autocomplete": "off"}),
        help_text=f"Slack: the incoming webhook's address. Webhook: where to POST. PagerDuty: only if not "
        f"events.pagerduty.com (such as the EU's). {KEEP}",
    )  # fmt: skip
    addresses = Lines(
        required=False, label="E-mail addresses", help_text="Of a team, one a line. For people, choose them below."
    )
    new_secret = forms.CharField(
        label="Secret", required=False, max_length=500, strip=True,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "size": 60}),
        help_text=f"PagerDuty: the routing key. Webhook: what messages are signed with, at least {LEAST_SECRET} "
        f"characters. {KEEP}",
    )  # fmt: skip
    keep_old = forms.BooleanField(
        label="The old secret signs as well", required=False,
        help_text="While the receiver learns the new one. Save again without the mark to end it.",
    )  # fmt: skip
    kinds = forms.MultipleChoiceField(
        choices=CHOICES, required=False, widget=forms.CheckboxSelectMultiple, label="Kinds of notice",
        help_text="None chosen: all of them.",
    )  # fmt: skip
    receivers = Lines(
        required=False,
        help_text="Names that policies use under “Who is told”, beside the target's own, which always counts.",
    )
    pools = Lines(required=False, help_text="Only what concerns these pools. * stands for anything. Nothing: all.")
    workloads = Lines(
        required=False,
        help_text="Only what concerns these workloads, and, as their owner, the faults of the application itself.",
    )  # fmt: skip

    class Meta:
        model = Target
        fields = ("name", "kind", "enabled", "people", "kinds", "minimum", "receivers", "pools", "workloads")
        widgets = {"people": forms.CheckboxSelectMultiple}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before: Target = self.instance
        self.fields["receivers"].initial = [OPERATORS]
        if self.instance.pk and self.instance.kind == Target.Kind.EMAIL:
            self.fields["addresses"].initial = addresses(self.instance)
        self.fields["keep_old"].initial = bool(self.instance.secret_before)

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        kind = data.get("kind")
        same = self.instance.pk is not None and self.fields["kind"].initial is None and self.initial.get("kind") == kind
        if kind == Target.Kind.EMAIL:
            self._clean_mail(data)
        elif kind:
            self._clean_url(data, kind, same)
            self._clean_secret(data, kind, same)
        return data

    def _clean_mail(self, data: dict[str, Any]) -> None:
        for one in data.get("addresses") or []:
            try:
                validate_email(one)
            except ValidationError:
                self.add_error("addresses", f"{one[:100]} is not an e-mail address.")
            else:
                if not fits(one):
                    self.add_error("addresses", f"{one[:100]}… is longer than an e-mail address can be.")
        if not data.get("addresses") and not data.get("people") and "addresses" not in self.errors:
            self.add_error("addresses", "Enter an address, or choose people.")

    def _clean_url(self, data: dict[str, Any], kind: str, same: bool) -> None:
        url = (data.get("url") or "").strip()
        if not url:
            if kind != Target.Kind.PAGERDUTY and not (same and self.instance.address):
                self.add_error("url", "Enter the address.")
            return
        try:
            outgoing.parts(url)
        except Refused as refused:
            self.add_error("url", f"Nothing can be sent there: {refused}.")

    def _clean_secret(self, data: dict[str, Any], kind: str, same: bool) -> None:
        secret = data.get("new_secret") or ""
        if kind == Target.Kind.SLACK:
            return
        if not secret and not (same and self.instance.secret):
            self.add_error("new_secret", "Enter it.")
        if secret and kind == Target.Kind.WEBHOOK and len(secret) < LEAST_SECRET:
            self.add_error("new_secret", f"At least {LEAST_SECRET} characters, such as `openssl rand -hex 32` makes.")

    def save(self, commit: bool = True) -> Target:
        """What was left empty stays; a kind that was changed keeps nothing of the old one."""
        row, data = self.instance, self.cleaned_data
        if self.initial.get("kind") not in (None, row.kind):
            row.address = row.secret = row.secret_before = ""
        if row.kind == Target.Kind.EMAIL:
            row.address = "\n".join(data["addresses"])
        elif data["url"].strip():
            row.address = data["url"].strip()
        if not data["keep_old"]:
            row.secret_before = ""
        if data["new_secret"] and data["new_secret"] != row.secret:
            row.secret_before = row.secret if data["keep_old"] else ""
            row.secret = data["new_secret"]
        return super().save(commit)
