"""Everything that is known of one instance as one zip, for a support case at AWS. Reads only.

Bounded twice: each part has a most, and all together are at most `MOST_BYTES` before they are packed. What did not fit
is named in SUMMARY.txt, so that nobody takes the rest for the whole. See docs/decisions/0042.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from itertools import islice
from typing import IO, Any

from django.db.models import Count, Max, Min, QuerySet, Sum
from django.forms.models import model_to_dict

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case
from healthboard.diagnosis.process_names import plain_without, text_without
from healthboard.fleet import foreign, recorder
from healthboard.fleet import queries as fleet
from healthboard.fleet.models import Instance
from healthboard.repairs.models import Repair

MOST_BYTES = 48 * 1024 * 1024
EVENTS, RECORDINGS, INTERVALS, CASES, EVIDENCE, REPAIRS, AUDIT, REQUESTS = 5000, 10, 2000, 20, 10, 50, 3000, 20
#: an instance's own columns that say nothing to others
PRIVATE = ("private_ip",)


class Bundle:
    """One zip that is being written; `names` False leaves process names out. Nothing in it names what the person of
    `see` (`access.seeing`) may not see."""

    def __init__(self, into: IO[bytes], see: foreign.See, *, names: bool) -> None:
        self.see = see
        self.zip = zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED)
        self.names, self.left, self.missing, self.files = names, MOST_BYTES, list[str](), list[str]()

    def text(self, name: str, text: str) -> None:
        text = foreign.plain(self.see, text)
        self._write(name, text if self.names else text_without(text))

    def plain(self, name: str, value: Any) -> None:
        self._write(name, self._json(foreign.plain(self.see, value), indent=1))

    def lines(self, name: str, rows: Iterable[dict[str, Any]], most: int) -> None:
        """One JSON object per line, at most `most` of them."""
        found = foreign.plain(self.see, list(islice(rows, most + 1)))
        if len(found) > most:
            self.missing.append(f"{name}: older rows than the newest {most}")
        self._write(name, "".join(f"{self._json(row)}\n" for row in found[:most]))

    def _json(self, value: Any, **how: Any) -> str:
        plain = json.loads(json.dumps(value, default=str))
        return json.dumps(plain if self.names else plain_without(plain), ensure_ascii=True, **how)

    def _write(self, name: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if len(data) > self.left:
            self.missing.append(f"{name}: {len(data)} bytes did not fit into the bundle")
            return
        self.left -= len(data)
        self.files.append(name)
        self.zip.writestr(name, data)


def write(into: IO[bytes], of: Instance, see: foreign.See, *, names: bool, by: str) -> list[str]:
    """Write the zip; returns the names of its files."""
    bundle = Bundle(into, see, names=names)
    with bundle.zip:
        bundle.plain("instance.json", _instance(of))
        bundle.plain("gpus.json", [_columns(gpu, "instance", "account") for gpu in of.gpus.order_by("index", "uuid")])
        bundle.plain("checks.json", [{s: getattr(c, s) for s in c.__slots__} for c in fleet.checks(of)])
        _events(bundle, of)
        _cases(bundle, of)
        _repairs(bundle, of)
        _audit(bundle, of)
        for row in of.requests.order_by("-pk")[:REQUESTS]:
            bundle.text(f"node/{row.pk}-{row.verb}.txt", _asked(row))
        bundle.left = MOST_BYTES  # it says what is missing, and is itself small
        bundle.text("SUMMARY.txt", _summary(bundle, of, by))
    return bundle.files


def _columns(row: Any, *without: str) -> dict[str, Any]:
    return {"id": row.pk, **{k: v for k, v in model_to_dict(row).items() if k not in without}}


def _instance(of: Instance) -> dict[str, Any]:
    names = {"account": of.account.account_id, "cluster": str(of.cluster or ""), "pool": str(of.pool or "")}
    return {**_columns(of, *PRIVATE), **names}


def _events(bundle: Bundle, of: Instance) -> None:
    others = of.events.exclude(code=recorder.CODE).order_by("-last_at", "-pk")
    bundle.lines("events.jsonl", (_columns(e, "instance") for e in others[: EVENTS + 1]), EVENTS)
    for row in of.events.filter(code=recorder.CODE).order_by("-at", "-pk")[:RECORDINGS]:
        bundle.plain(f"recorder/{row.pk}-{row.at:%Y%m%dT%H%M%SZ}.json", row.attrs)
    spans = of.intervals.order_by("-since", "-pk")[: INTERVALS + 1]
    bundle.lines("readings.jsonl", (_columns(i, "instance", "head") for i in spans), INTERVALS)


def _cases(bundle: Bundle, of: Instance) -> None:
    for case in Case.objects.filter(instance=of).order_by("-pk")[:CASES]:
        kept = case.evidence.order_by("-pk")[:EVIDENCE]
        decisions = [_columns(d, "case", "user") for d in case.decisions.order_by("pk")]
        told = {
            **_columns(case, "instance", "workloads"), "decisions": decisions,
            "evidence": [_columns(row, "case") for row in kept],
        }  # fmt: skip
        bundle.plain(f"cases/{case.pk}.json", told)


def _repairs(bundle: Bundle, of: Instance) -> None:
    rows = Repair.objects.filter(instance=of).select_related("replacement").prefetch_related("steps", "calls")
    bundle.plain(
        "repairs.json",
        [
            {
                **_columns(row, "instance", "settings", "lease_owner", "fence"), "replacement": str(row.replacement or ""),
                "steps": [_columns(step, "repair") for step in row.steps.all()],
                "calls": [_columns(call, "repair", "token") for call in row.calls.all()],
            }
            for row in rows.order_by("-pk")[:REPAIRS]
        ],
    )  # fmt: skip


def _audit(bundle: Bundle, of: Instance) -> None:
    rows: QuerySet[AuditRow] = AuditRow.objects.filter(
        instance=of.instance_id, account=of.account.account_id, region=of.region
    )
    for row in rows.filter(verb="repair.evidence_kept").order_by("-pk")[:REPAIRS]:
        console = (row.payload or {}).get("console")
        if isinstance(console, str) and console:
            bundle.text(f"console/repair-{row.repair_id}.txt", console)
    newest = rows.order_by("-pk").values(
        "id", "at", "actor", "via", "verb", "subject", "case_id", "repair_id", "summary", "payload_hash"
    )
    bundle.lines("audit.jsonl", newest[: AUDIT + 1].iterator(chunk_size=500), AUDIT)


def _asked(row: Any) -> str:
    head = f"{row.verb}, asked {row.asked_at:%Y-%m-%d %H:%M:%S} UTC by {row.asked_by}, answered "
    head += f"{row.answered_at:%Y-%m-%d %H:%M:%S} UTC, ok: {row.ok}" if row.answered_at else "never"
    checks = [f"{c.get('name')}: {c.get('ok')} {c.get('detail')}" for c in row.checks if isinstance(c, dict)]
    return "\n".join([head, *checks, "", row.output])


def _summary(bundle: Bundle, of: Instance, by: str) -> str:
    codes = (
        of.events.exclude(code=recorder.CODE).order_by().values("code", "gpu")
        .annotate(first=Min("at"), last=Max("last_at"), rows=Count("pk"), times=Sum("count")).order_by("-last")[:100]
    )  # fmt: skip
    index = dict(of.gpus.values_list("uuid", "index"))
    lines = [
        f"Instance {of.instance_id}, {of.instance_type}, {of.zone}, account {of.account.account_id}, {of.region}",
        f"Made {clock.now():%Y-%m-%d %H:%M:%S} UTC by {by} with healthboard. All times are UTC.",
        f"Process names are {'included' if bundle.names else 'left out'}.",
        "",
        f"Health now: {of.verdict} {of.verdict_code} {of.verdict_why}".strip(),
        f"Image {of.image_id or '?'}, driver {of.driver_version or '?'}, boot {of.boot_id or '?'}, launched {of.launched_at or '?'}",
        "",
        "GPUs (index, serial, UUID, PCI, status)",
        *[
            f"  {gpu.index if gpu.index is not None else '?'}  {gpu.serial or 'no serial'}  {gpu.uuid}  {gpu.pci or '?'}  "
            f"{gpu.status or '?'}{f'  condemned: {gpu.condemned_why}' if gpu.condemned_at else ''}"
            for gpu in of.gpus.order_by("index", "uuid")
        ],
        "",
        "Codes (first, last, times, GPU)",
        *[
            f"  {row['code']}  {row['first']:%Y-%m-%d %H:%M:%S}  {row['last']:%Y-%m-%d %H:%M:%S}  {row['times']}"
            + (f"  GPU {index.get(row['gpu'], '?')} {row['gpu']}" if row["gpu"] else "")
            for row in codes
        ],
        "",
        "Files",
        *[f"  {name}" for name in bundle.files],
        *(["", "Not in it", *[f"  {line}" for line in bundle.missing]] if bundle.missing else []),
    ]
    return "\n".join(lines) + "\n"
