"""Characters that change how the text around them is read are shown as what they are.

Nodes, tags and task names may hold anything. Markup in them is escaped by the templates; this is about the rest: marks
that turn the order of writing (a name that reads as another one), and control characters, which a browser leaves out.
See docs/decisions/0067-inert-text.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

#: in UTF-8: C0 without tab and line ends, delete, C1; embeddings, overrides and isolates of the order of writing.
#: Three searches with a fixed first byte are ten times as fast as one for all, and most pages have none of them
_C0 = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n\r")
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_ORDER = re.compile(rb"\xe2(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])")
_STRANGE = re.compile(b"[%s]|%s|%s" % (re.escape(_C0), _C1.pattern, _ORDER.pattern))
#: what a person edits comes back as it was
_KEPT = re.compile(rb"<textarea\b.*?</textarea>", re.DOTALL)


def shown(html: bytes) -> bytes:
    """The same page with each such character as a visible one: ``␛`` for escape, ``⟨202E⟩`` for an override."""
    if len(html.translate(None, _C0)) == len(html) and not _C1.search(html) and not _ORDER.search(html):
        return html
    parts, at = [], 0
    for kept in _KEPT.finditer(html):
        parts += [_STRANGE.sub(_visible, html[at : kept.start()]), kept[0]]
        at = kept.end()
    return b"".join([*parts, _STRANGE.sub(_visible, html[at:])])


def _visible(found: re.Match[bytes]) -> bytes:
    code = ord(found[0].decode())
    picture = 0x2421 if code == 0x7F else 0x2400 + code if code < 0x20 else 0
    return (chr(picture) if picture else f"\u27e8{code:04X}\u27e9").encode()


class Inert:
    """Middleware: for every page, of whatever app; files and programs get the text as it is."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.get_response(request)
        if not answer.streaming and answer.get("Content-Type", "").startswith("text/html"):
            answer.content = shown(answer.content)
            if answer.has_header("Content-Length"):  # of the page as it was; a shorter one would cut it off
                answer["Content-Length"] = str(len(answer.content))
        return answer
