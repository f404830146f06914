"""What a few words in the search box name: an instance, a GPU, a code, a task, a zone, a case, an address, a workload.
Every finder looks only at what the person sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.urls import reverse
from django.utils.http import urlencode

from healthboard import words
from healthboard.cases import jobs
from healthboard.cases.models import Case
from healthboard.diagnosis import catalogue
from healthboard.fleet.models import Gpu, Instance, JobStop, Task
from healthboard.people import access

#: hits of one kind that are listed
MOST = 20
LONGEST = 200
_XID = re.compile(r"^(?:xid[\s_:#-]*)?(\d{1,4})$", re.I)
_CASE = re.compile(r"^(?:case\s*)?#?\s*(\d{1,18})$", re.I)
_CODE = re.compile(r"^[A-Za-z]\w{2,63}$")


@dataclass(frozen=True, slots=True)
class Hit:
    kind: str  # what it is, in words
    title: str
    address: str
    note: str = ""


def search(user: Any, text: str) -> list[Hit]:
    """Everything that the text names, what is named most exactly first; each address once."""
    text = " ".join(text.replace("\0", "").split())[:LONGEST]
    if not text:
        return []
    live = access.within(user, Instance.objects.all())
    found: dict[str, Hit] = {}
    for finder in (_cases, _instances, _gpus, _tasks, _addresses, _codes, _places, _work):
        for hit in finder(user, live, text):
            found.setdefault(hit.address, hit)
    return list(found.values())


def _instance(kind: str, row: Instance, note: str = "") -> Hit:
    about = [row.pool.name if row.pool else "no pool", row.zone, row.verdict.lower(), "gone" if row.gone_at else ""]
    return Hit(kind, row.instance_id, reverse("instance", args=[row.pk]), note or " · ".join(filter(None, about)))


def _table(kind: str, title: str, count: int, **params: str) -> Hit:
    return Hit(kind, title, f"{reverse('fleet')}?{urlencode(params)}", words.count(count, "instance"))


def _cases(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    if match := _CASE.match(text):
        for case in access.within(user, Case.objects.filter(pk=int(match[1]))):
            yield Hit(
                "case", f"case {case.pk}", reverse("case", args=[case.pk]), f"{case.title} · {case.state.lower()}"
            )


def _instances(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    rows = live.select_related("pool")
    if re.match(r"^i-[0-9a-f]{17}$|^i-[0-9a-f]{8}$", text):
        rows = rows.filter(instance_id=text)
    elif re.match(r"^(?:i-)?[0-9a-f]{4,17}$", text, re.I) and not text.isdigit():
        rows = rows.filter(instance_id__contains=text.lower())
    else:
        rows = rows.filter(instance_id__iexact=text)
    for row in rows.order_by("gone_at", "instance_id")[:MOST]:
        yield _instance("instance", row)


def _gpus(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    if text.upper().startswith("GPU-") and len(text) >= 8:
        about = Q(uuid__startswith=f"GPU-{text[4:].lower()}")
    elif text.isalnum() and len(text) >= 6:
        about = Q(serial=text)
    else:
        return  # what can name no GPU is not compared with all of them
    rows = access.within(user, Gpu.objects.filter(about), pool="instance__pool__name")
    for gpu in rows.select_related("instance__pool").order_by("uuid")[:MOST]:
        note = f"{gpu.uuid}, serial {gpu.serial or 'unknown'}, {gpu.status or 'unknown'}"
        if gpu.instance is not None:
            at = f"GPU {gpu.index} of {gpu.instance}" if gpu.index is not None else f"a GPU of {gpu.instance}"
            yield Hit("GPU", at, reverse("instance", args=[gpu.instance_id]), note)
        elif gpu.condemned_at is not None:
            yield Hit("GPU", "a condemned GPU", reverse("condemned"), note)


def _tasks(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    if text.startswith("arn:"):
        about = Q(arn=text)
    elif re.match(r"^[0-9a-f]{32}$|^[0-9a-f-]{36}$", text):
        about = Q(arn__endswith=f"/{text}")
    else:
        return
    rows = access.within(user, Task.objects.filter(about, instance__isnull=False), prefix="instance__")
    for task in rows.select_related("instance__pool", "workload")[:MOST]:
        work = task.workload.name if task.workload else task.family
        yield _instance("task", task.instance, f"runs a task of {work}, {task.last_status.lower()}")


def _addresses(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    try:
        address = str(ip_address(text))
    except ValueError:
        return
    rows = live.filter(private_ip=address).select_related("pool").order_by("gone_at", "-pk")[:MOST]
    now = [row for row in rows if row.gone_at is None]
    for row in now or rows:  # an address is given to another machine once its own is gone
        yield _instance("private IP", row)


def _codes(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    match = _XID.match(text)
    code = f"XID_{int(match[1])}" if match else re.sub(r"[\s-]+", "_", text).upper()
    if not match and not _CODE.match(code):
        return
    cases = access.within(user, Case.objects.filter(code=code, closed_at=None)).select_related("instance")
    for case in cases.order_by("pk")[:MOST]:
        yield Hit(f"open case with {code}", f"case {case.pk}", reverse("case", args=[case.pk]), case.title)
    if closed := access.within(user, Case.objects.filter(code=code).exclude(closed_at=None)).count():
        where = f"{reverse('cases')}?{urlencode({'state': 'closed', 'code': code})}"
        yield Hit(f"closed cases with {code}", f"{code} before", where, words.count(closed, "case"))
    if count := live.filter(verdict_code=code, gone_at=None).count():
        yield _table("code", f"{code}: {catalogue.get(code).title}", count, q=code)


def _places(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    for kind, column in (("zone", "zone"), ("pool", "pool__name"), ("type", "instance_type")):
        rows = live.filter(gone_at=None, **{f"{column}__iexact": text})
        for name, count in rows.order_by(column).values_list(column).annotate(n=Count("pk"))[:MOST]:
            word = {"zone": "availability zone", "type": "instance type"}.get(kind, kind)
            yield _table(word, name, count, **{kind: name})


def _work(user: Any, live: QuerySet[Instance], text: str) -> Iterator[Hit]:
    tasks = access.within(user, Task.objects.filter(instance__gone_at=None), prefix="instance__")
    for kind, column in (("workload", "workload__name"), ("job", "job")):
        rows = tasks.filter(**{f"{column}__iexact": text}).exclude(**{column: ""}).order_by(column)
        for name, count in rows.values_list(column).annotate(n=Count("instance", distinct=True))[:MOST]:
            yield _table(kind, name, count, **{kind: name})
    if JobStop.objects.filter(name__iexact=text).exists():  # ECS lists its tasks no more
        for job in jobs.read(user):
            if job.name.lower() == text.lower() and not job.running:
                query = urlencode({"tab": job.state, "q": job.name})
                yield Hit("job", job.name, f"{reverse('jobs')}?{query}", words.JOB_STATES[job.state].word)
    if len(text) < 3:
        return
    rows = tasks.filter(workload__name__icontains=text).exclude(workload__name__iexact=text).order_by("workload__name")
    for name, count in rows.values_list("workload__name").annotate(n=Count("instance", distinct=True))[:MOST]:
        yield _table("workload", name, count, workload=name)
