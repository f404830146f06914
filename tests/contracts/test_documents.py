"""What the documents point at is there: their links, and the files of the repository that they name."""

from __future__ import annotations

import re
from pathlib import Path

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
