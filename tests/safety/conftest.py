from __future__ import annotations

import os

# Minutes of processor time: only where it is asked for, as `make safety-seeded` does; the variable's value is the seed.
collect_ignore_glob = [] if os.environ.get("SAFETY_SEEDED") else ["test_seeded.py"]
