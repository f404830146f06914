"""A sandbox, and drives, as other tests have them."""

from tests.collect.conftest import no_broker, sandbox, sandbox_process
from tests.repairs.conftest import drives

__all__ = ["drives", "no_broker", "sandbox", "sandbox_process"]
