"""The HTTP API under /api/v1/, with its description at /api/v1/openapi.json."""

from __future__ import annotations

from typing import Any

from ninja import NinjaAPI

from healthboard.api import acts, decisions, errors, fleet, lists, node, node_enrol, policies, record, two
from healthboard.api.auth import Session, Token


class Api(NinjaAPI):
    _described: dict[str, Any] | None = None

    def get_openapi_schema(self, **options: Any) -> Any:
        """With what the parser does: an empty parameter is one left out, as a form sends it. Made once in a process: it
        takes a third of a second."""
        if self._described is None:
            described = super().get_openapi_schema(**options)
            for operations in described["paths"].values():
                for operation in operations.values():
                    for parameter in operation.get("parameters", ()):
                        if parameter["in"] == "query":
                            parameter["allowEmptyValue"] = True
            self._described = described
        return self._described


api = Api(
    title="healthboard",
    version="1",
    description="Health cases of GPU machines on Amazon ECS and EC2, what was decided about them, and their repair.",
    auth=[Token(), Session()],
    parser=errors.JsonOnly(),
    docs_url=None,
    openapi_url="/openapi.json",
    urls_namespace="api",
)
errors.install(api)
api.add_router("", node.router)  # first: nearly all that comes is a report
api.add_router("", node_enrol.router)
api.add_router("", lists.router)
api.add_router("", record.router)
api.add_router("", fleet.router)
api.add_router("", decisions.router)
api.add_router("", acts.router)
api.add_router("", two.router)
api.add_router("", policies.router)
