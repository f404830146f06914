"""Ticks of collecting. A tick without an id starts every place; doubled or late ones find the source claimed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from healthboard import aws, config, wake
from healthboard.celery import app
from healthboard.fleet.models import Account, Source
from workers.collect import ec2 as ec2_rounds
from workers.collect import ecs as ecs_rounds
from workers.collect import events as event_rounds
from workers.collect import exporters as exporter_rounds
from workers.collect import sources, store

log = logging.getLogger(__name__)


@app.task(name="workers.collect.read_instances")
def ec2(source_id: int | None = None) -> None:
    """EC2 and Auto Scaling. A source that is gone or claimed is left alone; a blind AWS is noted at the source."""
    _start("workers.collect.read_instances", "ec2", ec2_rounds.collect, source_id)


@app.task(name="workers.collect.read_clusters")
def ecs(source_id: int | None = None) -> None:
    """ECS clusters, instances, services and tasks."""
    _start("workers.collect.read_clusters", "ecs", ecs_rounds.collect, source_id)


@app.task(name="workers.collect.read_exporters")
def exporters(source_id: int | None = None) -> None:
    """The dcgm-exporters of every place, one task for all nodes of one. Nothing where they are off (the default)."""
    if config.exporters() is not None:
        _start("workers.collect.read_exporters", "dcgm", exporter_rounds.collect, source_id)


@app.task(name="workers.collect.read_local_gpus")
def own_gpus() -> None:
    """The GPUs of this host, on its own queue. Nothing where no setting names the host (the default)."""
    from workers.collect import local_gpus  # with the whole schema of a report, which no other task needs

    local_gpus.collect()


@app.task(name="workers.collect.read_events")
def events(source_id: int | None = None) -> None:
    """EventBridge's events out of the place's queue. A place without a queue has no such source."""
    _start("workers.collect.read_events", "events", event_rounds.collect, source_id, event_rounds.places)


def _start(
    task: str,
    name: str,
    collect: Callable[[Account, str], bool],
    source_id: int | None,
    listed: Callable[[], list[tuple[str, str]]] = aws.places,
) -> None:
    try:
        places = listed()
        if source_id is not None:
            source = Source.objects.select_related("account").filter(pk=source_id, name=name, scope="").first()
            if source is None or (source.account.account_id, source.region) not in places:
                return
            collect(source.account, source.region)
        elif len(places) == 1:
            account_id, region = places[0]
            collect(store.account_of(account_id), region)
        else:  # one message per place: a place that hangs holds nobody up
            for account_id, region in places:
                wake.send(task, sources.source_of(store.account_of(account_id), region, name).pk)
    except config.BadSetting as error:
        log.error("%s: %s", task, error)
