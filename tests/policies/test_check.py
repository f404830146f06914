import pytest

from healthboard.policies import check, fields
from healthboard.policies.form_fields import SettingChoice, field_for, parse_codes, show_codes


def only(problems):
    [(name, sentences)] = problems.items()
    return name, " ".join(sentences)


def test_every_default_can_be_saved():
    assert check.problems(fields.defaults()) == {}


@pytest.mark.parametrize(
    "settings, where, words",
    [
        ({"mode_hardware": "sometimes"}, "mode_hardware", "must be one of observe, ask, auto"),
        ({"budget_share": 0.9}, "budget_share", "between 1 % and 50 %"),
        ({"budget_share": True}, "budget_share", "must be a number"),
        ({"undo_s": 1e9}, "undo_s", "whole number of seconds"),
        ({"disconnect_s": 5}, "disconnect_s", "between 1 min and 1 d"),
        ({"tries_24h": None}, "tries_24h", "needs a value"),
        ({"ladder": ["REPLACE", "REBOOT"]}, "ladder", "from light to heavy"),
        ({"nonsense": 1}, "nonsense", "no setting called nonsense"),
        ({"codes": {"XID_ABC": {"mode": "ask"}}}, "codes", "XID_ABC: there is no such code"),
        ({"codes": {"XID_79": {"action": "EXPLODE"}}}, "codes", "EXPLODE cannot be set"),
        ({"codes": {"XID_79": {"mode": "observe", "action": "REPLACE"}}}, "codes", "contradict each other"),
        ({"codes": {"XID_79": {"mode": "auto", "action": "WATCH"}}}, "codes", "repairs nothing"),
        ({"codes": {"XID_13": {"verdict": "WORKLOAD", "mode": "auto"}}}, "codes", "never leads to a repair"),
        ({"codes": {"XID_13": {"count": 3}}}, "codes", "belong together"),
        ({"mode_hardware": "observe", "mode_ambiguous": "auto"}, "mode_ambiguous", "only observed"),
        ({"mode_hardware": "auto", "tries_24h": 0}, "tries_24h", "at least one try"),
        ({"mode_hardware": "auto", "budget_absolute": 0}, "budget_absolute", "room for at least one"),
        ({"mode_hardware": "ask", "mode_ambiguous": "auto"}, "mode_ambiguous", "while clear failures are asked about"),
        ({"undo_s": 600, "expiry_s": 300}, "undo_s", "shorter than"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(settings, where, words):
    name, sentence = only(check.problems(settings))
    assert name == where and words in sentence


def test_observing_everything_but_one_code_is_no_contradiction():
    assert check.problems({"mode_hardware": "observe", "codes": {"XID_79": {"mode": "auto"}}}) == {}


def test_no_limit_is_a_value_where_it_is_allowed():
    assert check.problems({"budget_absolute": None, "repairs_per_hour": None}) == {}


@pytest.mark.parametrize(
    "line, entry",
    [
        ("XID_119: ask REPLACE", {"mode": "ask", "action": "REPLACE"}),
        ("xid_79: AUTO", {"mode": "auto"}),
        ("XID_31: 3x in 24h", {"count": 3, "window_s": 86400}),
        ("XID_31: ask 3x in 24 h", {"mode": "ask", "count": 3, "window_s": 86400}),
        ("GPU_MISSING: verdict=WATCH", {"verdict": "WATCH"}),
    ],
)
def test_an_exception_is_one_readable_line(line, entry):
    [found] = parse_codes(line).values()
    assert found == entry
    assert parse_codes(show_codes(parse_codes(line))) == parse_codes(line)


@pytest.mark.parametrize(
    "text, words",
    [
        ("XID_79", "Line 1: write a code, a colon"),
        ("XID_79: auto ask", "two things about the mode"),
        ("XID_79: auto\nXID_79: ask", "Line 2: XID_79 is there twice"),
        ("XID_79: perhaps", "“perhaps” is neither a mode"),
        ("XID_79: 3x", "a window must follow"),
        ("XID_79: 3x in soon", "is not a duration"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        parse_codes(text)


@pytest.mark.parametrize("setting", fields.SETTINGS, ids=lambda s: s.name)
def test_each_settings_default_survives_the_form(setting):
    field = field_for(setting)
    shown = field.prepare_value(setting.default)
    if isinstance(field, SettingChoice) or shown not in ("", None):
        cleaned = field.clean(shown)
        assert cleaned == ("" if shown == "" else setting.default)
    assert field.clean("") == ""
