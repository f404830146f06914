"""Hardware that was given back as broken: known when it comes again, put before a person, and lifted by one."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases import readings
from healthboard.fleet import condemned
from healthboard.fleet.models import Gpu
from healthboard.people import tokens
from healthboard.people.actors import system
from healthboard.policies.defaults import ensure_default
from healthboard.policies.reading import reread
from healthboard.policies.resolve import resolve
from tests import factories as make
from workers.verify import carry

CODE = "GPU_CONDEMNED_RETURNED"


def _condemned(on, index=0, **fields):
    row = make.gpus(on, 1)[0]
    values = {"index": index, "condemned_at": make.ago(3600), "condemned_why": "XID_79, repair 7", **fields}
    Gpu.objects.filter(pk=row.pk).update(**values)
    row.refresh_from_db()
    return row


def _told(on, gpu):
    make.reading(on, "GPU_STATUS", "ok", channel="node", source="nvml", gpu=gpu.uuid)
    return reread(on)


def test_a_repair_remembers_every_gpu_that_it_gave_back_as_broken(home):
    on = make.instance(home)
    gpus = make.gpus(on, 4)
    case = make.case(on, code="XID_79", verdict="HARDWARE", action="REPLACE", state="DECIDED", gpu=gpus[1].uuid)
    kept = case.evidence.get()
    also = {"code": "XID_95", "gpu": gpus[2].uuid, "verdict": "HARDWARE", "action": "REPLACE"}
    reset = {"code": "XID_48", "gpu": gpus[3].uuid, "verdict": "HARDWARE", "action": "REBOOT"}
    kept.assessment["findings"] += [also, reset]
    kept.save()
    repair = make.repair(on, state="SUCCEEDED", outcome="REPLACED")
    make.decision(case, kind="auto", repair=repair)
    assert carry.sweep() == 1
    assert set(Gpu.objects.exclude(condemned_at=None)) == {gpus[1], gpus[2]}
    row = AuditRow.objects.filter(verb="gpu.condemned", repair_id=repair.pk).first()
    assert row.payload["serial"] in {gpus[1].serial, gpus[2].serial}


@pytest.mark.parametrize(
    "whose, marked",
    [("its own", True), ("nobody's", True), ("the replacement's", True), ("another's", False), ("its serial", False)],
)
def test_a_node_can_have_nobody_elses_hardware_condemned(home, whose, marked):
    """Whoever is root on a node names in its reports what he likes."""
    on, other, heir = make.instance(home), make.instance(home), make.instance(home)
    named, real = make.gpus(on, 1)[0], make.gpus(other, 1)[0]
    owner = {"another's": other, "nobody's": None, "the replacement's": heir}.get(whose, on)
    serial = real.serial if whose == "its serial" else named.serial
    Gpu.objects.filter(pk=named.pk).update(instance=owner, serial=serial)
    case = make.case(on, code="NVML_GPU_IS_LOST", verdict="HARDWARE", action="REPLACE", state="DECIDED", gpu=named.uuid)
    repair = make.repair(on, state="SUCCEEDED", outcome="REPLACED", replacement=heir)
    make.decision(case, kind="auto", repair=repair)
    assert carry.sweep() == 1
    assert [gpu.pk for gpu in Gpu.objects.exclude(condemned_at=None)] == [named.pk] * marked
    assert condemned.on(other) == {}
    assert AuditRow.objects.filter(verb="gpu.left", repair_id=repair.pk).exists() == (not marked)


def test_it_opens_a_case_for_a_person_and_no_policy_makes_it_automatic(home):
    ensure_default()
    on = make.instance(home)
    seen = _told(on, _condemned(on))
    case = readings.apply_reading(on, seen)
    assert (case.code, case.verdict, case.state) == (CODE, "AMBIGUOUS", "WAITING")
    assert "given back as broken (XID_79, repair 7)" in case.why
    values = {
        **seen.policy.values,
        "mode_hardware": "auto",
        "mode_ambiguous": "auto",
        "codes": {CODE: {"mode": "auto"}},
    }
    for verdict, codes in (("AMBIGUOUS", [CODE]), ("HARDWARE", ["XID_79", CODE])):
        answer = resolve(verdict, codes, "REPLACE", True, values)
        assert (answer.mode, "only a person" in answer.why) == ("ask", True)
    assert resolve("HARDWARE", ["XID_79"], "REPLACE", True, values).mode == "auto"


@pytest.mark.parametrize("serial, back", [("1650223000017", True), ("0000000000000", False), ("N/A", False)])
def test_a_serial_counts_where_it_names_one_piece_of_hardware(home, serial, back):
    ensure_default()
    _condemned(make.instance(home, gone_at=make.ago(60)), serial=serial)
    on = make.instance(home)
    gpu = make.gpus(on, 1)[0]
    Gpu.objects.filter(pk=gpu.pk).update(serial=serial)
    assert (CODE in _told(on, gpu).assessment.codes) is back


def test_an_approver_lifts_it_with_a_reason_and_the_machine_is_read_again(home, log_in):
    ensure_default()
    on = make.instance(home)
    gpu = _condemned(on)
    assert CODE in _told(on, gpu).assessment.codes
    address = f"/condemned/{gpu.pk}/lift/"
    assert gpu.uuid in log_in("viewer").get("/condemned/").content.decode()
    refused = log_in("operator").post(address, {"reason": "x"})
    assert (refused.status_code, b"takes the role" in refused.content) == (403, True)
    client = log_in("approver", "app")
    assert "aria-invalid" in client.post(address, {"reason": " \0"}).content.decode()
    assert client.post(address, {"reason": "the board was exchanged"}).status_code == 303
    gpu.refresh_from_db()
    on.refresh_from_db()
    assert (gpu.condemned_at, gpu.condemned_why) == (None, "")
    assert (clock.now() - on.evidence_at).total_seconds() < 60
    assert reread(on).assessment.codes == ()
    row = AuditRow.objects.get(verb="gpu.lifted")
    assert (row.actor, row.payload["was"], row.instance) == ("app", "XID_79, repair 7", on.instance_id)
    assert client.post(address, {"reason": "again"}).status_code == 409
    assert "/lift/" not in client.get("/condemned/").content.decode()


def test_the_api_lists_and_lifts_within_the_callers_places(home):
    on = make.instance(home)
    gpu = _condemned(on)

    def call(role, **scope):
        user = make.person(role, **scope)
        return Client(headers={"Authorization": f"Bearer {tokens.issue_api(user, actor=make.actor(user))}"})

    listed = call("viewer").get("/api/v1/condemned").json()["items"]
    assert [(i["uuid"], i["serial"], i["instance"]) for i in listed] == [(gpu.uuid, gpu.serial, on.instance_id)]
    assert call("viewer", pool="infer").get("/api/v1/condemned").json()["items"] == []
    body, address = {"reason": "mended"}, f"/api/v1/condemned/{gpu.pk}/lift"
    for caller, status in ((call("viewer"), 403), (call("approver", pool="infer"), 404), (call("admin"), 200)):
        assert caller.post(address, body, content_type="application/json").status_code == status
    assert call("admin").post(address, body, content_type="application/json").status_code == 409


def test_a_node_learns_of_the_hardware_that_it_names_and_of_no_other(home):
    on = make.instance(home)
    mine, other = _condemned(on), _condemned(make.instance(home), 1)
    elsewhere = _condemned(make.instance(home), 2)
    Gpu.objects.filter(pk=elsewhere.pk).update(account=make.account("444455556666"))
    token = tokens.issue_node(on, actor=system("test"))

    def ask(body, token=token):
        return Client().post(
            "/api/v1/node/condemned", json.dumps(body), content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip

    named = [{"uuid": mine.uuid}, {"uuid": "GPU-x\0", "serial": None}, {"uuid": elsewhere.uuid}]
    found = ask({"gpus": named}).json()["condemned"]
    assert found == [{"uuid": mine.uuid, "serial": mine.serial, "why": "XID_79, repair 7"}]
    assert [g["uuid"] for g in ask({"gpus": [{"serial": other.serial}]}).json()["condemned"]] == [other.uuid]
    assert ask({"gpus": named}, "hbn_wrong").status_code == 401
    assert ask({"gpus": named * 30}).status_code == 422
    assert ask([]).status_code == 422
