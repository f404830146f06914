"""`make screenshots`: the pictures of docs/tour.md and the README, from a real sandbox in which things are broken.

python tests/browser/tour.py [FOLDER]    ends within ten minutes, and leaves nothing running
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

WIDE = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
#: no wait for a state of the sandbox is longer than this, in seconds
PATIENCE = 150


def main(folder: Path) -> int:
    from tests.loop.stack import Stack

    home = Path(tempfile.mkdtemp(prefix="healthboard-tour-"))
    stack = Stack(home / "var")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stack.start()
        _walk(stack, folder)
    finally:
        stack.stop()
        shutil.rmtree(home, ignore_errors=True)
    return 0


def _walk(stack: Any, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    from tests.browser.shots import FLAGS

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        camera = Camera(browser, stack, folder)
        _wait(stack, "machines to serve", lambda: len(stack.members("train")) >= 18)
        time.sleep(20)  # a calm minute of the fleet: sources are seen, readings are confirmed
        job = _job(stack)
        _break(stack, job)
        doubt = _case(stack, "XID_119", "WAITING")
        _case(stack, "XID_143", "HELD")
        camera.page("/", "tour-inbox")
        camera.page(f"/cases/{doubt}/", "case")
        camera.page(f"/cases/{doubt}/", "tour-approve", keys="a")
        camera.page(f"/cases/{doubt}/", "tour-phone", size=PHONE)
        _wait(stack, "a job that stands still", lambda: _still(stack))
        camera.page("/jobs/", "tour-jobs")
        camera.page("/fleet/map/?group=pool", "tour-map", theme="dark")
        camera.page(f"/cases/{_group(stack)}/", "tour-group")
        _wait(stack, "a repair under way", lambda: _repair(stack, "RUNNING"))
        camera.page("/repairs/", "tour-repairs")
        camera.approve(doubt, "tour-undo")
        repair = _wait(stack, "a repair that ended", lambda: _repair(stack, "SUCCEEDED"))
        camera.page(f"/repairs/{repair['id']}/", "tour-repair")
        _wait(stack, "a case that closed", lambda: _cases(stack, "CLOSED"))
        camera.page("/cases/?state=all", "tour-cases")
        camera.page("/handover/", "tour-handover")
        browser.close()


def _job(stack: Any) -> list[str]:
    """A job across three machines, each wholly its own; their instance ids."""
    import boto3

    status = stack.fleet()
    key = {"aws_access_key_id": "ASANDBOX111122223333", "aws_secret_access_key": "made-up", "region_name": "us-east-1"}
    ecs = boto3.client("ecs", endpoint_url=status["endpoint"], **key)
    gpus = {"containerOverrides": [{"name": "main", "resourceRequirements": [{"type": "GPU", "value": "8"}]}]}
    made = ecs.run_task(
        cluster="gpu", taskDefinition="finetune", count=3, startedBy="run-7", overrides=gpus,
        capacityProviderStrategy=[{"capacityProvider": "train"}],
    )["tasks"]  # fmt: skip
    rows = ecs.describe_container_instances(
        cluster="gpu", containerInstances=[task["containerInstanceArn"] for task in made]
    )["containerInstances"]
    _wait(stack, "the job to be seen", lambda: any(j["job"] == "finetune/run-7" for j in _jobs(stack)))
    return [row["ec2InstanceId"] for row in rows]


def _jobs(stack: Any) -> list[dict[str, Any]]:
    status, answer = stack.get("/api/v1/jobs")
    return answer["items"] if status == 200 else []


def _still(stack: Any) -> bool:
    return any(job["state"] == "still" for job in _jobs(stack))


def _break(stack: Any, job: list[str]) -> None:
    """A clear failure, an ambiguous one under a job whose other machines show the aftermath, five of a pool at once."""
    train, infer, solo = (stack.members(name) for name in ("train", "infer", "solo"))
    stack.inject(next(name for name in train if name not in job), "XID_79", "--gpu", "5")
    stack.inject(job[0], "XID_119", "--gpu", "3")
    stack.inject(job[1:], "XID_45", "--gpu", "0")
    stack.inject(infer[0], "XID_74", "--gpu", "1")
    stack.inject(solo[:5], "XID_143", "--gpu", "2")


class Camera:
    """Takes pictures of what an operator's browser shows."""

    def __init__(self, browser: Any, stack: Any, folder: Path) -> None:
        self.browser, self.stack, self.folder = browser, stack, folder
        self.state: Any = None

    def _open(self, size: dict[str, int], theme: str) -> Any:
        context = self.browser.new_context(
            base_url=self.stack.url, viewport=size, color_scheme=theme, storage_state=self.state
        )
        page = context.new_page()
        if self.state is None:
            from tests.loop.stack import PASSWORD

            page.goto("/accounts/login/")
            page.fill("#id_username", "operator")
            page.fill("#id_password", PASSWORD)
            page.click("button.do")
            page.wait_for_url("**/")
            self.state = context.storage_state()
        return page

    def page(
        self, address: str, name: str, *, size: dict[str, int] = WIDE, theme: str = "light", keys: str = ""
    ) -> None:
        page = self._open(size, theme)
        for _ in range(PATIENCE // 3):
            answer = page.goto(address)
            if answer is None or answer.status != 200:
                raise RuntimeError(f"{address}: {answer and answer.status}")
            if not page.locator(".notices .blind").count():
                break
            page.wait_for_timeout(3000)  # a machine with much else to do: its sources tell again soon
        for key in keys:
            page.keyboard.press(key)
        self._take(page, name)

    def approve(self, case: int, name: str) -> None:
        page = self._open(WIDE, "light")
        page.goto(f"/cases/{case}/")
        page.keyboard.press("a")
        page.locator("#dialog-approve button.do").click()
        page.locator(".undo").wait_for()
        self._take(page, name)

    def _take(self, page: Any, name: str) -> None:
        page.wait_for_timeout(300)  # plots are drawn
        page.screenshot(path=self.folder / f"{name}.png", scale="css")
        page.context.close()
        print(f"{name}.png", flush=True)


def _cases(stack: Any, state: str) -> list[dict[str, Any]]:
    status, answer = stack.get(f"/api/v1/cases?state={state}")
    return answer["items"] if status == 200 else []


def _case(stack: Any, code: str, state: str) -> int:
    def found() -> int | None:
        return next((case["id"] for case in _cases(stack, state) if not code or code in case["codes"]), None)

    return _wait(stack, f"a case {code} that is {state}", found)


def _group(stack: Any) -> int:
    return _wait(stack, "a group case", lambda: next((c["id"] for c in _cases(stack, "WAITING")
                                                      if c["verdict"] == "CORRELATED"), None))  # fmt: skip


def _repair(stack: Any, state: str) -> dict[str, Any] | None:
    status, answer = stack.get("/api/v1/repairs")
    return next((r for r in answer["items"] if r["state"] == state), None) if status == 200 else None


def _wait(stack: Any, what: str, found: Any) -> Any:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if value := found():
            return value
        time.sleep(1)
    raise TimeoutError(f"waited {PATIENCE} s for {what}; the supervisor said:\n{stack.said()[-2000:]}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"))
