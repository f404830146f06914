"""All addresses: one include for each part."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("healthboard.api.urls")),  # first: nearly all that comes is a report of a node
    path("", include("healthboard.approve.urls")),
    path("", include("healthboard.fleet.urls")),
    path("", include("healthboard.repairs.urls")),
    path("", include("healthboard.notices.urls")),
    path("accounts/", include("healthboard.people.urls")),
    path("admin/", admin.site.urls),
]
