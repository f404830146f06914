import pytest

from healthboard.policies import check, fields
from healthboard.policies.form_fields import SettingChoice, field_for, parse_codes, show_codes

OWN = {"of": ["XID_63", "XID_94"], "count": 3, "window_s": 86400}


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
        ({"codes": {"XID_13": {"count": 3, "window_s": 7 * 86400}}}, "codes", "1 minute to 3 days"),
        ({"codes": {"XID_13": {"verdict": "WATCH", "count": 3, "window_s": 60}}}, "codes", "leads to AMBIGUOUS or"),
        ({"codes": {"XID_13": {"mode": "auto", "verdict": "AMBIGUOUS"}}}, "codes", "XID_13: is WORKLOAD by the cata"),
        ({"codes": {"XID_63": {"mode": "auto", "count": 3, "window_s": 60}}}, "codes", "it is always asked about"),
        ({"codes": {"ROW_WEARS": {"count": 3, "window_s": 60}}}, "codes", "which it counts, as in of="),
        ({"codes": {"ROW_WEARS": {"of": ["XID_63"]}}}, "codes", "needs a number of times"),
        ({"codes": {"ROW_WEARS": {**OWN, "of": ["XID_63", "NOTHING"]}}}, "codes", "of=NOTHING: there is no such code"),
        ({"codes": {"ROW_WEARS": {**OWN, "of": ["XID_63", "XID_63"]}}}, "codes", "names a code twice"),
        ({"codes": {"ROW_WEARS": {**OWN, "of": "XID_63"}}}, "codes", "from 1 to 20 codes"),
        ({"codes": {"ROW_WEARS": {**OWN, "of": [["XID_63"], 5]}}}, "codes", "there is no such code"),
        ({"codes": {"ROW_WEARS": {**OWN, "verdict": "HARDWARE"}}}, "codes", "is no witness"),
        ({"codes": {"ROW_WEARS": {**OWN, "mode": "auto"}}}, "codes", "never repaired alone"),
        ({"codes": {"XID_79": OWN}}, "codes", "that there is already"),
        ({"codes": {"rows": OWN}}, "codes", "named in capitals"),
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


@pytest.mark.parametrize(
    "entry",
    [
        OWN,
        {**OWN, "verdict": "WATCH"},
        {**OWN, "mode": "ask", "action": "REBOOT"},
        {**OWN, "mode": "observe"},
    ],
)
def test_a_code_of_ones_own_can_be_saved(entry):
    assert check.problems({"codes": {"ROW_WEARS": entry}}) == {}


def test_a_number_of_times_may_lead_to_a_hardware_failure():
    entry = {"mode": "auto", "verdict": "HARDWARE", "action": "REBOOT", "count": 3, "window_s": 3600}
    assert check.problems({"codes": {"XID_119": entry, "XID_13": entry}}) == {}


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
        ("row_wears: of=xid_63,XID_94 3x in 24h", OWN),
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
