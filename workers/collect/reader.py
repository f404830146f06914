"""Reading calls to AWS: paged, counted, and every way of not getting an answer is one exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from healthboard import aws, config


class Blind(Exception):
    """AWS gave no answer that could be used; the message says which call and why. Nothing may be concluded from it."""


class Reader:
    """Calls of one service in one account and region. `touch` is called before each request."""

    def __init__(self, service: str, *, account: str, region: str, touch: Callable[[], None] = lambda: None) -> None:
        self.service = service
        try:
            self.client = aws.client(service, account=account, region=region)
        except (config.BadSetting, BotoCoreError) as error:
            raise Blind(f"{service}: {error}") from error
        self.touch = touch
        self.calls = 0

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """One answer. Raises Blind."""
        self.calls += 1
        self.touch()
        try:
            return getattr(self.client, operation)(**params)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code") or "an error without a code"
            raise Blind(f"{self.service} {operation}: {code}") from error
        except (BotoCoreError, OSError) as error:
            raise Blind(f"{self.service} {operation}: {type(error).__name__}: {error}"[:500]) from error

    def pages(self, operation: str, key: str, *, size: int | None = None, **params: Any) -> Iterator[Any]:
        """The items under `key` of all pages, `size` a page. Raises Blind at any page."""
        if size:
            params["PaginationConfig"] = {"PageSize": size}
        pages = iter(self.client.get_paginator(operation).paginate(**params))
        while True:
            self.calls += 1
            self.touch()
            try:
                page = next(pages)
            except StopIteration:
                self.calls -= 1
                return
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code") or "an error without a code"
                raise Blind(f"{self.service} {operation}: {code}") from error
            except (BotoCoreError, OSError) as error:
                raise Blind(f"{self.service} {operation}: {type(error).__name__}: {error}"[:500]) from error
            items = page.get(key)
            if not isinstance(items, list):
                raise Blind(f"{self.service} {operation}: the answer has no {key}")
            yield from items

    def chunks(self, operation: str, key: str, ids: str, values: list[str], size: int, **params: Any) -> tuple:
        """Describe `values` in chunks: (items, failures). Raises Blind, also where an answer leaves the items out."""
        items, failures = [], []
        for start in range(0, len(values), size):
            answer = self.call(operation, **{ids: values[start : start + size]}, **params)
            if not isinstance(answer.get(key), list):
                raise Blind(f"{self.service} {operation}: the answer has no {key}")
            items += answer[key]
            failures += answer.get("failures") or []
        return items, failures
