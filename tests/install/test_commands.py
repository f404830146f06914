"""The `aws` commands in the documents: operations that there are, with parameters that they take."""

from __future__ import annotations

import re
import shlex
from functools import cache

import botocore.session
import pytest
from botocore import xform_name

from tests.install.shipped import ROOT

DOCUMENTS = ("docs/aws/README.md", "docs/install/README.md", "docs/install.md", "docs/upgrade.md")
#: of the command line itself, not of the service; of every command, and of a stack's
OF_EVERY_COMMAND = {"--query"}
OF_THE_CLI = {"--template-file", "--stack-name", "--capabilities", "--parameter-overrides"}


@cache
def service(name: str) -> dict[str, set[str]]:
    """Command -> its options."""
    model = botocore.session.Session().get_service_model(name)
    return {
        xform_name(one, "-"): {"--" + xform_name(m, "-") for m in shape.members}
        if (shape := model.operation_model(one).input_shape)
        else set()
        for one in model.operation_names
    }


def commands() -> list[list[str]]:
    text = "\n".join((ROOT / document).read_text() for document in DOCUMENTS if (ROOT / document).exists())
    text = re.sub(r"\\\n\s*", " ", text)
    found = re.findall(r"^\s*(aws [a-z0-9-]+ [a-z-]+ --.*)$|`(aws [a-z0-9-]+ [a-z-]+ --[^`]*)`", text, re.M)
    return [shlex.split(" ".join((one or two).split()).replace("…", "X"), comments=True) for one, two in found]


@pytest.mark.parametrize("command", commands(), ids=lambda command: " ".join(command[1:3]))
def test_a_command_is_one_that_aws_has(command):
    _, name, operation, *rest = command
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    if (name, operation) == ("cloudformation", "deploy"):  # made of several operations
        assert options <= OF_THE_CLI
        return
    assert operation in service(name) and options - OF_EVERY_COMMAND <= service(name)[operation]


def test_the_commands_that_stop_it_are_among_them():
    assert {("iam", "put-role-policy"), ("ec2", "create-tags"), ("ecs", "update-service")} <= {
        tuple(c[1:3]) for c in commands()
    }
