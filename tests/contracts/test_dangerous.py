"""What the source holds of what can be dangerous: nothing of most of it, and of the rest only where it is known."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import yaml

from healthboard.config import ROOT

SOURCES = sorted(
    path for top in ("healthboard", "workers") for path in (ROOT / top).rglob("*.py") if "migrations" not in path.parts
)
#: who speaks to other hosts; each is described in docs/security/threats.md, "What goes out"
SPEAKS = {
    "healthboard/egress.py", "healthboard/notices/outgoing.py", "healthboard/notices/senders/email.py",
    "healthboard/people/identity.py", "healthboard/people/oidc/session.py", "healthboard/people/oidc/views.py",
    "healthboard/fleet/itself.py", "healthboard/cases/calls.py", "healthboard/supervisor.py", "healthboard/valkey.py",
    "workers/collect/fetch.py", "workers/node/healthboard_node.py", "workers/repair/leases.py", "healthboard/aws.py",
    "healthboard/broker.py", "healthboard/transport.py", "healthboard/queues.py",
}  # fmt: skip
#: who starts programs, always with a list of words
STARTS = {
    "healthboard/approve/explain.py", "healthboard/supervisor.py", "healthboard/prepare.py", "healthboard/processes.py",
    "workers/node/healthboard_node.py", "workers/collect/local_gpus.py",
}  # fmt: skip
NETWORK = {"socket", "http.client", "urllib.request", "smtplib", "requests", "asyncio", "aiohttp", "httpx", "ftplib",
           "telnetlib", "boto3", "redis", "urllib3"}  # fmt: skip
NEVER = {"pickle", "marshal", "shelve", "xml", "lxml", "ldap", "jinja2", "telnetlib", "ftplib", "dill", "cloudpickle"}


@cache
def product() -> list[tuple[str, ast.Module]]:
    """The product without the simulated AWS, which does not exist in aws mode."""
    named = [(str(path.relative_to(ROOT)), path) for path in SOURCES]
    return [(name, ast.parse(path.read_text())) for name, path in named if not name.startswith("healthboard/sandbox/")]


@cache
def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


@cache
def calls(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """Calls with the dotted name of what is called; empty for what has none."""
    return [(_dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_nothing_is_unpickled_evaluated_or_read_as_xml():
    found = []
    for name, tree in product():
        found += [f"{name}: imports {one}" for one in imported(tree) if one.split(".")[0] in NEVER]
        for call, node in calls(tree):
            if call in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"):
                found.append(f"{name}:{node.lineno}: {call}")
            if call in ("yaml.load", "yaml.unsafe_load", "yaml.full_load") and not (
                len(node.args) > 1 or any(k.arg == "Loader" for k in node.keywords)
            ):
                found.append(f"{name}:{node.lineno}: {call} without a loader")
    assert found == [] and len(SOURCES) > 300


def test_yaml_is_read_by_a_loader_that_makes_plain_values_alone():
    from healthboard.policies import strict_yaml

    loaders = [one for one in vars(strict_yaml).values() if isinstance(one, type) and issubclass(one, yaml.SafeLoader)]
    assert loaders


def test_sql_is_written_by_the_orm_or_with_names_that_are_ours():
    """A statement that is put together holds names of our own tables and quoted roles, never what came in."""
    built = set()
    for name, tree in product():
        for call, node in calls(tree):
            if call.endswith((".raw", ".extra", "RawSQL")) and "objects" in call:
                built.add(f"{name}: {call}")
            if call.endswith("cursor.execute") and node.args and not isinstance(node.args[0], (ast.Constant, ast.Name)):
                built.add(name)
    assert built <= {"healthboard/management/commands/grants.py", "healthboard/audit/guard.py"}, built


def test_programs_are_started_with_a_list_of_words_by_who_is_known():
    for name, tree in product():
        if "subprocess" in imported(tree):
            assert name in STARTS, name
        for call, node in calls(tree):
            assert not any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords), (
                f"{name}: {call}"
            )
            if call in ("subprocess.run", "subprocess.Popen", "subprocess.check_output"):
                assert not isinstance(node.args[0], (ast.Constant, ast.JoinedStr, ast.BinOp)), f"{name}:{node.lineno}"


def test_who_speaks_to_other_hosts_is_known():
    speaks = {name for name, tree in product() if imported(tree) & NETWORK}
    assert speaks - SPEAKS == set(), "a new client: let it go by egress or outgoing, and describe it in threats.md"


def test_no_certificate_is_left_unchecked():
    for name, _ in product():
        text = (ROOT / name).read_text()
        assert not re.search(r"CERT_NONE|_create_unverified|verify=False|check_hostname ?= ?False", text), name


def test_weak_hashes_are_not_used():
    for name, tree in product():
        used = [call for call, _ in calls(tree) if re.search(r"\b(md5|sha1)$", call, re.IGNORECASE)]
        assert used == [], name


def test_pages_escape_what_they_show_and_scripts_make_no_markup():
    wrong = []
    folders = [ROOT / "templates", *(ROOT / "healthboard").rglob("templates")]
    for path in (path for folder in folders for path in Path(folder).rglob("*.html")):
        text = path.read_text()
        wrong += [
            f"{path.name}: {one}"
            for one in re.findall(r"\|\s*safe\b|autoescape off|safeseq|<script(?! src=)[^>]*>", text)
        ]
        wrong += [f"{path.name}: {one}" for one in re.findall(r"\son\w+=|style=|javascript:", text)]
    ours = [path for path in (ROOT / "healthboard/static/board").glob("*.js") if ".min." not in path.name]
    for path in ours:
        wrong += [
            f"{path.name}: {one}"
            for one in re.findall(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage|sessionStorage|"
                r"indexedDB|postMessage|WebSocket",
                path.read_text(),
            )
        ]
    assert wrong == [] and len(ours) >= 4
