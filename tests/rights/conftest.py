"""A sandbox, as the collectors' tests have it."""

from tests.collect.conftest import no_broker, sandbox, sandbox_process

__all__ = ["no_broker", "sandbox", "sandbox_process"]
