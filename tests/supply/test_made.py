"""What is told about the packages: the SBOM, the list of licences, the audit and its ways to end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cyclonedx.schema._res as shipped
import jsonschema_rs
import pytest
from packaging.utils import canonicalize_name

from tests.supply import audit, licences, sbom
from tests.supply.lock import PINS, ROOT, RUNTIME, locked, pins


@pytest.fixture(scope="module")
def bom():
    return sbom.build()


def wrong(bom) -> list[str]:
    """What the standard's own schema, as the library carries it, says against a document."""
    folder = Path(shipped.__file__).parent
    schema = json.loads((folder / f"bom-{bom['specVersion']}.SNAPSHOT.schema.json").read_text())
    validator = jsonschema_rs.Draft7Validator(
        schema, retriever=lambda address: json.loads((folder / address.rpartition("/")[2]).read_text())
    )
    return [error.message for error in validator.iter_errors(bom)]


def test_the_sbom_is_one_by_its_schema_and_names_everything_that_is_shipped(bom):
    assert wrong(bom) == []
    assert wrong({**bom, "components": [{"type": "library", "licenses": [{"license": {"id": "No-such"}}]}]}) != []
    lock = {name: entry for name, entry in locked(RUNTIME).items() if entry.wanted()}
    rows = {row["purl"].removeprefix("pkg:pypi/").partition("@")[0]: row for row in bom["components"]}
    assert {name: row["version"] for name, row in rows.items()} == {n: e.version for n, e in lock.items()}
    assert all({one["content"] for one in row["hashes"]} == set(lock[name].hashes) for name, row in rows.items())
    assert bom["metadata"]["component"]["name"] == "healthboard"
    refs = {one["ref"]: set(one.get("dependsOn", ())) for one in bom["dependencies"]}
    assert len(refs[sbom.MAIN]) == len(pins(PINS)) and set().union(*refs.values()) <= set(refs)
    reached, left = set(), [sbom.MAIN]
    while left:
        left += refs[ref := left.pop()] - reached
        reached.add(ref)
    assert reached == set(refs), "each package hangs on one that we chose"


def test_the_same_environment_gives_the_same_bytes(bom, tmp_path):
    told = subprocess.run(
        [sys.executable, "-m", "tests.supply.sbom", str(tmp_path / "sbom.json")], cwd=ROOT, capture_output=True, text=True
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    text = (tmp_path / "sbom.json").read_text()
    assert text == json.dumps(bom, indent=2, sort_keys=True) + "\n"
    assert str(ROOT) not in text and "timestamp" not in text and "serialNumber" not in text


def test_the_list_of_licences_is_up_to_date_and_holds_none_that_was_not_looked_at(bom, monkeypatch):
    monkeypatch.setattr(sbom, "build", lambda: bom)
    found = {row["name"]: licences.licence(row) for row in bom["components"]}
    found |= {name: told for name, (told, _) in licences.ELSEWHERE.items()}
    assert {*locked(RUNTIME)} == {canonicalize_name(name) for name in found}
    strange = {name: told for name, told in found.items() if not licences.allowed(told)}
    assert strange == {}
    assert licences.DOCUMENT.read_text() == licences.document(), "make licences"
    assert not licences.allowed("AGPL-3.0-only") and not licences.allowed("") and not licences.allowed("MIT AND X")
    assert licences.allowed("Apache-2.0 OR GPL-2.0-only") and licences.allowed("Apache-2.0 AND BSD-2-Clause")


@pytest.fixture
def database():
    """A vulnerability database on loopback that speaks OSV; `known`: package -> what it tells of it."""

    class Answers(BaseHTTPRequestHandler):
        known: dict[str, list] = {}

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"vulns": self.known.get(asked["package"]["name"], [])}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Answers, f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()
    server.server_close()


def test_an_audit_is_good_only_where_every_package_was_asked_about(database, tmp_path, monkeypatch):
    _, url = database
    short = tmp_path / "requirements.lock"
    short.write_text("\n".join(RUNTIME.read_text().split("annotated-types")[0].splitlines()) + "\n")
    status, lines = audit.audit(short, url)
    assert (status, lines) == (0, ["1 packages of requirements.lock: nothing is known against them"])
    monkeypatch.setattr(audit, "locked", lambda path: locked(RUNTIME))
    status, (line,) = audit.audit(short, url)
    assert status == 2 and line.startswith("NOT CHECKED: annotated-types, ")


def test_a_known_vulnerability_fails_the_audit_by_name(database, tmp_path):
    answers, url = database
    answers.known = {"amqp": [{
        "id": "PYSEC-1", "aliases": ["CVE-1"], "summary": "bad", "modified": "2026-01-01T00:00:00Z",
        "affected": [{"package": {"name": "amqp", "ecosystem": "PyPI"},
                      "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]}],
    }]}  # fmt: skip
    short = tmp_path / "requirements.lock"
    short.write_text("\n".join(RUNTIME.read_text().split("annotated-types")[0].splitlines()) + "\n")
    status, (line,) = audit.audit(short, url)
    assert status == 1 and line.startswith("amqp ") and "PYSEC-1" in line and line.endswith("mended in 99")


def test_a_database_that_does_not_answer_is_one_line_and_never_good():
    done = subprocess.run(
        [sys.executable, "-m", "tests.supply.audit", "--osv-url", "http://127.0.0.1:9/v1/query"], cwd=ROOT,
        capture_output=True, text=True,
    )  # fmt: skip
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and done.stdout == ""
    assert line.startswith("NOT CHECKED, the vulnerability database did not answer: ")
