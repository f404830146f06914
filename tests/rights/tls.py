"""A Valkey behind TLS, with certificates of its own: the embedded server is built without TLS, so it stands behind a
terminator in this process, as it does behind a proxy elsewhere. What is tested is our end of it, and the server's users."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
import time
from pathlib import Path

import redis
import trustme

from healthboard import broker, valkey
from tests.services import spare_port


class Terminator:
    """TLS on a spare port, plain to `inner`; an event loop in a thread of its own."""

    def __init__(self, inner: int, certificate: trustme.LeafCert, port: int = 0) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(self.context)
        self.inner, self.port = inner, port or spare_port()
        self.loop, ready = asyncio.new_event_loop(), threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        assert ready.wait(10)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        started = asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.context)
        self.server = self.loop.run_until_complete(started)
        ready.set()
        self.loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.inner)
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._end)
        self.thread.join(10)
        self.loop.close()

    def _end(self) -> None:
        """Who is still connected is let go, and told so before the loop ends."""
        self.server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.call_later(0.1, self.loop.stop)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


class Broker:
    """A server with the shipped users behind TLS: `url(process)`, `client(process)`, and `admin` without limits.

    `users`: an ACL file that the server gets instead; `port`: where TLS listens."""

    def __init__(
        self, folder: Path, policy: str = "noeviction", *, users: str = "", authority: trustme.CA | None = None, port: int = 0
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = authority or trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.passwords = {name: f"of-{name}-for-tests-only" for name in broker.USERS}
        users = users or broker.acl(self.passwords)
        (folder / "users.acl").write_text(users + "user admin on >admin ~* &* +@all\n")
        self.plain = spare_port()
        (folder / "valkey.conf").write_text(
            f'bind 127.0.0.1\nport {self.plain}\naclfile {folder / "users.acl"}\nsave ""\nappendonly no\n'
            f"maxmemory-policy {policy}\ndir {folder}\nloglevel warning\nlogfile {folder / 'valkey.log'}\n"
        )
        self.process = subprocess.Popen([valkey.binary(), str(folder / "valkey.conf")])
        self.admin = redis.Redis.from_url(f"redis://admin:admin@127.0.0.1:{self.plain}/0")
        for _ in range(250):
            with contextlib.suppress(redis.RedisError):
                if self.admin.ping():
                    break
            assert self.process.poll() is None, (folder / "valkey.log").read_text()
            time.sleep(0.02)
        self.tls = Terminator(self.plain, self.authority.issue_cert("localhost"), port)

    def url(self, process: str, host: str = "localhost") -> str:
        return f"rediss://{process}:{self.passwords[process]}@{host}:{self.tls.port}/0"

    def env(self, process: str) -> dict[str, str]:
        return {"REDIS_URL": self.url(process), "HEALTHBOARD_REDIS_CA": str(self.ca), "HEALTHBOARD_PROCESS": process}

    def client(self, process: str) -> redis.Redis:
        return redis.Redis.from_url(f"redis://{process}:{self.passwords[process]}@127.0.0.1:{self.plain}/0")

    def stop(self) -> None:
        self.admin.close()
        self.tls.close()
        self.process.terminate()
        self.process.wait(10)
