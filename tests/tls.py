"""A real TLS server for tests of clients: one thread, one connection after the other."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import trustme


@contextlib.contextmanager
def listening(certificate: trustme.LeafCert, talk: Callable[[ssl.SSLSocket], None]) -> Iterator[int]:
    """Its port on loopback; `talk` is called with each connection after its handshake, whose failures are the client's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as one:
                talk(one)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
