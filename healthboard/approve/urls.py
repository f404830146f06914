from django.urls import path

from healthboard.approve import answers, bulk, by_hand, case, condemned, explain, inbox, instance, look, plots, system

urlpatterns = [
    path("", inbox.inbox, name="inbox"),
    path("cases/<int:case_id>/", case.case, name="case"),
    path("cases/<int:case_id>/answer/<slug:kind>/", answers.answer, name="answer"),
    path("cases/<int:case_id>/recorder/", plots.case_recorder, name="case_recorder"),
    path("cases/<int:case_id>/undo/", answers.undo, name="undo"),
    path("cases/<int:case_id>/release/", answers.release, name="release"),
    path("bulk/confirm/", bulk.confirm, name="bulk_confirm"),
    path("bulk/", bulk.carry_out, name="bulk"),
    path("instances/<int:pk>/", instance.instance, name="instance"),
    path("instances/<int:pk>/act/<slug:action>/", by_hand.act, name="act"),
    path("instances/<int:pk>/recorder/", plots.instance_recorder, name="instance_recorder"),
    path("instances/<int:pk>/pause/", by_hand.pause, name="pause"),
    path("instances/<slug:account>/<slug:region>/<slug:instance_id>/", instance.by_name, name="instance_by_name"),
    path("system/", system.system, name="system"),
    path("system/stop/", system.stop, name="stop"),
    path("system/resume/", system.resume, name="resume"),
    path("system/acting/", system.acting, name="acting"),
    path("system/breakers/<int:pk>/release/", system.release_breaker, name="release_breaker"),
    path("system/invariants/acknowledge/", system.acknowledge, name="acknowledge"),
    path("system/pauses/<int:pk>/end/", system.end_pause, name="end_pause"),
    path("condemned/", condemned.condemned, name="condemned"),
    path("condemned/<int:pk>/lift/", condemned.lift, name="lift"),
    path("explain/", explain.explain, name="explain"),
    path("look/", look.look, name="look"),
]
