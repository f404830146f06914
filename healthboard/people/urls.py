from django.urls import path

from healthboard.people import views

urlpatterns = [
    path("accounts/login/", views.Login.as_view(), name="login"),
    path("accounts/logout/", views.Logout.as_view(), name="logout"),
    path("accounts/again/", views.Again.as_view(), name="again"),
]
