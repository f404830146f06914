"""What compose.yaml starts, started without a container engine: the files that the image has and no others, a user without
rights, a root that is read-only, the secrets of the service. It prepares, serves and works, and writes where it says."""

from __future__ import annotations

import signal
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from tests.install.jail import needed
from tests.install.shipped import compose
from tests.install.site import HOME, USER, Site, complaints


@pytest.fixture(scope="module")
def site():
    needed()
    folder = Path(tempfile.mkdtemp(prefix="healthboard-site-"))  # not pytest's, which other users may not pass through
    folder.chmod(0o755)
    made = Site(folder)
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def prepared(site):
    process = site.start("prepare")
    assert process.wait(120) == 0, site.log("prepare")
    return site


@pytest.fixture(scope="module")
def running(prepared):
    prepared.started = {name: prepared.start(name) for name in ("web", "beat", "sender")}
    return prepared


def until(check, process, site, name, seconds: float = 60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        assert process.poll() is None, site.log(name)
        time.sleep(0.1)
    raise AssertionError(f"{name}: {site.log(name)}")


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_prepare_made_the_database_with_two_roles(prepared):
    said = prepared.log("prepare")
    assert (
        "healthboard may add to the audit record" in said and said.splitlines()[-1] == "prepared: start the processes"
    )
    assert complaints(said) == []


def test_the_web_server_answers_its_own_check_and_people(running):
    web, check = running.started["web"], compose()["services"]["web"]["healthcheck"]["test"]
    until(lambda: answers(running.web), web, running, "web")
    command = [part.replace(":8000/", f":{running.web}/") for part in check[1:]]
    assert running.ended("web", command, running.settings("web")) == (0, "")
    elsewhere = [part.replace(":8000/", f":{running.plain}/") for part in check[1:]]
    assert running.ended("web", elsewhere, running.settings("web"))[0] != 0, "a check that cannot fail is none"

    def page(path: str) -> tuple[int, bytes]:
        headers = {"Host": "healthboard.example.com", "X-Forwarded-Proto": "https"}
        asked = urllib.request.Request(f"http://127.0.0.1:{running.web}{path}", headers=headers)
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.read()

    assert page("/readyz") == (200, b"ready\n")
    status, text = page("/accounts/login/")
    assert status == 200 and b'href="/static/' in text, "templates are in the image"
    sheet = text.split(b'href="/static/')[1].split(b'"')[0].decode()
    assert page(f"/static/{sheet}")[0] == 200, "static files are in the image"


def test_a_worker_takes_from_its_queue_through_tls_as_its_user(running):
    until(lambda: ("sender", "brpop") in running.connected(), running.started["sender"], running, "sender")
    until(lambda: "beat" in running.log("beat"), running.started["beat"], running, "beat")


def test_a_command_runs_beside_them_and_the_purge_with_the_owner_of_prepare(running):
    assert running.run("manage", "check_invariants") == (0, "all invariants hold\n")
    code, said = running.run("manage", "audit_purge", "--before", "2020-01-01")
    assert code == 2 and "the payloads stay: permission denied" in said
    assert running.run("prepare", "manage", "audit_purge", "--before", "2020-01-01") == (0, "0 payloads purged\n")


@pytest.mark.parametrize("name", ["web", "beat", "sender"])
def test_a_process_has_no_rights(running, name):
    status = dict(
        x.split(":\t", 1)
        for x in Path(f"/proc/{running.started[name].pid}/status").read_text().splitlines()
        if ":\t" in x
    )
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(USER)} and status["Groups"].strip() == ""
    assert all(int(status[which], 16) == 0 for which in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"))
    assert status["NoNewPrivs"] == "1"


def test_nothing_can_be_written_but_in_one_place(running):
    """What the tests here rest on: the jail is as closed as a container with a read-only root."""
    code = (
        "import pathlib\nfor at in ('/', '/opt/healthboard', '/opt/healthboard/healthboard', '/tmp', '/var/tmp', '/run', '/etc', "
        f"'/var/lib', '/run/secrets', '{HOME}'):\n"
        "    try: (pathlib.Path(at) / 'probe').write_text('x'); print(at)\n    except OSError: pass"
    )
    assert running.ended("web", ["python", "-c", code], running.settings("web")) == (0, f"{HOME}\n")
    (running.home("web") / "probe").unlink()


@pytest.mark.parametrize("name", ["web", "beat", "sender"])
def test_a_process_ends_when_it_is_told_and_wrote_nothing_elsewhere(running, name):
    process = running.started[name]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0, running.log(name)
    assert complaints(running.log(name)) == []
    top = {path.name for path in running.home(name).iterdir()}
    assert top <= {"run", "static", "secrets", "audit-heads.log", "audit-head.json"}, "left behind in its home"
    assert bool(list((running.home(name) / "run").glob("beat-schedule*"))) == (name == "beat")
    assert not list((running.home(name) / "secrets").glob("*")), "the secret key was given"
