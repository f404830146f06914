from django.urls import path

from healthboard.people import views

urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("logout/", views.Logout.as_view(), name="logout"),
    path("again/", views.Again.as_view(), name="again"),
]
