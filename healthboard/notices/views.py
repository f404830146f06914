"""A person's own quiet hours."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.forms.utils import flatatt
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from healthboard.audit.record import record
from healthboard.notices.models import QuietHours, Target
from healthboard.notices.quiet import zones
from healthboard.pages import page
from healthboard.people.web import actor_of


class Zones(forms.Select):
    """There are six hundred, and the stock widget renders each of them by a template of its own."""

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        rows = [
            f'<option value="{zone}"{" selected" if zone == value else ""}>{escape(title)}</option>'
            for zone, title in self.choices
        ]
        return format_html(
            "<select{}>\n{}\n</select>", flatatt({"name": name, **(attrs or {})}), mark_safe("\n".join(rows))
        )


class OwnHours(forms.ModelForm):
    zone = forms.ChoiceField(choices=[], initial="UTC", widget=Zones)

    class Meta:
        model = QuietHours
        fields = ("starts", "ends", "zone", "critical_through")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["zone"].choices = [(zone, zone.replace("_", " ")) for zone in zones()]

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if data.get("starts") and data.get("starts") == data.get("ends"):
            self.add_error("ends", "They must end at another time than they begin.")
        return data


@page
def quiet(request: HttpRequest) -> HttpResponse:
    """GET: the form and where this person's e-mail comes from. POST: keep them, or with ``off`` take them away."""
    row = QuietHours.objects.filter(user=request.user).first()
    if request.method != "POST":
        return _shown(request, OwnHours(instance=row), row)
    if "off" in request.POST:
        return _kept(request, None, row)
    form = OwnHours(request.POST, instance=row or QuietHours(user=request.user))
    return _kept(request, form, row) if form.is_valid() else _shown(request, form, row, status=400)


@transaction.atomic
def _kept(request: HttpRequest, form: OwnHours | None, row: QuietHours | None) -> HttpResponse:
    if form is not None:
        said = f"quiet hours of {form.save()}"
    else:
        QuietHours.objects.filter(user=request.user).delete()
        said = f"no quiet hours for {request.user}"
    record("people.quiet", f"user:{request.user.pk}", said, actor=actor_of(request))
    messages.success(request, "Kept." if form is not None else "You have no quiet hours any more.")
    return HttpResponseRedirect(reverse("quiet"), status=303)


def _shown(request: HttpRequest, form: OwnHours, row: QuietHours | None, *, status: int = 200) -> HttpResponse:
    told = Target.objects.filter(kind=Target.Kind.EMAIL, enabled=True, people=request.user).order_by("name")
    return render(request, "quiet.html", {"form": form, "row": row, "targets": list(told)}, status=status)
