"""How the provider is asked: a session of `requests` that connects to the address that was checked, follows no redirect,
asks no proxy, and takes no more and no longer than it should."""

from __future__ import annotations

import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from healthboard import config, egress

#: seconds for one step of the conversation, and for all of an answer; bytes of an answer
STEP_S, WHOLE_S, MOST = 5.0, 10.0, 1024 * 1024


class Refused(requests.RequestException):
    """The answer is none that is read further; the message says why."""


class _Checked(HTTPConnection):
    def _new_conn(self) -> Any:
        try:
            return egress.connect(self._dns_host, self.port, self.timeout)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"{self.host} does not answer") from error
        except OSError as error:
            raise NewConnectionError(self, f"{self.host}: {error}") from error


class _CheckedTLS(_Checked, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Checked


class _PoolTLS(HTTPSConnectionPool):
    ConnectionCls = _CheckedTLS


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _PoolTLS}


class Session(requests.Session):
    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # no proxy, and no password of a .netrc
        self.verify = config.read("HEALTHBOARD_OIDC_CA") or True
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(max_retries=0))

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        """Raises RequestException."""
        end = time.monotonic() + WHOLE_S
        kwargs |= {"allow_redirects": False, "stream": True, "timeout": STEP_S}
        answer = super().request(method, url, **kwargs)
        try:
            if 300 <= answer.status_code < 400:
                raise Refused(f"{answer.status_code}, a redirect, which is never followed")
            parts, size = [], 0
            for part in answer.iter_content(16 * 1024):
                parts.append(part)
                size += len(part)
                if size > MOST:
                    raise Refused(f"an answer of more than {MOST} bytes")
                if time.monotonic() > end:
                    raise Refused(f"no whole answer within {WHOLE_S:g} s")
            answer._content = b"".join(parts)
        finally:
            answer.close()
        return answer
