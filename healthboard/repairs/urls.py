from django.urls import path

from healthboard.repairs import views

urlpatterns = [
    path("repairs/", views.repairs, name="repairs"),
    path("repairs/<int:pk>/", views.repair, name="repair"),
    path("repairs/<int:pk>/answer/", views.answer, name="repair_answer"),
    path("repairs/<int:pk>/over-budget/", views.over_budget, name="repair_over_budget"),
    path("repairs/<int:pk>/stop/", views.stop, name="repair_stop"),
]
