from django.urls import path

from healthboard.fleet import views

urlpatterns = [path("fleet/", views.fleet, name="fleet")]
