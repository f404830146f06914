"""Paste a log, see the reading: `manage.py explain` on a page. Nothing of what is pasted is kept or logged.

The text is read in a process of its own, with limits on time and memory: whatever somebody pastes, the pages go on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from healthboard import uploads
from healthboard.approve import says
from healthboard.diagnosis.formats import FORMATS
from healthboard.pages import page
from healthboard.refusals import Invalid, Refusal

#: bytes of text; and of a whole request with its form around it
MOST = 1_000_000
MOST_BODY = MOST + 20_000
SECONDS = 20
MEMORY = 2**30
AT_ONCE = 2
#: findings that the page shows; the rest is counted
SHOWN = 100
TITLES = {
    "auto": "Recognise it", "kernel-log": "Kernel log (dmesg, journal, syslog)", "dcgm": "dcgm-exporter metrics",
    "dcgm-api": "DCGM (dcgmi, health watches)", "nvidia-smi": "nvidia-smi", "nvml": "NVML, pynvml and its clients",
    "ec2-status": "EC2 DescribeInstanceStatus", "ecs-describe": "ECS DescribeContainerInstances",
    "ecs-event": "ECS event", "ecs-agent-log": "ECS agent log", "aws-health": "AWS Health event",
}  # fmt: skip
_CHILD = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from healthboard.diagnosis.explain_cli import main
sys.exit(main(sys.argv[1:]))
"""
_slots = threading.BoundedSemaphore(AT_ONCE)


class TooLarge(Refusal):
    status = 413


class Busy(Refusal):
    status = 503


@csrf_exempt  # the size is looked at before the form is; `_form` checks the token
@page
def explain(request: HttpRequest) -> HttpResponse:
    if uploads.length(request) > MOST_BODY:
        uploads.drain(request)
        return _refused(request, TooLarge(_too_large(uploads.length(request))), {})
    return _form(request)


@csrf_protect
def _form(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _shown(request, {})
    given = {
        "text": request.POST.get("text", ""),
        "format": request.POST.get("format", "auto"),
        "instance": request.POST.get("instance", "").strip(),
    }
    try:
        found = _read(_text(request, given["text"]), given["format"], given["instance"])
    except Refusal as refusal:
        return _refused(request, refusal, {"given": given})
    return _shown(request, {"given": given, "reading": _reading(found)})


def _text(request: HttpRequest, pasted: str) -> bytes:
    """The uploaded file, else what was pasted; as bytes, since a log is not always UTF-8."""
    upload = request.FILES.get("file")
    raw = upload.read(MOST + 1) if upload else pasted.encode("utf-8", "replace")
    if len(raw) > MOST:
        raise TooLarge(_too_large(upload.size if upload else len(raw)))
    if not raw.strip():
        raise Invalid("Paste a text or choose a file.")
    return raw


def _too_large(size: int) -> str:
    return (
        f"That is {size / 1e6:.1f} MB; at most {MOST / 1e6:.0f} MB is read here. Send the part around the trouble, "
        "or read the whole with manage.py explain."
    )


def _read(raw: bytes, format_: str, instance: str) -> dict[str, Any]:
    if format_ not in FORMATS:
        raise Invalid("There is no such format.")
    if not re.fullmatch(r"[\w.:-]{0,64}", instance):
        raise Invalid("An instance id has letters, digits and dashes only.")
    if not _slots.acquire(timeout=5):
        raise Busy(f"{AT_ONCE} other texts are being read just now. Send it again in a moment.")
    arguments = [f"--format={format_}", *([f"--instance={instance}"] if instance else []), "-"]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, *arguments], input=raw, capture_output=True, timeout=SECONDS,
            cwd=settings.BASE_DIR, env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Invalid(f"Reading it takes longer than {SECONDS} s: send the part around the trouble.") from None
    finally:
        _slots.release()
    if done.returncode == 0:
        return json.loads(done.stdout)
    if done.returncode == 2:
        said = done.stderr.decode("utf-8", "replace").strip().removeprefix("explain: ")
        raise Invalid(f"Nothing could be read: {said[:300]}.")
    raise Invalid("Nothing could be read: the text takes more memory than there is for it.")


def _reading(found: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of the command's object; `json` is the object as the command prints it."""
    findings = found["findings"]
    short = {**found, "findings": findings[:SHOWN]}
    return {
        **short,
        "more": max(len(findings) - SHOWN, 0),
        "many": len({f["instance"] for f in findings}) > 1,
        "says": says.rows(found["codes"]),
        "json": json.dumps(short, indent=2),
    }


def _refused(request: HttpRequest, refusal: Refusal, more: dict[str, Any]) -> HttpResponse:
    return _shown(request, {**more, "error": refusal.message}, status=refusal.status)


def _shown(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """The page; to htmx its reading alone, which is swapped in whatever it says."""
    context = {"formats": TITLES, "most": MOST // 1_000_000, **context}
    if request.headers.get("HX-Request"):
        return render(request, "explain.html#reading", context)
    return render(request, "explain.html", context, status=status)
