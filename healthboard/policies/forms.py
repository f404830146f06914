"""The policy form: real fields, inherited values shown as such, and refusals in words."""

from __future__ import annotations

from typing import Any

from django import forms

from healthboard.people import access
from healthboard.people.actors import Actor
from healthboard.policies import fields, suggest, versions
from healthboard.policies.form_fields import INHERITED, NO_LIMIT, PREFIX, SettingChoice, field_for
from healthboard.policies.models import Policy
from healthboard.policies.words import show

MATCHING = ("account", "region", "cluster", "pool", "workload", "tags_text")


class PolicyFormBase(forms.ModelForm):
    tags_text = forms.CharField(
        label="Tags",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 40, "spellcheck": "false"}),
        help_text="One key=value a line; all of them must be on the workload or the instance. key= matches any value.",
    )
    reason = forms.CharField(
        label="Why this change",
        max_length=255,
        widget=forms.TextInput(attrs={"size": 70}),
        help_text="Kept with the version and in the audit record.",
    )

    class Meta:
        model = Policy
        fields = ("name", "enabled", "account", "region", "cluster", "pool", "workload")
        help_texts = {
            "account": "Twelve digits. What is left empty matches all.",
            "region": "Such as us-east-1.",
            "cluster": "Name of the ECS cluster.",
            "pool": "Name of the capacity provider; for instances without one, of the pool as the fleet page shows it.",
            "workload": "Name of the service, or family of standalone tasks.",
        }

    actor: Actor  # set by the admin

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        policy = self.instance
        self.initial["tags_text"] = "\n".join(f"{k}={v}" for k, v in sorted((policy.tags or {}).items()))
        for name, value in (policy.settings or {}).items():
            self.initial[PREFIX + name] = NO_LIMIT if value is None else value
        values, origin = versions.inherited(policy)
        for setting in fields.SETTINGS:
            field = self.fields.get(PREFIX + setting.name)
            if field is None:  # the person only sees, and does not edit
                continue
            also = " as well" if setting.adds and values[setting.name] else ""
            words = f"inherited{also}: {show(setting, values[setting.name])} ({origin[setting.name]})"
            if isinstance(field, SettingChoice):
                field.inherit(words)
            else:
                field.widget.attrs["placeholder"] = words
                field.widget.attrs.setdefault("size", 50)
        suggest.offer(self.fields, self.actor.user)

    def clean_tags_text(self) -> dict[str, str]:
        tags = {}
        for line in self.cleaned_data["tags_text"].splitlines():
            if not line.strip():
                continue
            key, equals, value = line.partition("=")
            if not equals or not key.strip():
                raise forms.ValidationError(f"“{line.strip()}”: write key=value.")
            tags[key.strip()] = value.strip()
        return tags

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        place = {key: data.get(key, getattr(self.instance, key)) for key in ("region", "pool")}
        account = data.get("account", self.instance.account)
        if reason := access.why_not(self.actor.user, "policy", account=account, **place):
            raise forms.ValidationError(reason)
        if not self.actor.recent:
            raise forms.ValidationError(
                "Your log-in is older than 15 minutes. Open /accounts/again/ in another tab, then save here again."
            )
        return data

    def _post_clean(self) -> None:
        super()._post_clean()
        data, policy = self.cleaned_data, self.instance
        if "tags_text" in data and not policy.is_default:
            policy.tags = data["tags_text"]
        given = {s.name: data[PREFIX + s.name] for s in fields.SETTINGS if PREFIX + s.name in data}
        policy.settings = {name: value for name, value in given.items() if value != INHERITED}
        if self.errors:
            return
        for name, sentences in versions.problems(policy).items():
            self._say(name, sentences)

    def _say(self, name: str, sentences: list[str]) -> None:
        wanted = {"tags": "tags_text"}.get(name, PREFIX + name if name in fields.BY_NAME else name)
        self.add_error(wanted if wanted in self.fields else None, sentences)


#: The base with one field per setting.
PolicyForm = type(
    "PolicyForm",
    (PolicyFormBase,),
    {"__module__": __name__, **{PREFIX + s.name: field_for(s) for s in fields.SETTINGS}},
)
