from django.urls import path

from healthboard.fleet import views

urlpatterns = [
    path("fleet/", views.fleet, name="fleet"),
    path("fleet/map/", views.fleet_map, name="fleet_map"),
    path("fleet/views/", views.save_view, name="save_view"),
    path("fleet/views/<int:pk>/remove/", views.remove_view, name="remove_view"),
]
