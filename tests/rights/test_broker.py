"""The broker behind TLS with a user for each process: what it takes to reach it, and what each may do there."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest
import redis
from django.core.management import CommandError, call_command
from kombu import Connection

from healthboard import broker, transport
from healthboard.celery import QUEUES, TAKES, app
from healthboard.config import ROOT, BadSetting
from tests.rights.tls import Broker

P = "healthboard:"
WORKERS = ("reader", "actor", "sender")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = Broker(tmp_path_factory.mktemp("broker"))
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def empty(server):
    server.admin.flushall()


def connected(server: Broker, process: str, monkeypatch, host: str = "localhost", **options) -> Connection:
    """As the Celery app of that process connects."""
    for name, value in server.env(process).items():
        monkeypatch.setenv(name, value)
    url = server.url(process, host)
    ways = {**app.conf.broker_transport_options, **broker.unacked(process), **options}
    return Connection(url, ssl=broker.tls(url), transport_options=ways)


def push(server: Broker, process: str, monkeypatch, task: str, *args: int) -> None:
    with connected(server, process, monkeypatch) as connection:
        app.send_task(task, args=args, connection=connection, ignore_result=True, retry=False)


# --- TLS


def test_a_broker_is_reached_by_tls_with_the_named_authority(server, monkeypatch):
    for process in ("web", "reader"):
        for name, value in server.env(process).items():
            monkeypatch.setenv(name, value)
        assert broker.connect(3).ping() and broker.trouble() == ""


def test_a_certificate_of_nobody_known_is_refused(server, monkeypatch):
    monkeypatch.setenv("REDIS_URL", server.url("reader"))
    assert "certificate verify failed" in broker.trouble()
    with pytest.raises(redis.exceptions.ConnectionError, match="certificate verify failed"), Connection(
        server.url("reader"), ssl=broker.tls(server.url("reader"))
    ) as connection:  # fmt: skip
        connection.ensure_connection(max_retries=1, interval_start=0, reraise_as_library_errors=False)


def test_a_certificate_for_another_name_is_refused(server, monkeypatch):
    for name, value in {**server.env("reader"), "REDIS_URL": server.url("reader", "127.0.0.1")}.items():
        monkeypatch.setenv(name, value)
    assert "IP address mismatch" in broker.trouble()
    with pytest.raises(redis.exceptions.ConnectionError, match="IP address mismatch"), connected(
        server, "reader", monkeypatch, "127.0.0.1"
    ) as connection:  # fmt: skip
        connection.ensure_connection(max_retries=1, interval_start=0, reraise_as_library_errors=False)


@pytest.mark.parametrize(
    "env, said",
    [
        ({"REDIS_URL": "redis://redis.internal:6379/0"}, "must begin with rediss://"),
        ({"REDIS_URL": "rediss://redis.internal:6379/0?ssl_cert_reqs=none"}, "must say nothing of ssl"),
        ({"REDIS_URL": "rediss://redis.internal:6379/0?ssl_check_hostname="}, "must say nothing of ssl"),
        ({"REDIS_URL": "rediss://redis.internal/0", "HEALTHBOARD_REDIS_CA": "/nowhere.pem"}, "is no file"),
    ],
)
def test_a_way_around_the_check_is_one_clear_line(monkeypatch, env, said):
    for name, value in {"HEALTHBOARD_MODE": "aws", **env}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadSetting, match=said):
        broker.tls(broker.url())


def test_on_this_host_alone_a_broker_may_be_without_tls(monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:6379/0")
    assert broker.tls(broker.url()) == {}


@pytest.mark.parametrize("process", ["reader", "beat"])
def test_a_broker_that_may_drop_messages_stops_the_start_in_one_line(server, process, tmp_path):
    server.admin.config_set("maxmemory-policy", "allkeys-lru")
    try:
        env = {**os.environ, **server.env(process), "HEALTHBOARD_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "healthboard.processes", process], cwd=ROOT, env=env, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
    finally:
        server.admin.config_set("maxmemory-policy", "noeviction")
    (line,) = done.stderr.strip().splitlines()
    assert (
        done.returncode == 1 and "maxmemory-policy is allkeys-lru, which drops messages: set it to noeviction" in line
    )


# --- users


@pytest.mark.parametrize("process", broker.USERS)
def test_everybody_may_push_a_wake_up(server, monkeypatch, process):
    for task, queue in (("workers.repair.advance", "repair"), ("workers.notify.sweep", "notify")):
        push(server, process, monkeypatch, task, *([7] if task.endswith("advance") else []))
        assert server.admin.llen(P + queue) == 1


@pytest.mark.parametrize("process", WORKERS)
def test_a_worker_takes_from_its_own_queues_and_restores_what_it_did_not_end(server, monkeypatch, process):
    queue = TAKES[process][0]
    with connected(server, process, monkeypatch, visibility_timeout=0) as connection:
        app.send_task(f"workers.{queue}.sweep", connection=connection, ignore_result=True, retry=False)
        channel = connection.default_channel
        took = []
        channel.basic_consume(queue, no_ack=False, callback=took.append, consumer_tag="t")
        connection.drain_events(timeout=5)
        assert len(took) == 1 and server.admin.llen(P + queue) == 0
        assert server.admin.hlen(f"{P}unacked.{process}") == 1
        channel.qos.restore_visible(0, 10, 1)
        assert server.admin.llen(P + queue) == 1 and server.admin.hlen(f"{P}unacked.{process}") == 0
        connection.drain_events(timeout=5)
        took[-1].ack()
        assert server.admin.llen(P + queue) == 0 and server.admin.hlen(f"{P}unacked.{process}") == 0


@pytest.mark.parametrize("process", WORKERS)
@pytest.mark.parametrize("queue", QUEUES)
def test_nobody_reads_another_workers_queue(server, process, queue):
    server.admin.lpush(P + queue, "x")
    client = server.client(process)
    if queue in TAKES[process]:
        assert client.brpop(P + queue, 1) == ((P + queue).encode(), b"x")
        return
    for what in (
        lambda: client.brpop(P + queue, 1), lambda: client.rpop(P + queue), lambda: client.lrange(P + queue, 0, -1),
        lambda: client.delete(P + queue), lambda: client.rename(P + queue, P + TAKES[process][0]),
    ):  # fmt: skip
        with pytest.raises(redis.exceptions.NoPermissionError):
            what()
    assert client.llen(P + queue) == 1


@pytest.mark.parametrize("process", broker.USERS)
def test_what_others_have_taken_is_not_seen(server, process):
    client = server.client(process)
    for other in WORKERS:
        if other == process:
            continue
        server.admin.hset(f"{P}unacked.{other}", "tag", "message")
        for what in (
            lambda key: client.hget(key, "tag"), lambda key: client.hgetall(key), lambda key: client.hdel(key, "tag"),
        ):  # fmt: skip
            with pytest.raises(redis.exceptions.NoPermissionError):
                what(f"{P}unacked.{other}")


@pytest.mark.parametrize("process", ["web", "beat"])
def test_web_and_beat_push_and_count_and_nothing_else(server, process):
    client = server.client(process)
    client.lpush(f"{P}repair", "x")
    assert client.llen(f"{P}repair") == 1
    for queue in QUEUES:
        for what in (client.rpop, client.lrange, client.delete, client.get):
            with pytest.raises(redis.exceptions.NoPermissionError):
                what(P + queue, *((0, -1) if what == client.lrange else ()))


@pytest.mark.parametrize("process", broker.USERS)
@pytest.mark.parametrize(
    "command",
    [
        "CONFIG GET *", "CONFIG SET maxmemory 1", "ACL LIST", "ACL SETUSER web on", "KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB",
        "EVAL return(1) 0", "SCRIPT FLUSH", "MONITOR", "SHUTDOWN", "SAVE", "CLIENT LIST", "CLIENT KILL ID 1",
        "SUBSCRIBE x", "PUBLISH x y", "MODULE LIST", "REPLICAOF no one", "GET other:key", "LPUSH other:queue x",
        "FUNCTION LIST", "MIGRATE x 1 y 0 1", "DUMP healthboard:repair", "SWAPDB 0 1", "SLOWLOG GET",
    ],
)  # fmt: skip
def test_the_server_itself_and_other_keys_are_out_of_reach(server, process, command):
    with pytest.raises(redis.exceptions.NoPermissionError):
        server.client(process).execute_command(*command.split(" "))


def test_without_a_password_nobody_comes_in(server):
    for given in ("", "default:x@", "web:wrong@"):
        with pytest.raises(redis.exceptions.RedisError, match=r"(?i)auth|password|user"):
            redis.Redis.from_url(f"redis://{given}127.0.0.1:{server.plain}/0").ping()


def test_the_web_counts_what_waits_and_what_is_taken(server, settings, monkeypatch):
    from healthboard import queues

    for name, value in server.env("web").items():
        monkeypatch.setenv(name, value)
    settings.REDIS_URL = server.url("web")
    server.admin.lpush(f"{P}repair", "a", "b")
    for process in WORKERS:
        server.admin.hset(f"{P}unacked.{process}", "x", "y")
    assert {k: v for k, v in queues.lengths().items() if v} == {"repair": 2, "taken": 3}


# --- the shipped file and its command


def test_the_shipped_file_is_what_the_code_says():
    shown = (ROOT / "docs" / "broker" / "users.acl").read_text()
    passwords = {process: f"change-me-{process}" for process in broker.USERS}
    rules = "\n".join(line for line in shown.splitlines() if not line.startswith("#")) + "\n"
    assert rules == broker.acl(passwords)


def test_the_command_makes_users_and_urls_that_fit(tmp_path):
    done = subprocess.run(
        [sys.executable, "manage.py", "broker_acl", str(tmp_path / "b"), "--at", "rediss://redis.internal:6379/0"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = {path.name: path for path in (tmp_path / "b").iterdir()}
    assert set(made) == {"users.acl", *(f"{process}.url" for process in broker.USERS)}
    assert {path.stat().st_mode & 0o777 for path in made.values()} == {0o600}
    passwords = {name: made[f"{name}.url"].read_text().split(":")[2].rpartition("@")[0] for name in broker.USERS}
    assert len(set(passwords.values())) == len(broker.USERS) and min(map(len, passwords.values())) >= 32
    assert made["users.acl"].read_text() == broker.acl(passwords)
    assert not any(password in made["users.acl"].read_text() for password in passwords.values())


def test_passwords_are_changed_while_everybody_goes_on(server, tmp_path):
    """The old and the new count together while processes are started anew, one after the other."""
    folder, at = tmp_path / "b", f"redis://127.0.0.1:{server.plain}/0"

    def made(**how: bool) -> dict[str, str]:
        call_command("broker_acl", str(folder), at=at, stdout=io.StringIO(), **how)
        for line in (folder / "users.acl").read_text().splitlines():
            name, *rules = line.removeprefix("user ").split(" ")
            if name in broker.USERS:
                server.admin.execute_command("ACL", "SETUSER", name, *acl_words(rules))
        return {one: (folder / f"{one}.url").read_text().strip() for one in broker.USERS}

    def let_in(urls: dict[str, str]) -> set[str]:
        found = set()
        for process, url in urls.items():
            with contextlib.suppress(redis.AuthenticationError), redis.Redis.from_url(url) as client:
                found |= {process} if client.ping() else set()
        return found

    every = set(broker.USERS)
    try:
        first = made()
        assert let_in(first) == every
        second = made(beside=True)
        assert not set(first.values()) & set(second.values())
        assert let_in(first) == every and let_in(second) == every
        assert made(alone=True) == second
        assert let_in(first) == set() and let_in(second) == every
    finally:
        server.admin.execute_command("ACL", "LOAD")


def acl_words(rules: list[str]) -> list[str]:
    """The words of a line as SETUSER takes them: a selector in brackets is one."""
    return re.findall(r"\([^)]*\)|\S+", " ".join(rules))


@pytest.mark.parametrize(
    "at",
    [
        "redis.internal",
        "rediss://x:y@redis.internal:6379/0",
        "https://redis.internal:6379/",
        "rediss://h/0",
        "rediss://h:x/",
    ],
)
def test_the_command_refuses_what_is_no_place(tmp_path, at):
    with pytest.raises(CommandError, match="--at is like"):
        call_command("broker_acl", str(tmp_path / "b"), at=at)
    assert not (tmp_path / "b").exists()


def test_both_schemes_mean_the_transport_that_drops():
    for scheme in ("redis", "rediss"):
        assert Connection(f"{scheme}://127.0.0.1:1/0").get_transport_cls() is transport.Transport
