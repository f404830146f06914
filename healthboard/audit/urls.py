from django.urls import path

from healthboard.audit import views

urlpatterns = [path("audit/", views.audit, name="audit")]
