"""A web process as it is deployed, in aws mode and spoken to over HTTP: what Django says of its settings, what every kind of
answer carries, its cookies, and what it does without TLS."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from django.conf import global_settings
from django.core.management import get_commands, load_command_class
from django.db import connection
from django.test import override_settings

from healthboard import clock
from healthboard.config import ROOT
from healthboard.fleet.models import Installation
from healthboard.people import tokens
from tests import factories
from tests.services import spare_port

#: what docs/real-account.md asks for at least, without what leads into AWS
HOST = "board.example.com"
LEAST = {
    "HEALTHBOARD_MODE": "aws", "HEALTHBOARD_ACCOUNTS": "123456789012", "HEALTHBOARD_REGIONS": "eu-west-1",
    "HEALTHBOARD_HOSTS": HOST, "HEALTHBOARD_ORIGINS": f"https://{HOST}", "REDIS_URL": "rediss://web:x@redis.internal/0",
    "HEALTHBOARD_SECRET_KEY": "made-for-this-test-and-long-enough-to-be-one-50-characters",
}  # fmt: skip


def environment(tmp_path, **more: str) -> dict[str, str]:
    clean = {name: v for name, v in os.environ.items() if not name.startswith(("AWS_", "HEALTHBOARD_", "DJANGO_"))}
    return {**clean, **LEAST, "HEALTHBOARD_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), **more}


def test_the_check_before_a_deployment_says_nothing(tmp_path):
    env = environment(tmp_path, DATABASE_URL="postgres://healthboard:x@db.internal/healthboard")
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    # nothing is silenced: what may be one day stands here with its reason
    assert done.stdout.strip() == "System check identified no issues (0 silenced)."


def test_no_command_runs_the_checks_by_itself_and_no_worker_loads_the_pages(tmp_path):
    """The checks are of the code, and the test above runs them: each start would pay for them with a second."""
    ours = [name for name, at in get_commands().items() if at == "healthboard"]
    assert len(ours) > 15
    assert [name for name in ours if load_command_class("healthboard", name).requires_system_checks] == [
        "migrate"  # as Django's own, where a person gives it by hand
    ]
    code = (
        "import sys, django; django.setup(); from healthboard.celery import app; app.loader.import_default_modules();"
        "assert 'workers.repair.tasks' in sys.modules; assert 'healthboard.urls' not in sys.modules"
    )
    env = environment(tmp_path, HEALTHBOARD_MODE="sandbox", DJANGO_SETTINGS_MODULE="healthboard.settings")
    env.pop("CELERY_SKIP_CHECKS", "")  # set where the app is made
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, timeout=60)


def test_a_database_elsewhere_gets_the_options_that_check_its_certificate(tmp_path):
    env = environment(tmp_path, DATABASE_URL="postgres://healthboard:x@db.internal/healthboard")
    code = "from django.conf import settings; print(settings.DATABASES['default']['OPTIONS'])"
    env["DJANGO_SETTINGS_MODULE"] = "healthboard.settings"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert "'sslmode': 'verify-full', 'sslrootcert': 'system'" in done.stdout, done.stderr


class Web(SimpleNamespace):
    def ask(
        self, path: str, method: str = "GET", body: str = "", *, tls: bool = True, **headers: str
    ) -> SimpleNamespace:
        plain = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        told = {"Host": HOST, **({"X-Forwarded-Proto": "https"} if tls else {}), **headers}
        plain.request(method, path, body or None, told)
        answer = plain.getresponse()
        read = SimpleNamespace(status=answer.status, text=answer.read().decode(), all=answer.getheaders())
        plain.close()
        read.headers = {name.lower(): value for name, value in read.all}
        read.cookies = {value.split("=")[0]: value for name, value in read.all if name.lower() == "set-cookie"}
        return read


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("deployed")


@pytest.fixture
def web(home, transactional_db):
    """One process for one test function, which asks it everything: the database of a test lasts as long as the test."""
    Installation.objects.create(mode="aws", created_at=clock.now())
    port = spare_port()
    base = os.environ["DATABASE_URL"].rpartition("/")[0]
    env = environment(
        home, DATABASE_URL=f"{base}/{connection.settings_dict['NAME']}", HEALTHBOARD_BIND=f"127.0.0.1:{port}"
    )
    log = (home / "web.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "healthboard.processes", "web"], cwd=ROOT, env=env, stdout=log, stderr=log
    )
    made = Web(port=port)
    try:
        for _ in range(600):
            try:
                if made.ask("/healthz").status == 200:
                    break
            except OSError:
                assert process.poll() is None, (home / "web.log").read_text()
                time.sleep(0.1)
        yield made
    finally:
        process.terminate()
        process.wait(30)


def test_what_is_deployed_holds_what_the_documents_say_of_it(web):
    user = factories.person("viewer", name="vera")
    with override_settings(PASSWORD_HASHERS=global_settings.PASSWORD_HASHERS):  # as the process keeps them
        user.set_password(factories.PASSWORD)
        user.save()
    assert re.match(r"pbkdf2_sha256\$[1-9]\d{6}\$", user.password), "a million rounds and more"
    token = tokens.issue_api(user, actor=factories.actor(user))
    form = web.ask("/accounts/login/")
    look_at_cookies(web, form)
    cookies = log_in(web, form)
    page = web.ask("/", Cookie=cookies)
    assert page.status == 200, page.text[:500]
    kinds = {
        "page": page, "form": form, "to the log-in": web.ask("/fleet/"), "no such page": web.ask("/no/such/", Cookie=cookies),
        "not allowed": web.ask("/admin/auth/user/", Cookie=cookies), "admin": web.ask("/admin/"),
        "style": web.ask(found(page.text, "board.css")), "script": web.ask(found(page.text, "board.js")),
        "picture": web.ask(found(page.text, "favicon.svg")), "no such file": web.ask("/static/none.css"),
        "folder": web.ask("/static/board/"), "api": web.ask("/api/v1/cases", Authorization=f"Bearer {token}"),
        "api, stranger": web.ask("/api/v1/cases"), "api, wrong body": web.ask("/api/v1/node/reports", "POST", "{"),
        "described": web.ask("/api/v1/openapi.json"), "table": web.ask("/fleet/?format=csv", Cookie=cookies),
        "forged form": web.ask("/system/stop/", "POST", "reason=x", Cookie=cookies), "health": web.ask("/healthz"),
        "metrics": web.ask("/metrics"), "another host": web.ask("/", Host="evil.example.com"), "method": web.ask("/", "TRACE"),
    }  # fmt: skip
    statuses = {name: answer.status for name, answer in kinds.items()}
    assert statuses == {
        "page": 200, "form": 200, "to the log-in": 302, "no such page": 404, "not allowed": 302, "admin": 302, "style": 200,
        "script": 200, "picture": 200, "no such file": 404, "folder": 404, "api": 200, "api, stranger": 401,
        "api, wrong body": 415, "described": 200, "table": 200, "forged form": 403, "health": 200, "metrics": 401,
        "another host": 400, "method": 405,
    }  # fmt: skip
    wrong = {name: told for name, answer in kinds.items() if (told := missing(name, answer))}
    assert wrong == {}
    look_without_tls(web, token)


def missing(name: str, answer: SimpleNamespace) -> list[str]:
    """What an answer of that kind lacks."""
    has, found = answer.headers, []
    csp = has.get("content-security-policy", "")
    for directive in ("default-src 'none'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
        if directive not in csp:
            found.append(f"CSP without {directive}")
    if "unsafe" in csp or "*" in csp:
        found.append(f"CSP allows too much: {csp}")
    wanted = {
        "strict-transport-security": "max-age=31536000; includeSubDomains; preload", "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin", "x-frame-options": "DENY", "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }  # fmt: skip
    found += [f"{key}: {has.get(key)}" for key, value in wanted.items() if has.get(key) != value]
    if "camera=()" not in has.get("permissions-policy", ""):
        found.append("no Permissions-Policy")
    if name not in ("style", "script", "picture") and "no-store" not in has.get("cache-control", ""):
        found.append(f"may be kept: {has.get('cache-control')}")
    if answer.text and not re.match(r"application/json|image/svg\+xml|.*charset=", has.get("content-type", "")):
        found.append(f"content type {has.get('content-type')}")
    for key in ("access-control-allow-origin", "x-powered-by"):
        if key in has:
            found.append(f"{key}: {has[key]}")
    if re.search(r"\d", has.get("server", "")):
        found.append(f"a version: {has['server']}")
    if any(word in answer.text for word in ("Traceback", "django.", "postgres", str(ROOT))):
        found.append("tells of its insides")
    return found


def found(text: str, name: str) -> str:
    stem, _, kind = name.partition(".")
    return re.search(rf'"(/static/board/{stem}[\w.]*\.{kind})"', text)[1]


def look_at_cookies(web: Web, form: SimpleNamespace) -> None:
    kept = {**form.cookies}
    sent = urlencode({"theme": "dark", "csrfmiddlewaretoken": csrf(form)})
    looked = web.ask("/look/", "POST", sent, **as_form(form))
    kept |= looked.cookies
    assert set(kept) == {"__Host-csrf", "__Host-theme"}
    for name, value in kept.items():
        assert all(part in value for part in ("; Secure", "; Path=/", "; SameSite=")) and "Domain" not in value, value
        assert "HttpOnly" in value or name == "__Host-csrf", value


def log_in(web: Web, form: SimpleNamespace) -> str:
    sent = {"username": "vera", "password": factories.PASSWORD, "csrfmiddlewaretoken": csrf(form)}
    answer = web.ask("/accounts/login/", "POST", urlencode(sent), **as_form(form))
    assert answer.status == 302 and set(answer.cookies) == {"__Host-session", "__Host-known", "__Host-csrf"}
    for name in ("__Host-session", "__Host-known"):
        value = answer.cookies[name]
        assert all(part in value for part in ("; Secure", "; HttpOnly", "; Path=/", "; SameSite=")), value
        assert "Domain" not in value
    return "; ".join(value.split(";")[0] for value in {**form.cookies, **answer.cookies}.values())


def as_form(form: SimpleNamespace) -> dict[str, str]:
    return {
        "Content-Type": "application/x-www-form-urlencoded", "Referer": f"https://{HOST}/accounts/login/",
        "Cookie": "; ".join(value.split(";")[0] for value in form.cookies.values()),
    }  # fmt: skip


def csrf(form: SimpleNamespace) -> str:
    return re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)[1]


def look_without_tls(web: Web, token: str) -> None:
    """A person is led to https; a program, which has sent its token already, is told so."""
    page = web.ask("/fleet/", tls=False)
    assert (page.status, page.headers["location"]) == (301, f"https://{HOST}/fleet/")
    for path in ("/api/v1/cases", "/metrics"):
        answer = web.ask(path, tls=False, Authorization=f"Bearer {token}")
        assert answer.status == 403 and json.loads(answer.text)["error"] == "https_only"
    assert web.ask("/healthz", tls=False).status == 200
    led = web.ask("/fleet/", **{"X-Forwarded-Host": "evil.example.com"})
    assert led.status == 302 and "evil" not in led.headers["location"]
