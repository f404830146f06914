"""The body of an Xid line, decoded: process, place, flags, registers, sub-codes, recovery action.

The process name is chosen by the tenant, up to 15 characters, commas and brackets included, so nothing is ever looked
for inside it: the body is what follows it.
"""

from __future__ import annotations

import re
from typing import Any

#: Message start, device group up to the first closing bracket, then the number alone.
XID = re.compile(
    r"(?:NVRM: )?Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
    r"((?: GPU-(?:I|CI):[0-9a-fA-F]{1,4}){0,2})\): (\d{1,4})(?=,|\s|$)"
)
SXID = re.compile(
    r"(?:nvidia-nvswitch(\d*): )?SXid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)\)"
    r": (\d{4,6})(?=,|\s|$)(.*)"
)
_PID = re.compile(r",?\s*pid='?(<unknown>|\d{1,10})'?(?=,|\s|$)")
_NAME = re.compile(r",?\s*name=")
_CAUSE = re.compile(r"caused by previous Xid (\d{1,4})\W*$")
_PLACE = re.compile(r"GPC (\d{1,3}), TPC (\d{1,3})(?:, SM (\d{1,3}))?")
_RECOVERY = re.compile(
    r"recovery action changed from (?:0x([0-9a-fA-F]{1,4}))?.*?\bto (?:0x([0-9a-fA-F]{1,4}))?\s*\(?([A-Za-z ]*)"
)
_NVLINK4 = re.compile(r"link (-?\d{1,3})\s*\(((?:0x[0-9a-fA-F]{1,8}(?:,\s*)?){1,8})\)")
_NVLINK5 = re.compile(
    r"([A-Z][A-Z0-9_]{2,30})\s+(?:(?i:(fatal|nonfatal|non-fatal)))\s+XC([01])\s+i(\d)\s+Link\s+(-?\d{1,3})"
    r"(?:\s*\(0x([0-9a-fA-F]{1,8})\s+0x([0-9a-fA-F]{1,8}))?"
)
_RESET = re.compile(r"(?<![\w-])(RST|D-RST): (Yes|No)", re.IGNORECASE)
_NAMED_ACTIONS = {"none": 0, "gpu reset": 1, "node reboot": 2, "drain p2p": 3, "drain and reset": 4, "recover imex": 5}
_FULL = re.compile(
    r"\bfull\b|no (?:more |available |free )*(?:space|row|spare|entr)|no spare|exhaust|reserved rows|out of (?:space|rows)"
    r"|limit (?:reached|exceeded)|maximum|(?:does not|doesn't) have|insufficient|not enough|no remaining", re.IGNORECASE
)  # fmt: skip


def split_process(rest: str) -> tuple[int | None, str | None, str]:
    """(pid, name, body) of what follows the number; an unknown process gives None."""
    pid, name = None, None
    if m := _PID.match(rest):
        pid = int(m[1]) if m[1].isdigit() else None
        rest = rest[m.end() :]
    if m := _NAME.match(rest):
        rest = rest[m.end() :]
        if rest.startswith("'<unknown>'") or rest.startswith("<unknown>"):
            return pid, None, rest.partition(">")[2].lstrip("', ")
        # the name ends at a comma within its 15 characters; the last such comma, since a name may hold commas itself
        cut = rest.rfind(", ", 0, 17)
        if cut < 0:
            name, rest = (rest[:15], rest[15:]) if len(rest) > 15 else (rest, "")
        else:
            name, rest = rest[:cut], rest[cut:]
    return pid, name, rest.lstrip(", ")


def decode(number: int, rest: str) -> dict[str, Any]:
    """What the line says beyond its number; every value is hashable and JSON-friendly but for tuples."""
    pid, name, body = split_process(rest)
    attrs: dict[str, Any] = {}
    if pid:
        attrs["pid"] = pid
    if name:
        attrs["name"] = name
    if m := _CAUSE.search(body):
        attrs["caused_by"] = int(m[1])
    if number == 13 and (m := _PLACE.search(body)):
        attrs["place"] = f"GPC {int(m[1])}, TPC {int(m[2])}"
    elif number == 64:
        attrs["remap"] = "pending" if "already pending" in body.lower() else "full" if _FULL.search(body) else "other"
    elif number == 74 and (m := _NVLINK4.search(body)):
        attrs["link"] = int(m[1])
        attrs["registers"] = tuple(int(word, 16) for word in re.findall(r"0x([0-9a-fA-F]{1,8})", m[2]))
    elif number in (94, 95, 140):
        attrs.update({k.upper(): v.lower() == "yes" for k, v in _RESET.findall(body)})
    elif 144 <= number <= 150 and (m := _NVLINK5.search(body)):
        attrs.update(unit=m[1], fatal=m[2].lower() == "fatal", link=int(m[5]))
        if m[6]:
            attrs.update(intr=int(m[6], 16), status=int(m[7], 16))
    elif number == 154 and (m := _RECOVERY.search(body)):
        to = int(m[2], 16) if m[2] else None
        if to is None:
            words = m[3].strip().lower()
            to = next((value for text, value in _NAMED_ACTIONS.items() if words.startswith(text)), None)
        if to is not None:
            attrs["to"] = to
    elif number == 48 and "sram" in body.lower():
        attrs["memory"] = "SRAM"
    elif number == 31 and (m := re.search(r"ENGINE \w+(?: \w+)?", body)):
        attrs["engine"] = m[0]
    return attrs
