"""YAML as a policy file may use it: texts, numbers, dates, lists, and names with values, each written out."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import yaml

from healthboard.refusals import Invalid

#: neither can be stored: NUL, and halves of surrogate pairs, which YAML's escapes can write
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: no number of a policy comes near
LARGEST = 10**15
LONGEST_ERROR = 300
#: values of one file; a thousand policies have some tens of thousands. Each costs tens of microseconds in a thread that
#: others wait for
MOST = 100_000


class _Loader(yaml.SafeLoader):
    """Without aliases: a few hundred bytes of them stand for gigabytes."""

    values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"aliases such as *{event.anchor} are not taken; write the values out", event.start_mark
            )
        self.values += 1
        if self.values > MOST:
            raise yaml.composer.ComposerError(None, None, f"it has more than {MOST} values")
        return super().compose_node(parent, index)


def load(text: str) -> Any:
    """What the text says. Raises Invalid with one line."""
    try:
        data = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise Invalid("This is no YAML: " + " ".join(str(error).split())[:LONGEST_ERROR]) from None
    except RecursionError:
        raise Invalid("This is no YAML: it is nested too deeply.") from None
    except (LookupError, AttributeError, TypeError, ArithmeticError):  # the library's answer to !!int "" and the like
        raise Invalid("This is no YAML: a value is not what its tag says.") from None
    _refuse_odd(data)
    return data


def _refuse_odd(data: Any) -> None:
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):
                    raise Invalid(f"YAML reads a name as {type(name).__name__}, not as a text: put it in quotes.")
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            if UNSTORABLE.search(value):
                raise Invalid("A text holds a NUL or half a surrogate pair, which cannot be stored; leave it out.")
        elif isinstance(value, (int, float)):
            if not abs(value) <= LARGEST:  # NaN neither
                raise Invalid("A number is too large, or no number.")
        elif value is not None and not isinstance(value, date):
            raise Invalid(f"YAML reads a value as {type(value).__name__}; write a text, a number or a list.")
