"""Decides which node reports when, and posts from a few threads over connections that stay open.

A node enrols first; a server that does not know it yet (404), is not there, or is busy is asked again later without a
word. Kernel lines stay with the node until a report that carried them was accepted.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from dataclasses import dataclass, field
from typing import Any

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.health import flags, kernel_runs
from healthboard.sandbox.nodes.http import Poster
from healthboard.sandbox.nodes.report import build
from healthboard.sandbox.nodes.verbs import SECONDS, result
from healthboard.sandbox.world import Sandbox, World

log = logging.getLogger("healthboard.sandbox.nodes")
THREADS = 4
#: real seconds between two reports of a healthy node, whatever the speed: forty of them must not keep a laptop busy.
#: What its kernel says is told at once
LEAST_INTERVAL_S = 10.0
#: of one that has just booted, for so long: it is waited for, and there are few of them at a time
FRESH_INTERVAL_S, FRESH_S = 2.0, 30.0
REPORTER_STARTS_S = 60
#: the first word of all is spread over so long at most
FIRST_S = 4.0


@dataclass
class Node:
    """What the reporter of one instance holds in memory."""

    token: str | None = None
    due: float = 0.0
    held_until: float = 0.0  # after a failure
    busy: bool = False
    boot_id: str = ""
    running: list[dict[str, Any]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


@dataclass
class Job:
    world: World
    instance: str
    node: Node
    report: dict[str, Any] | None  # None: enrol
    last_line: int = 0


class Crew:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.nodes: dict[tuple[str, str, str], Node] = {}
        self.jobs: queue.Queue[Job | None] = queue.Queue()
        self.threads: list[threading.Thread] = []
        self._warned = 0.0

    @property
    def interval_s(self) -> float:
        return self._interval(LEAST_INTERVAL_S)

    def _interval(self, least: float) -> float:
        return max(15 / self.sandbox.config.speed, least)

    def start(self) -> None:
        for _ in range(THREADS):
            thread = threading.Thread(target=self._post_all, daemon=True)
            thread.start()
            self.threads.append(thread)

    def stop(self) -> None:
        for _ in self.threads:
            self.jobs.put(None)
        for thread in self.threads:
            thread.join(3)

    def node(self, world: World, instance: str) -> Node:
        return self.nodes.setdefault(
            (*world.where, instance), Node(due=world.now() + random.random() * min(self.interval_s, FIRST_S))
        )

    def reporting(self, world: World, instance: Instance) -> bool:
        """Whether this node's reporter runs and can be heard."""
        now = world.now()
        return (
            kernel_runs(instance, now)
            and now >= instance.booted_at + REPORTER_STARTS_S / world.config.speed
            and not (instance.faults and "silent" in flags(instance))
        )

    def enrolled_share(self, world: World) -> float:
        alive = [i for i in world.instances.values() if self.reporting(world, i)]
        known = sum(1 for i in alive if self.node(world, i.id).token)
        return known / len(alive) if alive else 0.0

    def due(self) -> list[Job]:
        """What to send now. Call with the lock held."""
        jobs = []
        for world in self.sandbox.worlds.values():
            now = world.now()
            for instance in world.instances.values():
                if instance.state != "running" or not self.reporting(world, instance):
                    continue
                node = self.node(world, instance.id)
                if node.boot_id != instance.boot_id:
                    if node.boot_id:  # a reporter that starts anew reports at once
                        node.due = now
                    node.boot_id, node.running = instance.boot_id, []
                if node.busy or now < node.held_until:
                    continue
                ready = any(now >= r["until"] for r in node.running)
                if node.token is None:
                    if now >= node.due or instance.kernel:
                        jobs.append(Job(world, instance.id, node, None))
                        node.busy = True
                elif now >= node.due or instance.kernel or ready:
                    jobs.append(self._report(world, instance, node, now))
        return jobs

    def _report(self, world: World, instance: Instance, node: Node, now: float) -> Job:
        node.busy = True
        results = [
            result(instance, r["id"], r["verb"], r["begun"], r["until"]) for r in node.running if now >= r["until"]
        ]
        report = build(world, instance, results)
        last = report["kernel"][-1]["seq"] if report["kernel"] else 0
        return Job(world, instance.id, node, report, last)

    def send(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.jobs.put(job)

    def _post_all(self) -> None:
        poster = Poster(self.sandbox.config)
        while (job := self.jobs.get()) is not None:
            try:
                if job.report is None:
                    status, answer = poster.enrol(job.instance, job.world.account, job.world.region)
                else:
                    status, answer = poster.report(job.node.token or "", job.report)
            except Exception:
                log.exception("a report could not be sent")
                status, answer = 0, {}
            with self.sandbox.lock:
                self._done(job, status, answer)

    def _done(self, job: Job, status: int, answer: dict[str, Any]) -> None:
        node, now = job.node, job.world.now()
        node.busy = False
        if status != 200:
            self._failed(job, status, answer, now)
            return
        if job.report is None:
            node.token, node.due = answer.get("token"), now
            return
        instance = job.world.instances[job.instance]
        fresh = now < instance.booted_at + FRESH_S and instance.booted_at > self.sandbox.started_at
        interval = self._interval(FRESH_INTERVAL_S) if fresh else self.interval_s
        node.due = now + interval * (0.9 + 0.2 * random.random())
        if instance.boot_id == job.report["boot_id"]:
            instance.kernel = [line for line in instance.kernel if line["seq"] > job.last_line]
        if job.report["recorder"]:
            instance.recorder_due = False
        told = {r["request"] for r in job.report["results"]}
        node.running = [r for r in node.running if r["id"] not in told]
        for request in answer.get("requests") or ():
            id_, verb = str(request.get("id")), request.get("verb")
            if verb in SECONDS and id_ not in node.seen:
                node.seen.add(id_)
                node.running.append({"id": id_, "verb": verb, "begun": now, "until": now + SECONDS[verb]})

    def _failed(self, job: Job, status: int, answer: dict[str, Any], now: float) -> None:
        job.node.held_until = now + 1.5 + 1.5 * random.random()
        if status == 401:
            job.node.token = None
        elif status in (400, 409, 413, 415, 422) and job.report is not None:
            job.node.held_until = now + self.interval_s
            if now - self._warned > 30:
                self._warned = now
                log.warning("a report of %s was refused with %d: %s", job.instance, status, answer)
