"""compose.yaml: valid by the specification, closed as far as it goes, and in step with the code and the documents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import compose_spec
import pytest
import yaml

from healthboard import broker, processes
from tests.install.shipped import (
    FOLDER,
    MANAGE,
    OPTIONAL,
    PROCESSES,
    WITHOUT_AWS,
    block,
    compose,
    documented,
    env_file,
    image,
    read_by_the_server,
)

SERVICES = compose()["services"]


def test_it_is_valid_by_the_compose_specification():
    compose_spec.PyCompose.from_json(json.dumps(compose())).validate()
    broken = {**compose(), "services": {"web": {"image": "x", "read_onyl": True}}}
    with pytest.raises(ValueError, match="read_onyl"):
        compose_spec.PyCompose.from_json(json.dumps(broken)).validate()


def test_it_passes_a_security_linter():
    done = subprocess.run(
        [Path(sys.executable).with_name("compose-lint"), "check", "--fail-on", "low", "--format", "json", "compose.yaml"],
        cwd=FOLDER, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = json.loads(done.stdout)
    # a digest is pinned where an image is chosen, by HEALTHBOARD_IMAGE and the like: README.md
    assert [one for one in said["findings"] if one["rule_id"] != "CL-0019"] == [] and said["errors"] == []


def test_every_process_is_there_and_no_other():
    ours = {name: one for name, one in SERVICES.items() if "healthboard" in one["image"]}
    assert set(ours) == {*PROCESSES, MANAGE} and {*processes.NAMES, "prepare"} == set(PROCESSES)
    assert all(ours[name]["command"] == [name] and "profiles" not in ours[name] for name in PROCESSES)
    command = ours[MANAGE]
    assert command["entrypoint"] == [*image().entrypoint, MANAGE] and command["profiles"] == [MANAGE], (
        "`up` passes it over"
    )
    assert set(command["depends_on"]) == {"db"}, "a command prepares nothing: `prepare` counts as a new start"
    assert command["volumes"] == ours["reader"]["volumes"], "verify_audit compares with the heads that are kept there"
    for name in processes.NAMES:
        assert ours[name]["depends_on"] == {"prepare": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_do_nothing_but_its_work(name):
    one = SERVICES[name]
    assert one["read_only"] is True and one["cap_drop"] == ["ALL"] and "cap_add" not in one
    assert one["security_opt"] == ["no-new-privileges:true"] and re.fullmatch(r"[1-9]\d+:[1-9]\d+", one["user"])
    assert "privileged" not in one and one["mem_limit"] and one["pids_limit"] and one["cpus"]
    if name in (*PROCESSES, MANAGE):
        assert one["user"] == image().user
        at = [volume.partition(":")[2] for volume in one.get("volumes", [])] + [
            t.partition(":")[0] for t in one["tmpfs"]
        ]
        assert at == ["/var/lib/healthboard"], "the only place that it writes to"


def test_each_process_has_its_own_secrets_and_no_other():
    common = {"database.url", "ca.pem", "secret-key"}
    more = {
        "prepare": {"owner.url"}, MANAGE: {"web.url"}, "web": {"web.url"}, "beat": {"beat.url"}, "sender": {"sender.url"},
        "reader": {"reader.url", "external-id", "reader.aws"}, "actor": {"actor.url", "external-id", "actor.aws"},
    }  # fmt: skip
    assert {name: set(SERVICES[name]["secrets"]) for name in (*PROCESSES, MANAGE)} == {
        n: common | m for n, m in more.items()
    }
    assert set(broker.USERS) == set(processes.NAMES)
    for name in (*PROCESSES, MANAGE):
        named = {
            value.removeprefix("/run/secrets/")
            for value in SERVICES[name]["environment"].values()
            if "/run/secrets/" in value
        }
        assert named == set(SERVICES[name]["secrets"]), name
    used = {s if isinstance(s, str) else s["source"] for one in SERVICES.values() for s in one["secrets"]}
    assert used == set(compose()["secrets"])


def test_secrets_that_only_some_need_are_added_by_an_override_each_to_its_process():
    more = yaml.safe_load(block("Secrets that only some need", "yaml"))
    compose_spec.PyCompose.from_json(json.dumps(more)).validate()
    said = {
        variable.removesuffix("_FILE"): name
        for name, one in more["services"].items()
        for variable, path in one["environment"].items()
        if variable.endswith("_FILE") and path.removeprefix("/run/secrets/") in one["secrets"]
    }
    assert said == OPTIONAL and {s for one in more["services"].values() for s in one["secrets"]} == set(more["secrets"])
    assert not set(more["secrets"]) & set(compose()["secrets"])
    owned = (FOLDER / "secrets.sh").read_text().partition("chmod 644")[2].partition("chown 10001")[0].split()
    assert {one["file"].removeprefix("secrets/") for one in more["secrets"].values()} <= {w.rstrip(";") for w in owned}


@pytest.mark.parametrize("name", [*WITHOUT_AWS, MANAGE])
def test_what_has_no_business_in_aws_has_no_way_to_credentials(name):
    given = {v for v in SERVICES[name]["environment"] if v.startswith("AWS_")}
    assert given == {"AWS_EC2_METADATA_DISABLED"} and not [v for v in env_file() if v.startswith("AWS_")]
    assert "/.aws" not in json.dumps(SERVICES[name])


def test_database_and_broker_have_no_way_out_and_no_port():
    assert compose()["networks"]["data"] == {"internal": True}
    for name in ("db", "valkey"):
        assert SERVICES[name]["networks"] == ["data"] and "ports" not in SERVICES[name]
    assert [name for name, one in SERVICES.items() if "ports" in one] == ["web"]
    assert SERVICES["web"]["ports"] == ["127.0.0.1:8000:8000"]
    assert {name for name, one in SERVICES.items() if "out" in one["networks"]} == {"web", "reader", "actor", "sender"}


def test_every_variable_that_is_set_is_one_that_the_code_reads():
    ours = (
        {v for name in (*PROCESSES, MANAGE) for v in SERVICES[name]["environment"]} | set(env_file()) | set(image().env)
    )
    ours = {v.removesuffix("_FILE") for v in ours if not v.startswith(("AWS_", "PYTHON"))} - {"PATH", "HOME", "TMPDIR"}
    assert ours - read_by_the_server() == set()


def test_every_variable_is_documented_and_every_documented_one_is_read():
    assert documented() - read_by_the_server() == set()
    assert read_by_the_server() - documented() == set()
    assert len(documented()) > 40
