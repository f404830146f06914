"""Recorded evidence decided again: alike by default, otherwise under other policies, and never by what is known today."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from healthboard.cases import replay
from healthboard.cases.models import Case, Evidence
from healthboard.fleet.models import Instance
from healthboard.policies.models import Policy, PolicyVersion
from tests import factories, replayed
from tests.cases import scene

pytestmark = pytest.mark.django_db

WATCHED = """
version: 1
policies:
  - name: for this test
    default: true
    settings:
      codes:
        XID_119: {verdict: WATCH}
"""


def replayed_by_command(capsys, *args: str) -> tuple[int, str]:
    try:
        call_command("replay", *args)
        code = 0
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    return code, capsys.readouterr().out


def test_what_was_decided_is_decided_alike_whatever_became_of_fleet_and_policies(time, capsys):
    scene.policy(mode_ambiguous="ask", codes={"XID_119": {"mode": "ask", "action": "REBOOT"}})
    case = scene.asked(home=factories.pool("train", "GROUP"))
    scene.lost(case.instance, factories.gpus(case.instance, 1)[0].uuid)
    scene.read(case.instance)
    time.turn(30)
    assert Evidence.objects.count() >= 2
    Instance.objects.update(owner="BATCH", paused_by_tag=True, boot_id="another", gone_at=time.now)
    Policy.objects.update(settings={"mode_hardware": "observe"})
    assert replayed.differing() == []
    assert replayed_by_command(capsys, "--since", "1h") == (
        0, f"{Evidence.objects.count()} pieces of evidence, each is decided as it was\n"
    )  # fmt: skip


def test_what_comes_out_otherwise_is_named_and_the_exit_says_so(time, capsys):
    case = scene.asked()
    row = case.evidence.get()
    row.inputs["events"] = []
    Evidence.objects.filter(pk=row.pk).update(inputs=row.inputs)
    code, said = replayed_by_command(capsys)
    assert code == 1
    assert f"case {case.pk} ({case.instance})" in said
    assert "stored: AMBIGUOUS, REBOOT, XID_119, MONITORING_GAP, may not act alone; the policy: ask REBOOT" in said
    assert "now:    UNKNOWN, DIAGNOSE, MONITORING_GAP" in said and "no more: XID_119" in said
    assert said.endswith("1 of 1 pieces of evidence are decided otherwise\n")
    with pytest.raises(AssertionError):
        assert replayed.differing() == []
    row.inputs = {**row.inputs, "events": [{"code": 1}]}
    Evidence.objects.filter(pk=row.pk).update(inputs=row.inputs)
    assert replayed_by_command(capsys)[1].count("cannot be decided again") == 1
    row.delete()


def test_another_policy_shows_what_it_would_have_done_and_changes_nothing(time, capsys, tmp_path):
    scene.policy()
    case = scene.asked()
    file = tmp_path / "policy.yaml"
    file.write_text(WATCHED)
    code, said = replayed_by_command(capsys, "--policy", str(file))
    assert code == 1 and "now:    WATCH" in said and "code_overrides {} → {'XID_119'" in said
    assert replayed_by_command(capsys, "--policy", str(file)) == (code, said)
    assert (PolicyVersion.objects.count(), Policy.objects.get().settings) == (1, {})
    assert "might never have come" not in said
    scene.asked()
    assert replayed_by_command(capsys, "--policy", str(file))[1].count("might never have come") == 1
    Case.objects.exclude(pk=case.pk).delete()
    case.refresh_from_db()
    assert (case.verdict, Case.objects.count(), Evidence.objects.count()) == ("AMBIGUOUS", 1, 1)


def test_only_evidence_of_the_time_asked_for_is_decided_again(time, capsys):
    scene.asked()
    time.turn(7200)
    assert replayed_by_command(capsys, "--since", "1h")[1].startswith("0 pieces")
    assert replayed_by_command(capsys, "--since", "3h")[1].startswith("1 pieces")


@pytest.mark.parametrize(
    "args, words",
    [
        (["--since", "soon"], "is not a duration"),
        (["--since", "0d"], "is no time to go back by"),
        (["--since", "999999999d"], "lies before all time"),
        (["--policy", "/nowhere/at/all"], "cannot be read"),
        (["--policy", "bad.yaml"], "There is no setting called mode_hard"),
        (["--policy", "none.yaml"], "This is no YAML"),
    ],
)
def test_a_bad_argument_is_told_in_one_line(db, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("version: 1\npolicies: [{name: x, default: true, settings: {mode_hard: auto}}]")
    (tmp_path / "none.yaml").write_text("{{")
    with pytest.raises(CommandError) as told:
        call_command("replay", *args)
    assert told.value.returncode == 2 and words in str(told.value) and "\n" not in str(told.value)


def test_a_decision_rests_on_the_policy_of_its_moment(time, operator):
    """The same findings under a newer policy are kept anew before anything is decided on them."""
    scene.policy()
    case = scene.asked()
    default = Policy.objects.get()
    data = {**default.current.data, "settings": {"codes": {"XID_119": {"mode": "ask", "action": "DIAGNOSE"}}}}
    default.current = PolicyVersion.objects.create(policy=default, number=2, data=data, saved_at=time.now)
    default.save()
    time.turn(5)
    scene.read(case.instance)
    assert [row.answer["action"] for row in case.evidence.order_by("pk")] == ["REBOOT", "DIAGNOSE"]
    scene.decided(case, by=operator)
    kept = case.evidence.order_by("-pk").first()
    assert kept.answer["mode"] == "ask" and kept.inputs["policy"]["versions"][0]["number"] == 2
    assert replay.difference(kept) is None


def test_a_policys_own_code_asks_is_kept_with_the_evidence_and_is_decided_alike(time):
    own = {"of": ["XID_63", "XID_92"], "count": 3, "window_s": 3600, "action": "REPLACE"}
    scene.policy(mode_ambiguous="auto", codes={"MEMORY_WEARS": own})
    scene.acting()
    on = scene.machine()
    for number, code in enumerate(("XID_63", "XID_92", "XID_63")):
        assert scene.read(on) is None
        scene.shows(on, code, 20 - number, seq=number)
    case = scene.read(on)
    assert (case.code, case.verdict, case.action, case.mode, case.state) == (
        "MEMORY_WEARS", "AMBIGUOUS", "REPLACE", "ask", "WAITING",
    )  # fmt: skip
    assert "only a policy makes a finding of it" in case.mode_why
    kept = case.evidence.get()
    assert kept.inputs["thresholds"]["code_overrides"] == {"MEMORY_WEARS": own}
    assert replay.difference(kept) is None
