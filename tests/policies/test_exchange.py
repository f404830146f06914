import io

import pytest
import yaml
from django.core.management import CommandError, call_command

from healthboard.policies import exchange, strict_yaml, versions
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


def one(inner):
    return f'version: 1\npolicies: [{{name: "x", match: {{pool: p}}, {inner}}}]'


#: what a library, a sentence or the database would choke on
ODD = {
    "a list for seconds": (one("settings: {undo_s: [1]}"), "x: .*must be a whole number of seconds"),
    "a number for names": (one("settings: {notify: 5}"), "x: "),
    "a number for a ladder": (one("settings: {ladder: 5}"), "x: .* may hold"),
    "a text for an exception": (one("settings: {codes: {XID_119: x}}"), "XID_119: says nothing"),
    "a list for a mode": (one("settings: {codes: {XID_119: {mode: [ask]}}}"), "does not exist"),
    "a list for exceptions": (one("settings: {codes: [XID_119]}"), "Exceptions must be given per code"),
    "a text for a share": (one("settings: {budget_share: x}"), "x: .* must be a number"),
    "no number": (one("settings: {budget_share: .nan}"), "too large, or no number"),
    "a day for a mode": (one("settings: {mode_hardware: 2026-12-01}"), "must be one of"),
    "an empty !!int": (one('settings: {undo_s: !!int ""}'), "not what its tag says"),
    "no !!timestamp": (one("settings: {undo_s: !!timestamp x}"), "not what its tag says"),
    "no !!bool": (one("enabled: !!bool maybe"), "not what its tag says"),
    "a set": (one("settings: {notify: !!set {a}}"), "reads a value as set"),
    "bytes": (one("settings: {notify: [!!binary aGk=]}"), "reads a value as bytes"),
    "a NUL": (one('settings: {approver_group: "a\\0b"}'), "cannot be stored"),
    "half a pair": (one('settings: {approver_group: "\\ud800"}'), "cannot be stored"),
    "a NUL in a name": (one('settings: {"\\0": 1}'), "cannot be stored"),
    "a name that is yes": (one("settings: {on: 1}"), "reads a name as bool"),
    "a huge number": (one("settings: {undo_s: 0x" + "f" * 9000 + "}"), "too large"),
    "a huge account": ("version: 1\npolicies: [{name: x, match: {account: 0x" + "f" * 9000 + "}}]", "too large"),
    "an account that is yes": ("version: 1\npolicies: [{name: x, match: {account: yes}}]", "account is not a text"),
    "a long name": ("version: 1\npolicies: [{name: " + "n" * 101 + ", match: {pool: p}}]", "longer than 100"),
    "a long region": ("version: 1\npolicies: [{name: x, match: {region: " + "r" * 33 + "}}]", "longer than 32"),
    "a list for a tag": ("version: 1\npolicies: [{name: x, match: {tags: {a: [b]}}}]", "the tag a takes one text"),
    "deep nesting": ("[" * 5000, "nested too deeply"),
}


@pytest.mark.parametrize("text, words", ODD.values(), ids=ODD)
def test_what_is_of_a_wrong_kind_is_refused_in_one_line_by_the_command_too(admin, tmp_path, text, words):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(CommandError, match=words) as caught:
        call_command("policies", "apply", "--as", "ada", str(path))
    assert caught.value.returncode == 2 and "\n" not in str(caught.value) and len(str(caught.value)) < 500
    assert Policy.objects.count() == 1


def test_a_file_of_values_without_end_is_refused_before_it_takes_half_a_minute(admin, monkeypatch):
    """A MiB of digits and commas is half a million values, which a token may send again and again."""
    assert strict_yaml.MOST <= 100_000
    monkeypatch.setattr(strict_yaml, "MOST", 100)
    fits = f"[{','.join('1' * 99)}]"
    assert strict_yaml.load(fits) == [1] * 99
    nested = "[" * 60 + "]" * 60
    for text in (fits.replace("]", ",1]"), f"[{nested},{nested}]", f"a: {fits}"):
        with pytest.raises(Invalid, match="more than 100 values"):
            exchange.apply(text, actor=admin, reason="x", dry_run=True)


def test_aliases_which_stand_for_gigabytes_are_refused_at_once(admin):
    levels = ["a0: &a0 [x,x,x,x,x,x,x,x,x]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 7))]
    text = "\n".join([*levels, "version: 1", "policies: [{name: x, match: {tags: {team: *a6}}}]"])
    with pytest.raises(Invalid, match=r"aliases such as \*a0 are not taken"):
        exchange.apply(text, actor=admin, reason="x")


@pytest.mark.parametrize("text", ["version: 1\npolicies: []", "]["])
def test_a_file_is_not_even_read_for_who_may_edit_no_policy(admin, text):
    for actor, words in (
        (factories.actor(factories.person("viewer")), "takes the role admin"),
        (factories.actor(factories.person("operator", pool="train")), "takes the role admin"),
        (factories.actor(factories.person("admin"), recent=False), "Log in again"),
    ):
        with pytest.raises(NotAllowed, match=words):
            exchange.apply(text, actor=actor, reason="x")


def test_an_admin_of_one_pool_applies_the_policies_of_it(admin):
    text = "version: 1\npolicies: [{name: x, match: {pool: train}, settings: {tries_24h: 1}}]"
    mine = factories.actor(factories.person("admin", pool="train"))
    assert "x: made" in exchange.apply(text, actor=mine, reason="x")
    with pytest.raises(NotAllowed, match=r"may edit policies elsewhere"):
        exchange.apply(text.replace("x", "y").replace("train", "infer"), actor=mine, reason="x")


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
