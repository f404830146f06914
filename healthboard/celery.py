"""The Celery app: its queues, and the table of ticks. A message is a wake-up that carries at most one id.

Not used, on purpose: results, ETA or countdown, retries by the broker, chords, remote control. What must happen later
is a row with a time, found by a sweeper; every tick is harmless when it is doubled or missed.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys

from celery import Celery, Task, signals
from kombu import Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "healthboard.settings")
# Django's checks are of the code, and the tests run them: in workers and beat they would load the pages at each start
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

from healthboard import broker, config, loaded, transport

log = logging.getLogger(__name__)
#: task prefix -> queue, one for each stage of the loop
STAGES = ("collect", "decide", "repair", "verify", "notify")
#: what comes round has queues of its own: behind many wake-ups it would come late, and nothing starts before all cases
#: were looked at together
BREADTH, ROUNDS = "breadth", "rounds"
APART = {
    "workers.decide.correlate": {"queue": BREADTH},
    "workers.decide.sweep": {"queue": ROUNDS},
    "workers.decide.tend": {"queue": ROUNDS},
}
QUEUES = (*STAGES, BREADTH, ROUNDS)
#: worker -> its queues. Only the reader and the actor have rights in AWS, and only the actor's change anything
TAKES = {
    "reader": ("collect", "decide", "verify", BREADTH, ROUNDS),
    "actor": ("repair",),
    "sender": ("notify",),
    "all": QUEUES,
}
#: a worker knows the tasks of its own queues and no others, whatever a message names; beat only names them
KNOWS = [stage for stage in STAGES if stage in TAKES.get(config.process(), ())]


def every(seconds: float, *, least: float = 1.0) -> float:
    """A tick's interval in seconds, shortened by the sandbox's speed to no less than `least`."""
    return max(seconds / config.speed(), least)


#: name: (task, seconds between ticks at speed 1)
TICKS = {
    "collect EC2": ("workers.collect.read_instances", 60),
    "collect ECS": ("workers.collect.read_clusters", 60),
    "collect events": ("workers.collect.read_events", 15),
    "read what is due": ("workers.decide.sweep", 15),
    "see breadth": ("workers.decide.correlate", 30),
    "expire, wake, resolve cases": ("workers.decide.tend", 30),
    "wake due repairs": ("workers.repair.sweep", 15),
    "carry ends back to cases": ("workers.verify.sweep", 15),
    "check invariants": ("workers.verify.check", 300),
    "purge what is old": ("workers.verify.purge", 3600),
    "seal the audit chain": ("workers.verify.seal", 60),
    "canary": ("workers.verify.prove_alive", 30),
    "send notices": ("workers.notify.sweep", 30),
}

#: real seconds between the ticks of what asks for much, is woken as soon as there is something to do, or what only people
#: look at: so many of them each second would be most of what a fast sandbox costs
LEAST_S = {
    "collect EC2": config.LEAST_ROUND_S, "collect ECS": config.LEAST_ROUND_S, "collect events": 2.0,
    "see breadth": 2.0, "expire, wake, resolve cases": 2.0, "carry ends back to cases": 2.0,
    "check invariants": 20.0, "seal the audit chain": 3.0, "canary": 3.0, "send notices": 3.0,
}  # fmt: skip
if config.read("HEALTHBOARD_HEARTBEAT_URL"):
    TICKS["heartbeat"] = ("workers.notify.live", 60)
if config.exporters() is not None:
    TICKS["read exporters"] = ("workers.collect.read_exporters", 30)
#: tasks that only one host can do -> its own queue
OWN: dict[str, dict[str, str]] = {}
if config.local_gpus():
    TICKS["read this host's GPUs"] = ("workers.collect.read_local_gpus", 15)
    OWN["workers.collect.read_local_gpus"] = {"queue": config.local_queue()}

transport.use()
#: ids are PostgreSQL's bigint
LARGEST = 2**63 - 1


class Wake(Task):
    """A task is told at most one id of a row; what it does is read from the database. Anything else is refused."""

    def __call__(self, /, *args: object, **kwargs: object) -> object:
        try:
            told = inspect.signature(self.run).bind(*args, **kwargs).args
        except TypeError:
            told = (None,)  # too few or too many
        if kwargs or not all(type(one) is int and 0 < one <= LARGEST for one in told):
            log.warning("%s was refused: its message carries something else than an id", self.name)
            return None
        return self.run(*told)


app = Celery("healthboard", task_cls=Wake)


@signals.beat_init.connect
def _is_beat(**_: object) -> None:
    os.environ["HEALTHBOARD_PROCESS"] = "beat"  # however it was started, it makes no calls to AWS


@signals.worker_ready.connect
@signals.worker_process_init.connect
def _loaded(**_: object) -> None:
    loaded.keep()


@signals.task_prerun.connect
def _good_connection(**_: object) -> None:
    """A task goes on with the database connection of the one before it, as requests do: closed where it failed or grew
    old, else asked whether it lives. Celery itself would open a new one for each task."""
    from django.db import close_old_connections

    close_old_connections()


app.conf.update(
    broker_url=broker.url(),
    broker_use_ssl=broker.tls() or None,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 600,
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
        "socket_connect_timeout": 3,
        "socket_timeout": 30,
        "global_keyprefix": broker.prefix(),
        **broker.unacked(config.process()),
    },
    task_serializer="json",
    accept_content=["json"],
    CELERY_DB_REUSE_MAX=sys.maxsize,  # see `_good_connection`
    task_ignore_result=True,
    result_backend=None,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=5,
    worker_hijack_root_logger=False,
    task_acks_late=False,
    # a child that has grown beyond this many KiB is replaced after its task: a leak must not end in the kernel's choice
    worker_max_memory_per_child=int(config.number("HEALTHBOARD_WORKER_MEMORY_MIB", 600, least=100)) * 1024,
    task_time_limit=transport.LIMITS[0],
    task_soft_time_limit=transport.LIMITS[1],
    task_queues=[Queue(stage, Exchange("healthboard"), routing_key=stage) for stage in QUEUES],
    task_default_queue="repair",
    task_routes={
        **APART,
        **OWN,
        **{f"workers.{stage}.*": {"queue": stage} for stage in STAGES},
    },
    timezone="UTC",
    beat_schedule={
        name: {
            "task": task,
            "schedule": every(seconds, least=LEAST_S.get(name, 1.0)),
            "options": {"expires": max(every(seconds) * 5, 30)},
        }
        for name, (task, seconds) in TICKS.items()
    },
    beat_schedule_filename=str(config.run_dir() / "beat-schedule"),
    imports=[*(f"workers.{stage}.tasks" for stage in KNOWS), "workers.hearing", "workers.rounds"] if KNOWS else [],
)
