"""What docs/install.md says to people with more rights than a test has: counted, and checked against what they name."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import yaml

from tests.install.guide import TEXT, blocks

ROOT = Path(__file__).resolve().parents[2]
AWS = ROOT / "docs" / "aws"


class Template(yaml.SafeLoader):
    """CloudFormation's own tags are passed over."""


Template.add_multi_constructor("!", lambda loader, tag, node: tag)


def test_every_block_is_run_or_says_why_not():
    kinds = Counter(block.kind for block in blocks())
    assert {kind: number for kind, number in kinds.items() if kind != "sh"} == {"sh root": 1, "sh aws": 3, "conf": 1}
    assert kinds["sh"] >= 15 and TEXT.read_text().count("\n```") == 2 * sum(kinds.values())


def test_the_stack_is_given_the_parameters_that_its_template_has():
    """What else is asked of AWS: tests/install/test_commands.py."""
    text = "\n".join(block.text for block in blocks() if block.kind == "sh aws").replace("\\\n", " ")
    (options,) = [shlex.split(line) for line in text.splitlines() if line.startswith("aws cloudformation deploy")]
    template = yaml.load((AWS / "healthboard.yaml").read_text(), Template)
    given = dict(word.split("=", 1) for word in options[options.index("--parameter-overrides") + 1 :])
    wanted = {name for name, one in template["Parameters"].items() if not one.get("Default")}
    assert wanted | {"ReaderPrincipal", "ActorPrincipal", "ExternalId"} <= set(given) <= set(template["Parameters"])
    assert ROOT / options[options.index("--template-file") + 1] == AWS / "healthboard.yaml"


def test_the_settings_are_those_of_the_shipped_file():
    (text,) = [block.text for block in blocks() if "healthboard.env <<" in block.text]
    written = {line.partition("=")[0] for line in text.partition("END'\n")[2].partition("END\n")[0].splitlines()}
    shipped = (ROOT / "docs" / "install" / "healthboard.env").read_text().splitlines()
    assert written == {line.partition("=")[0] for line in shipped if line and line[0] != "#" and line[-1] != "="}


def test_no_secret_is_an_argument_of_a_program():
    """Whoever is on the machine reads the arguments of all that runs there; a variable is its own user's."""
    read = re.compile(
        r"\$\(cat [^)]*/secrets/(?!external-id)|\$\([^)]*api-token"
    )  # AWS takes the external id for no secret
    variables, found = re.compile(r"""^\s*(\w+="\$\([^)]*\)"\s+)+"""), []
    for block in blocks():
        for line in block.text.replace("\\\n", " ").splitlines():
            program = variables.sub("", line).lstrip(" (").removeprefix("umask 077; ")
            if read.search(program) and not program.startswith("printf "):  # the shell's own
                found.append(line)
    assert found == []


def test_no_token_that_is_kept_may_more_than_is_shown_or_lasts():
    (line,) = [line for block in blocks() for line in block.text.splitlines() if "api-token admin" in line]
    assert "--scope read" in line and "--days 1 " in line
