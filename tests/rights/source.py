"""The AWS operations that the source names, read from its syntax trees: of each process, all that it can reach."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import botocore.session
import grimp
from botocore import xform_name

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("ec2", "ecs", "autoscaling", "sqs", "sts", "events")
#: what each process begins with
ROOTS = {
    "web": ("healthboard.wsgi", "healthboard.urls", "healthboard.approve.urls", "healthboard.api.urls"),
    "beat": ("healthboard.celery",),
    "reader": ("workers.collect.tasks", "workers.decide.tasks", "workers.verify.tasks", "workers.hearing"),
    "actor": ("workers.repair.tasks", "workers.hearing"),
    "sender": ("workers.notify.tasks", "workers.hearing"),
}


@cache
def names() -> dict[str, set[tuple[str, str]]]:
    """CamelCase and snake_case name -> the operations that it may mean."""
    found: dict[str, set[tuple[str, str]]] = {}
    session = botocore.session.Session()
    for service in SERVICES:
        for operation in session.get_service_model(service).operation_names:
            for name in (operation, xform_name(operation)):
                found.setdefault(name, set()).add((service, operation))
    return found


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("healthboard", "workers", cache_dir=None)


def reached(process: str) -> set[str]:
    """Modules that it imports, directly or not."""
    found = set(ROOTS[process])
    for root in ROOTS[process]:
        found |= graph().find_upstream_modules(root)
    return found


def _file(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def operations(module: str) -> set[tuple[str, str]]:
    """(service, operation) of each attribute that is named so, and of each string in what calls AWS."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(_file(module).read_text())):
        if isinstance(node, ast.Attribute):
            found |= names().get(node.attr, set())
        # what is not a worker, or an AWS module, names operations only to read what was done
        elif isinstance(node, ast.Constant) and module.startswith(
            ("workers.", "healthboard.probes", "healthboard.aws")
        ):
            found |= names().get(node.value, set()) if isinstance(node.value, str) else set()
    # of EventBridge only the probe knows; elsewhere sockets are made by a method of the same name as an operation
    return found if module.startswith("healthboard.probes") else {one for one in found if one[0] != "events"}


def of(process: str) -> dict[str, set[str]]:
    """Service -> operations that the process names anywhere in what it reaches."""
    found: dict[str, set[str]] = {}
    for module in reached(process):
        for service, operation in operations(module):
            found.setdefault(service, set()).add(operation)
    return found


def makes_clients(module: str) -> bool:
    """Whether it names the client factory."""
    for node in ast.walk(ast.parse(_file(module).read_text())):
        if isinstance(node, ast.Attribute) and node.attr == "client" and ast.unparse(node.value) == "aws":
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "healthboard.aws":
            return "client" in {name.name for name in node.names}
    return False
