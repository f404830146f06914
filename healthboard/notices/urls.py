from django.urls import path

from healthboard.notices import views

urlpatterns = [path("quiet/", views.quiet, name="quiet")]
