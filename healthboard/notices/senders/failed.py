"""Why a delivery did not arrive, in words for the system page, and whether to try again."""

from __future__ import annotations

from healthboard.notices import outgoing
from healthboard.notices.models import Target
from healthboard.notices.outgoing import Answer

#: the receiver will never take this message, however often it comes
FOR_GOOD = (400, 405, 410, 413, 415, 422)


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
    said = " ".join(answer.text.split())[:200]
    words = f"It answers {answer.status}" + (f": {said}" if said else "")
    if answer.status == 429:
        raise Failed(words, "it is sent again later", after_s=_seconds(answer.headers.get("retry-after", "")))
    if answer.status >= 500:
        raise Failed(words, "the receiver has trouble; it is sent again later")
    raise Failed(words, advice, for_good=answer.status in FOR_GOOD)


def tidy(text: str, target: Target) -> str:
    """`text` without the target's secrets, should the other side have repeated them."""
    hidden = [target.secret, target.secret_before]
    if target.kind != Target.Kind.EMAIL:
        hidden.append(target.address)
    for secret in hidden:
        if secret:
            text = text.replace(secret, "…")
    return text


def _seconds(text: str) -> float:
    return min(float(text), 3600) if text.isascii() and text.isdigit() and len(text) < 7 else 0
