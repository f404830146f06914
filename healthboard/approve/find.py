"""The search in the header: one hit goes straight there, several are listed, none says what can be searched."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from healthboard.cases.search import LONGEST, search
from healthboard.pages import page


@page
def find(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("q", "").replace("\0", "").strip()[:LONGEST]
    hits = search(request.user, text)
    if len(hits) == 1:
        return HttpResponseRedirect(hits[0].address)
    return render(request, "find.html", {"hits": hits, "text": text})
