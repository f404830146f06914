"""A sandbox with two accounts and two regions, and callers of the API, as other tests have them."""

from tests.api.conftest import calling
from tests.collect.conftest import no_broker, sandbox, sandbox_process

__all__ = ["calling", "no_broker", "sandbox", "sandbox_process"]
