import io

import pytest
import yaml
from django.core.management import CommandError, call_command

from healthboard.policies import exchange, versions
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.refusals import Invalid, NotAllowed
from tests import factories

pytestmark = pytest.mark.django_db

FILE = """
version: 1
policies:
  - name: Fleet default
    default: true
    settings: {expiry_s: 2 h}
  - name: llm
    match: {account: 111122223333, workload: llm-train, tags: {team: x}}
    settings:
      mode_hardware: ask
      budget_absolute: null
      codes: {XID_119: {mode: ask, action: REPLACE, count: 3, window_s: 86400}}
"""


@pytest.fixture
def admin():
    versions.ensure_default()
    return factories.actor(factories.person("admin", name="ada"))


def test_what_is_applied_is_what_is_exported(admin):
    said = exchange.apply(FILE, actor=admin, reason="from git")
    assert "Fleet default: A question expires after: inherited → 2 h" in said and "llm: made" in said
    again = exchange.export()
    assert exchange.apply(again, actor=admin, reason="again") == []
    rows = yaml.safe_load(again)["policies"]
    assert rows[0]["settings"] == {"expiry_s": 7200} and rows[1]["match"]["account"] == "111122223333"
    assert rows[1]["settings"]["budget_absolute"] is None


def test_a_dry_run_says_the_same_and_changes_nothing(admin):
    before = PolicyVersion.objects.count()
    assert "llm: made" in exchange.apply(FILE, actor=admin, reason="x", dry_run=True)
    assert PolicyVersion.objects.count() == before and not Policy.objects.filter(name="llm").exists()


def test_one_bad_policy_saves_none(admin):
    text = FILE + "  - name: bad\n    match: {pool: p}\n    settings: {mode_hardware: maybe}\n"
    with pytest.raises(Invalid, match="bad: Clear hardware failures must be one of"):
        exchange.apply(text, actor=admin, reason="x")
    assert not Policy.objects.filter(name="llm").exists()


@pytest.mark.parametrize(
    "text, words",
    [
        ("][", "This is no YAML"),
        ("a: 1", "version: 1"),
        ("version: 1\npolicies: [{match: {}}]", "Policy 1 has no name"),
        ("version: 1\npolicies: [{name: x, colour: red}]", "x: there is no colour"),
        ("version: 1\npolicies: [{name: x, match: {colour: red}}]", "cannot match by colour"),
        ("version: 1\npolicies: [{name: x, settings: 5}]", "x: settings is not"),
        ("version: 1\npolicies: [{name: x, match: {pool: [1]}}]", "x: pool is not a text"),
        ("version: 1\npolicies: [{name: x, match: {pool: p}, settings: {undo_s: soon}}]", "not a duration"),
        ("version: 1\npolicies: [{name: x, match: {pool: p, tags: [a]}}]", "x: tags are not"),
        ("version: 1\npolicies: [{name: Fleet default, match: {pool: p}}]", "say default: true"),
        ("!!python/object/apply:os.system ['true']", "This is no YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(admin, text, words):
    with pytest.raises(Invalid) as caught:
        exchange.apply(text, actor=admin, reason="x")
    assert words in caught.value.message and "\n" not in caught.value.message


def test_a_code_of_ones_own_comes_and_goes_as_it_is(admin):
    text = """
version: 1
policies:
  - name: wears
    match: {pool: train}
    settings:
      codes:
        MEMORY_WEARS: {mode: ask, of: [XID_63, XID_94], count: 3, window_s: 24 h}
        XID_119: {verdict: HARDWARE, action: REBOOT, count: 2, window_s: 3600}
"""
    said = exchange.apply(text, actor=admin, reason="x")
    assert "wears: MEMORY_WEARS: no exception → ask of=XID_63,XID_94 3x in 1d" in said
    assert exchange.apply(exchange.export(), actor=admin, reason="x") == []
    assert Policy.objects.get(name="wears").settings["codes"]["MEMORY_WEARS"]["window_s"] == 86400
    with pytest.raises(Invalid, match=r"wears: .*is not a duration"):
        exchange.apply(text.replace("24 h", "soon"), actor=admin, reason="x")


def test_a_file_goes_the_same_way_as_the_form_under_a_persons_name(admin):
    with pytest.raises(NotAllowed):
        exchange.apply(FILE, actor=factories.actor(factories.person("operator")), reason="x")


def test_the_command_exports_and_applies(admin, tmp_path):
    path = tmp_path / "policies.yaml"
    path.write_text(FILE)
    out = io.StringIO()
    call_command("policies", "apply", "--as", "ada", str(path), stdout=out)
    assert "llm: made" in out.getvalue()
    assert PolicyVersion.objects.latest("pk").reason == "applied from policies.yaml"
    exported = io.StringIO()
    call_command("policies", "export", stdout=exported)
    assert yaml.safe_load(exported.getvalue())["version"] == 1


def test_the_command_refuses_in_one_line_with_exit_status_2(admin, tmp_path):
    factories.person("operator", name="otto")
    path = tmp_path / "policies.yaml"
    path.write_text(FILE)
    for arguments in (["--as", "otto", str(path)], ["--as", "nobody", str(path)], ["--as", "ada", "missing.yaml"]):
        with pytest.raises(CommandError) as caught:
            call_command("policies", "apply", *arguments)
        assert caught.value.returncode == 2 and "\n" not in str(caught.value)
