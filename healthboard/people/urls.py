from django.urls import path

from healthboard.people import views
from healthboard.people.oidc import views as oidc

urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("logout/", views.Logout.as_view(), name="logout"),
    path("oidc/login/", oidc.login, name="oidc_login"),
    path("oidc/callback/", oidc.callback, name="oidc_callback"),
    path("again/", views.Again.as_view(), name="again"),
    path("sessions/", views.own_sessions, name="sessions"),
    path("password/", views.Password.as_view(), name="password"),
]
