"""How test files are shared among processes.

A whole installation mostly waits, and three of them at once starve each other on two cores: two processes begin with
the files that start one, the others with all the rest.
"""

from __future__ import annotations

from pathlib import Path

from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[1]
INSTALLATIONS_AT_ONCE = 2
#: those that take longest, so that they do not come last; a folder stands for its files
LONG = (
    "tests/loop/test_limits.py", "tests/loop/test_repairs.py", "tests/loop/test_people.py", "tests/repairs/",
    "tests/browser/", "tests/install/test_install.py",
)  # fmt: skip


class InstallationsApart(LoadFileScheduling):
    def __init__(self, config, log=None) -> None:
        super().__init__(config, log)
        files = [p for p in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.loop" in p.read_text()]
        self.apart = {str(p.relative_to(ROOT)) for p in files}

    def _assign_work_unit(self, node) -> None:
        """Put the file that suits this process best to the front of the queue, from which it is then taken."""
        with_installations = node in list(self.nodes)[:INSTALLATIONS_AT_ONCE]
        suited = [scope for scope in self.workqueue if (scope in self.apart) == with_installations]
        if suited:
            self.workqueue.move_to_end(min(suited, key=lambda scope: not scope.startswith(LONG)), last=False)
        super()._assign_work_unit(node)
