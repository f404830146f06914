"""A person's own quiet hours."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from healthboard.audit.record import record
from healthboard.notices.models import QuietHours, Target
from healthboard.notices.quiet import zones
from healthboard.pages import page
from healthboard.people.web import actor_of


class OwnHours(forms.ModelForm):
    zone = forms.ChoiceField(choices=[], initial="UTC")

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
