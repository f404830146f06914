"""The parts of an installation: what each is started with, what it knows, and that the web needs no way into AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from django.db import connection

from healthboard import clock, operations, processes
from healthboard.celery import STAGES, TAKES
from healthboard.config import ROOT
from healthboard.fleet.models import Installation
from tests.services import spare_port

#: every way by which botocore finds credentials in its environment
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "x",
    "AWS_PROFILE": "prod", "AWS_WEB_IDENTITY_TOKEN_FILE": "/x", "AWS_ROLE_ARN": "x", "AWS_CONFIG_FILE": "/x",
    "AWS_SHARED_CREDENTIALS_FILE": "/x", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.2/x", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "x",
}  # fmt: skip
KNOWS = "import json; from healthboard.celery import app; app.loader.import_default_modules(); print(json.dumps(sorted(app.tasks)))"


@pytest.mark.parametrize("name", ["web", "beat", "sender"])
def test_what_has_no_business_in_aws_is_started_without_a_way_there(name):
    env = processes.environment(name, {**KEYS, "PATH": "/bin"})
    assert env == {"PATH": "/bin", "HEALTHBOARD_PROCESS": name, "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.mark.parametrize("name", ["reader", "actor", "all"])
def test_what_calls_aws_keeps_its_credentials(name):
    assert processes.environment(name, KEYS) == {**KEYS, "HEALTHBOARD_PROCESS": name}


def test_the_three_workers_share_all_queues_among_them():
    parts = [TAKES[name] for name in ("reader", "actor", "sender")]
    assert sorted(queue for part in parts for queue in part) == sorted(TAKES["all"])


@pytest.mark.parametrize("name", ["reader", "actor", "sender", "all"])
def test_a_worker_takes_its_queues_and_knows_their_tasks_alone(name):
    command = processes.command(name)
    assert command[command.index("-Q") + 1].split(",") == list(TAKES[name])
    env = {**os.environ, "HEALTHBOARD_PROCESS": name}
    done = subprocess.run([sys.executable, "-c", KNOWS], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    known = {task.split(".")[1] for task in json.loads(done.stdout) if task.startswith("workers.")}
    assert known == set(STAGES) & set(TAKES[name])


@pytest.mark.parametrize("args", [(), ("root",), ("web", "beat"), ("all",), ("manage",), ("prepare", "x")])
def test_a_process_that_is_none_is_one_clear_line(args, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "healthboard.processes", *args], cwd=ROOT, capture_output=True, text=True, timeout=30,
        env={**os.environ, "HEALTHBOARD_HOME": str(tmp_path)},
    )  # fmt: skip
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 1 and "web|beat|reader|actor|sender" in line


def test_a_command_has_no_way_into_aws_and_only_the_owners_own_ones_have_the_owner(monkeypatch, tmp_path):
    (tmp_path / "owner").write_text("postgres://owner@db/x\n")
    given = {
        **KEYS, "PATH": "/bin", "DATABASE_URL_FILE": "/x", "DATABASE_OWNER_URL_FILE": str(tmp_path / "owner"),
        "DJANGO_SUPERUSER_PASSWORD": "x",
    }  # fmt: skip
    monkeypatch.delenv("DATABASE_OWNER_URL", raising=False)
    monkeypatch.setenv("DATABASE_OWNER_URL_FILE", given["DATABASE_OWNER_URL_FILE"])
    plain = {
        "PATH": "/bin", "HEALTHBOARD_PROCESS": "beat", "AWS_EC2_METADATA_DISABLED": "true", "DJANGO_SUPERUSER_PASSWORD": "x",
    }  # fmt: skip
    assert processes.managing(["verify_audit"], given) == {**plain, "DATABASE_URL_FILE": "/x"}
    assert processes.managing(["purge"], given) == {**plain, "DATABASE_URL": "postgres://owner@db/x"}
    monkeypatch.delenv("DATABASE_OWNER_URL_FILE")
    assert processes.managing(["purge"], given) == {**plain, "DATABASE_URL_FILE": "/x"}, "as the role that is given"
    assert operations.OF[plain["HEALTHBOARD_PROCESS"]] == {}


def test_a_command_of_an_installation_never_falls_back_to_a_database_of_its_own(tmp_path):
    """Without its settings it would tell of an empty database, which reads as an outage."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HEALTHBOARD_", "DATABASE_"))}
    done = subprocess.run(
        [sys.executable, "-m", "healthboard.processes", "manage", "verify_audit"], cwd=ROOT, capture_output=True,
        text=True, timeout=60, env={**env, "HEALTHBOARD_MODE": "aws", "HEALTHBOARD_HOME": str(tmp_path)},
    )  # fmt: skip
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 1 and line.startswith(
        "verify_audit cannot be run: HEALTHBOARD_MODE=aws needs DATABASE_URL"
    )


@pytest.mark.django_db(transaction=True)
def test_the_web_process_starts_and_serves_without_any_aws_credential(tmp_path):
    Installation.objects.create(mode="aws", created_at=clock.now())
    port = spare_port()
    base = os.environ["DATABASE_URL"].rpartition("/")[0]
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HEALTHBOARD_"))}, **KEYS,
        "HEALTHBOARD_MODE": "aws", "HEALTHBOARD_HOME": str(tmp_path / "home"), "HEALTHBOARD_BIND": f"127.0.0.1:{port}",
        "HEALTHBOARD_ACCOUNTS": "123456789012", "HEALTHBOARD_REGIONS": "eu-west-1", "HOME": str(tmp_path),
        "DATABASE_URL": f"{base}/{connection.settings_dict['NAME']}", "HEALTHBOARD_HOSTS": "127.0.0.1",
    }  # fmt: skip
    log = (tmp_path / "web.log").open("w+")
    web = subprocess.Popen(
        [sys.executable, "-m", "healthboard.processes", "web"], cwd=ROOT, env=env, stdout=log, stderr=log
    )
    try:
        assert _ready(port, web), (tmp_path / "web.log").read_text()
        page = urllib.request.Request(
            f"http://127.0.0.1:{port}/accounts/login/", headers={"X-Forwarded-Proto": "https"}
        )
        with urllib.request.urlopen(page, timeout=20) as answer:
            assert answer.status == 200 and b"password" in answer.read().lower()
        kept = Path(f"/proc/{web.pid}/environ").read_text().split("\0")
        assert sorted(v for v in kept if v.startswith(("AWS_", "HEALTHBOARD_PROCESS"))) == [
            "AWS_EC2_METADATA_DISABLED=true", "HEALTHBOARD_PROCESS=web",
        ]  # fmt: skip
    finally:
        web.terminate()
        web.wait(30)


def _ready(port: int, web: subprocess.Popen) -> bool:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            if web.poll() is not None:
                return False
            time.sleep(0.1)
    return False


AS_IT_SAYS = {
    "web": "import healthboard.wsgi",
    "beat": "from healthboard.celery import app; from celery import signals; signals.beat_init.send(None)",
}


@pytest.mark.parametrize("name", AS_IT_SAYS)
def test_web_and_beat_know_what_they_are_however_they_are_started(name, tmp_path):
    """gunicorn or celery by hand, without the variable: no client is made in them either."""
    env = {k: v for k, v in os.environ.items() if k != "HEALTHBOARD_PROCESS"} | {"HEALTHBOARD_HOME": str(tmp_path)}
    code = (
        f"{AS_IT_SAYS[name]}\nfrom healthboard import aws\n"
        "try: aws.client('ec2', account='111122223333', region='us-east-1')\n"
        "except aws.NotAllowed as refused: print(refused)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == f"the {name} process makes no calls to AWS", done.stderr
