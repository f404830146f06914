"""docs/install.md as a newcomer reads it: its blocks of commands in order, run in one shell by a user without rights."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "docs" / "install.md"
_FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.M)
_HEADING = re.compile(r"^## (.+)$", re.M)
_DONE = "-- that was all --"


@dataclass(frozen=True)
class Block:
    section: str  # its heading
    kind: (
        str  # what follows the fence: `sh` is run; `sh root` and `sh aws` want more rights; `conf` is a file's content
    )
    text: str


def blocks() -> list[Block]:
    text = TEXT.read_text()
    headings = [(found.start(), found.group(1)) for found in _HEADING.finditer(text)]
    return [
        Block(next((name for at, name in reversed(headings) if at < found.start()), ""), found.group(1).strip(), found.group(2))
        for found in _FENCE.finditer(text)
    ]  # fmt: skip


def unprivileged() -> dict:
    """For subprocess: another user than root, with its group alone. Who is none already stays what he is."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


class Reader:
    """Types in what the document says. `names`: what is filled in -> with what."""

    def __init__(self, folder: Path, names: dict[str, str], env: dict[str, str]) -> None:
        self.names, self.todo, self.said = names, [b for b in blocks() if b.kind == "sh"], ""
        self.shell = subprocess.Popen(
            ["bash", "-e", "-u", "-o", "pipefail"], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, umask=0o027, **unprivileged(),
        )  # fmt: skip

    def fill_in(self, text: str) -> str:
        for name, value in self.names.items():
            text = text.replace(name, value)
        return text

    def section(self, heading: str, limit_s: float = 300) -> str:
        """Run every block of this section; returns what they printed. They come in the order of the document."""
        mine = [block for block in self.todo if block.section == heading]
        assert mine and self.todo[: len(mine)] == mine, f"{heading!r} is not what comes next: {self.todo[0].section!r}"
        self.todo = self.todo[len(mine) :]
        return "".join(self.type(self.fill_in(block.text), limit_s) for block in mine)

    def type(self, commands: str, limit_s: float = 300) -> str:
        """Raises AssertionError with the output where one of the commands fails, or none of them ends."""
        self.shell.stdin.write(f"{{\n{commands}\n}} < /dev/null\necho '{_DONE}'\n".encode())
        self.shell.stdin.flush()
        said, end = b"", time.monotonic() + limit_s
        while not said.endswith(f"{_DONE}\n".encode()):
            left = end - time.monotonic()
            ready = select.select([self.shell.stdout], [], [], max(left, 0))[0]
            new = os.read(self.shell.stdout.fileno(), 65536) if ready else b""
            said += new
            assert new, f"{'ended' if left > 0 else f'not done in {limit_s:.0f} s'}:\n{commands}\n{said.decode()}"
        text = said.decode().removesuffix(f"{_DONE}\n")
        self.said += text
        return text

    def refused(self, command: str) -> str:
        """What a command says that must fail."""
        return self.type(f"if {command}; then echo 'it did not fail'; exit 1; fi")

    def close(self) -> None:
        """What runs in the shell ends with it, or is ended."""
        try:
            if self.shell.poll() is None:
                self.type("kill $(jobs -p) 2> /dev/null || true; wait", 30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.stdin.close()
            self.shell.wait(20)
            self.shell.stdout.close()
