"""A newcomer follows docs/install.md, command by command, as a user without rights in a fresh folder (tests/install/place.py).

PostgreSQL with TLS, passwords and both roles, Valkey behind TLS with the users of the document, five processes: all real.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time

import pytest

from healthboard import broker
from tests.install.place import opened
from tests.upgrade.released import releases

pytestmark = pytest.mark.loop


@pytest.fixture(scope="module")
def place():
    with opened() as made:
        yield made


# --- the tests below are one story, in the order of the document


def test_the_code_is_installed_with_its_packages_alone(place):
    place.reader.section("1. Code and packages")
    assert place.opt.resolve() == place.opt.parent / "healthboard-0.1.0"
    assert (place.opt / ".venv" / "bin" / "python").exists() and not (place.opt / "tests").exists()


def test_settings_and_secrets_are_files_of_their_owner_alone(place):
    place.authority.cert_pem.write_to_path(str(place.folder / "ca.pem"))
    (place.folder / "ca.pem").chmod(0o644)
    place.reader.section("2. Settings and secrets")
    place.reader.type(f"cp {place.folder / 'ca.pem'} {place.etc}/secrets/ca.pem")
    secrets = place.etc / "secrets"
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert {f.name: oct(f.stat().st_mode & 0o077) for f in secrets.iterdir() if f.name != "ca.pem"} == {
        name: "0o0" for name in (
            "secret-key", "external-id", "owner-password", "app-password", "owner.url", "database.url",
        )
    }  # fmt: skip


def test_the_database_has_two_roles_and_wants_their_passwords(place):
    place.reader.section("3. PostgreSQL")
    rows = place.database.ask(
        "SELECT rolname, rolsuper FROM pg_roles WHERE rolname LIKE 'healthboard%' ORDER BY 1", "postgres"
    )
    assert rows == [("healthboard", False), ("healthboard_owner", False)]


def test_the_broker_gets_the_users_of_the_document(place):
    place.reader.section("4. The broker")
    place.serve_messages()
    assert {path.stem for path in (place.etc / "secrets").glob("*.url")} == {*broker.USERS, "owner", "database"}


def test_nothing_starts_before_prepare_and_prepare_says_what_it_lacks(place):
    said = place.reader.refused(".venv/bin/python -m healthboard.processes web")
    said += place.reader.refused("DATABASE_OWNER_URL_FILE=$PWD/none .venv/bin/python -m healthboard.processes prepare")
    assert said.splitlines() == [
        "healthboard cannot start: the database lacks migrations: run python -m healthboard.processes prepare",
        f"healthboard cannot be prepared: DATABASE_OWNER_URL_FILE={place.opt}/none cannot be read: No such file or directory",
    ]  # fmt: skip


def test_prepare_makes_an_installation_that_only_observes(place):
    said = place.reader.section("6. Prepare the database")
    assert "prepared: start the processes" in said and "System check identified no issues" in said
    assert place.database.ask("SELECT acting, stopped FROM repairs_switch") == [(False, False)]
    assert place.database.ask("SELECT tableowner FROM pg_tables WHERE tablename = 'audit_auditrow'") == [
        ("healthboard_owner",)
    ]


def test_five_processes_serve_each_as_its_own_user_of_the_broker(place):
    assert place.reader.section("7. Start the processes").splitlines()[-1] == "ready"
    place.reader.section("8. The first admin")
    place.until(lambda: place.users() >= set(broker.USERS) - {"web"}, 240, "every process at the broker")


def test_the_fleet_fills_from_aws_and_only_reader_and_actor_have_a_way_there(place):
    said = place.reader.section("9. Look at it")
    assert "all invariants hold" in said and "every row is as it was sealed" in said
    place.until(lambda: place.fleet() >= set(place.machines), 240, "the fleet")
    running = place.environments()
    assert set(running) == set(broker.USERS)
    for name, variables in running.items():
        assert not {v for v in variables if v.startswith("DATABASE_OWNER")}
        keys = {v for v in variables if v.startswith("AWS_")}
        assert keys == {"AWS_EC2_METADATA_DISABLED"} if name not in ("reader", "actor") else "AWS_ACCESS_KEY_ID" in keys


def test_a_node_is_given_its_token_and_speaks(place):
    said = place.reader.section("10. The nodes")
    place.tokens[place.machines[0]] = said.split()[-1]
    place.until(lambda: place.heard() >= {place.machines[0]}, 240, "the first report")
    place.give_tokens(place.machines[1:])
    place.until(lambda: place.heard() >= set(place.machines), 240, "every report")


#: what an admin sets for this pool, so that the test need not wait for a person's half minute
POLICY = """version: 1
policies:
- name: solo
  match: {pool: solo}
  settings: {undo_s: 2, soak_s: 60, launch_timeout_s: 9000, drain_timeout_s: 9000}
"""


def test_nothing_acts_before_an_admin_switches_acting_on_and_then_a_dead_gpu_is_replaced(place):
    broken = place.machines[1]
    place.reader.type(
        f"cat > policy.yaml <<'END'\n{POLICY}END\n.venv/bin/python manage.py policies apply policy.yaml --as admin"
    )
    place.until(lambda: place.watched(), 240, "two full rounds of every source")
    place.inject(broken, "XID_79")
    # what NVML says may be read before what the kernel said
    case = place.until(
        lambda: "XID_79" in (place.case(broken) or {"codes": ()})["codes"] and place.case(broken), 240, "a case"
    )
    assert case["verdict"] == "HARDWARE"
    time.sleep(12)  # three minutes at this pace
    assert place.calls(broken) == [], "it only observes"
    place.sign_in().send("/system/", "/system/acting/", on="1", reason="it observed well")
    assert "11. Switch acting on" not in {block.section for block in place.reader.todo}, "a person's word, no command"
    ended = place.until(lambda: _ended(place, broken), 300, "the repair")
    assert (ended["state"], ended["resolution"]) == ("SUCCEEDED", "REPLACED")
    # where ECS has not let it go by itself, it is deregistered too
    assert place.calls(broken)[:2] == ["UpdateContainerInstancesState", "TerminateInstances"]
    assert place.calls(broken).count("TerminateInstances") == 1


def _ended(place, instance: str) -> dict | None:
    """Its repair, once it has ended; the node of the replacement is given a token meanwhile."""
    known = {row["instance_id"] for row in place.browser.api("instances?pool=solo", place.token())}
    if new := sorted(known - set(place.tokens)):
        place.give_tokens(new)
    repair = place.repair(instance)
    return repair if repair and repair["resolution"] else None


def test_a_restored_database_only_watches_until_a_person_releases_it(place):
    place.reader.section("Back up")
    kept = json.loads((place.var / "backup" / "audit-head.json").read_text())["position"]
    place.sign_in().send("/system/", "/system/acting/", on="1", reason="said again, after the backup")
    place.until(lambda: _head(place) > kept, 240, "the record to go on")
    assert "audit_payloads: 0 older than" in place.reader.section("Purge"), "as the owner"
    said = place.reader.section("Restore")
    assert "it was put back to an earlier time" in said and "The stop switch is thrown" in said
    assert place.database.ask("SELECT acting, stopped FROM repairs_switch") == [(True, True)]
    _ready(place)
    broken = place.machines[2]
    place.until(lambda: place.watched(), 240, "two full rounds of every source")
    place.inject(broken, "XID_79")
    place.until(lambda: place.case(broken), 240, "a case")
    time.sleep(12)
    assert place.calls(broken) == [], "it only watches"
    assert "put back to an earlier time" in place.reader.refused(".venv/bin/python manage.py verify_audit")
    place.sign_in().send("/system/", "/system/resume/", reason="compared with AWS: nothing was under way")
    place.until(lambda: "UpdateContainerInstancesState" in place.calls(broken), 300, "the repair to begin")


def _head(place) -> int:
    with contextlib.suppress(OSError, ValueError):
        return json.loads((place.var / "audit-head.json").read_text())["position"]
    return 0


def _ready(place) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError):
            return place.browser.ask("GET", "/readyz")[0] == 200
        return False

    place.until(answers, 240, "the web server")


def test_the_release_before_is_upgraded_and_its_cases_and_repairs_are_there(place):
    """What an installation of it left behind, in the middle of repairs, takes the place of this one's database."""
    release = releases()[-1]
    place.reader.type("stop")
    place.database.ask("DROP DATABASE healthboard WITH (FORCE)", "postgres")
    place.database.ask("CREATE DATABASE healthboard OWNER healthboard_owner", "postgres")
    owner = (place.etc / "secrets" / "owner-password").read_text().strip()
    release.restore(f"postgres://healthboard_owner:{owner}@{place.database.at}/healthboard?sslmode=require")
    # it was made by a sandbox, the only one that can break machines on purpose
    place.database.ask("UPDATE fleet_installation SET mode = 'aws'")
    kept = release.unpack(place.folder / "before")
    for name in ("audit-head.json", "audit-heads.log"):
        shutil.copy(kept / name, place.var / name)
        place.own(place.var / name)
    said = place.reader.refused(".venv/bin/python -m healthboard.processes web")
    assert said.rstrip().endswith("run python -m healthboard.processes prepare")
    before = place.database.ask("SELECT id FROM repairs_repair WHERE closed_at IS NULL ORDER BY id")
    assert len(before) >= 2 and {one for (one,) in before} <= {row["id"] for row in release.told["repairs"]}
    said = place.reader.section("Upgrade")
    assert re.search(r"^\d+ migrations applied$", said, re.M) and "put back" not in said
    assert place.opt.resolve().name == "healthboard-next"
    _ready(place)
    place.until(lambda: place.users() >= set(broker.USERS) - {"web"}, 240, "every process at the broker")
    assert set(before) <= set(place.database.ask("SELECT id FROM repairs_repair"))
    said = place.reader.type(".venv/bin/python manage.py verify_audit")
    assert "every row is as it was sealed" in said


def test_it_is_removed_without_a_trace(place):
    assert "not yet" in place.reader.section("Remove"), "repairs of the release before were under way"
    assert not place.opt.exists() and [path.name for path in place.opt.parent.iterdir()] == []
    assert place.database.ask("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'healthboard%'", "postgres") == [(0,)]
    assert place.reader.todo == [], "every block was run"
