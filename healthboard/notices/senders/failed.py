"""Why a delivery did not arrive, in words for the system page, and whether to try again."""

from __future__ import annotations

import traceback
import urllib.parse
from http import HTTPStatus

from django.conf import settings

from healthboard.notices import outgoing
from healthboard.notices.models import Target
from healthboard.notices.outgoing import Answer

#: the receiver will never take this message, however often it comes
FOR_GOOD = (400, 405, 410, 413, 415, 422)
MOST = 300  # characters of what is kept of a reason


class Failed(Exception):
    """`for_good`: no later try can help. `alone`: it says nothing of the target's other messages."""

    def __init__(
        self, why: str, advice: str, *, for_good: bool = False, alone: bool = False, after_s: float = 0
    ) -> None:
        super().__init__(why)
        self.why, self.advice, self.for_good, self.alone, self.after_s = why, advice, for_good, alone, after_s


def deliver(url: str, body: bytes, headers: dict[str, str], *, advice: str) -> Answer:
    """POST it; an answer outside of 200–299 is a failure. `advice`: what to do where the receiver refuses it."""
    try:
        answer = outgoing.post(url, body, {"Content-Type": "application/json", **headers})
    except outgoing.Refused as refused:
        raise Failed(f"Nothing was sent: {refused}", "enter another address", for_good=True) from None
    except outgoing.NotDelivered as missing:
        raise Failed(str(missing), "check the address and whether this host may reach it") from None
    if 200 <= answer.status < 300:
        return answer
    if 300 <= answer.status < 400:
        raise Failed(f"It answers {answer.status}, a redirect, which is never followed", "enter the final address",
                     for_good=True)  # fmt: skip
    # never its own words: many receivers repeat the path, which is the secret of such an address
    words = f"It answers {answer.status}{_phrase(answer.status)}"
    if answer.status == 429:
        raise Failed(words, "it is sent again later", after_s=_seconds(answer.headers.get("retry-after", "")))
    if answer.status >= 500:
        raise Failed(words, "the receiver has trouble; it is sent again later")
    raise Failed(words, advice, for_good=answer.status in FOR_GOOD)


def tidy(text: str, target: Target) -> str:
    """The beginning of `text` without the target's secrets, should the other side have repeated them."""
    hidden = [target.secret, target.secret_before]
    if target.kind == Target.Kind.EMAIL:
        hidden.append(settings.EMAIL_HOST_PASSWORD)
    else:
        split = urllib.parse.urlsplit(target.address)
        paths = (split.path.rstrip("/"), split.query, f"{split.path}?{split.query}")
        hidden += [target.address, *paths, *map(urllib.parse.unquote, paths)]
    # the longest first, so that none leaves the rest of another; cut last, so that none loses what it is known by
    for secret in sorted({part for part in hidden if part.strip("/?")}, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def where(error: BaseException) -> str:
    """The kind of an error and the places in the code that it came through, without a value that it speaks of."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return f"{type(error).__name__} at " + " > ".join(f"{f.filename}:{f.lineno}" for f in frames)


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def _seconds(text: str) -> float:
    return min(float(text), 3600) if text.isascii() and text.isdigit() and len(text) < 7 else 0
