"""Every address that there is, from the URL resolver and from the API's own description."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import URLPattern, get_resolver

from healthboard.api.api import api as described


def pages() -> dict[str, str]:
    """Route -> URL name, of all but the admin and the API."""
    return {
        route: name
        for route, name in _walk(get_resolver().url_patterns)
        if not route.startswith(("/admin/", "/api/v1/"))
    }


def admin() -> dict[str, str]:
    return {route: name for route, name in _walk(get_resolver().url_patterns) if route.startswith("/admin/")}


def operations() -> set[tuple[str, str]]:
    """(METHOD, path) of the API as it is described; each address of the resolver must be among them."""
    told = described.get_openapi_schema(path_prefix="/api/v1/")
    return {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}


def api() -> dict[str, str]:
    return {route: name for route, name in _walk(get_resolver().url_patterns) if route.startswith("/api/v1/")}


def _walk(patterns: list, before: str = "/") -> Iterator[tuple[str, str]]:
    for one in patterns:
        route = before + str(one.pattern)
        if isinstance(one, URLPattern):
            yield route, one.name or ""
        else:
            yield from _walk(one.url_patterns, route)
