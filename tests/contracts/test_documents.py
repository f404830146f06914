"""What the documents point at is there: their links, and the files of the repository that they name."""

from __future__ import annotations

import re
from pathlib import Path

from healthboard import config
from healthboard.sandbox.config import DEFAULT_POOLS, from_env

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:tests|healthboard|workers|docs|templates)/[\w./-]+\.(?:py|md|html|txt|csv|yaml|json|acl))`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_no_link_of_a_document_leads_nowhere():
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in DOCUMENTS
        for target in LINK.findall(document.read_text())
        if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists()
    ]
    assert broken == [] and len(DOCUMENTS) > 50


def test_the_files_that_documents_name_exist():
    """A test that is named as proof, and was renamed, proves nothing."""
    # decisions tell of their time
    named = {(d, name) for d in DOCUMENTS if d.parent.name != "decisions" for name in FILE.findall(d.read_text())}
    assert [f"{d.relative_to(ROOT)}: {name}" for d, name in sorted(named) if not (ROOT / name).exists()] == []
    assert len(named) > 20


def test_the_tests_that_documents_name_exist():
    named = {pair for document in DOCUMENTS for pair in TEST.findall(document.read_text())}
    missing = [f"{name}::{test}" for name, test in sorted(named) if f"\ndef {test}(" not in (ROOT / name).read_text()]
    assert missing == [] and len(named) > 100


def test_every_setting_of_the_sandbox_is_in_its_table_with_its_default():
    code = "\n".join(path.read_text() for path in (ROOT / "healthboard").rglob("*.py"))
    rows = [row.split("|") for row in (ROOT / "docs/sandbox.md").read_text().splitlines() if row.startswith("| `")]
    told = {name: row[3].strip().strip("`") for row in rows for name in re.findall(r"`([A-Z_]+)`", row[1])}
    assert {name for name in told if "_SANDBOX_" in name} == set(re.findall(r"HEALTHBOARD_SANDBOX_[A-Z_]*[A-Z]", code))
    made = from_env({})
    assert (made.speed, made.seed, made.replace_after_s) == tuple(
        cast(told[f"HEALTHBOARD_SANDBOX_{name}"])
        for name, cast in {"SPEED": float, "SEED": str, "REPLACE_AFTER": float}.items()
    )
    assert told["HEALTHBOARD_SANDBOX_POOLS"] == DEFAULT_POOLS and told["PORT"] == str(config.port())
    assert told["HEALTHBOARD_ACCOUNTS"] == f"{made.accounts[0]}`, `{made.regions[0]}"


def test_no_document_names_a_heading_that_is_not_there():
    """As GitHub names them: lower case, what is no letter left out, spaces as dashes."""
    broken = []
    for document in DOCUMENTS:
        for target, name in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text()):
            other = document if not target else document.parent / target
            if "://" in target or other.suffix != ".md":
                continue
            headings = re.findall(r"^#+ (.+)$", other.read_text(), re.M)
            if name not in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}:
                broken.append(f"{document.relative_to(ROOT)}: {target}#{name}")
    assert broken == []
