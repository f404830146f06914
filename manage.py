#!/usr/bin/env python3
"""Django's command line; re-executes itself with the project's own environment where that exists."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"


def main() -> None:
    python = VENV / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != VENV.resolve() and not os.environ.get("HEALTHBOARD_NO_VENV"):
        os.execv(python, [str(python), str(HERE / "manage.py"), *sys.argv[1:]])
    sys.path.insert(0, str(HERE))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "healthboard.settings")
    if sys.argv[1:2] == ["explain"]:  # never needs a database: skip Django's set-up altogether
        from healthboard.diagnosis.explain_cli import main as explain

        sys.exit(explain(sys.argv[2:]))
    if sys.argv[1:] == ["sandbox_serve"]:  # nor does the sandbox, which plays AWS and knows nothing of us
        from healthboard.sandbox.server import main as serve

        sys.exit(serve())
    from django.core.management import execute_from_command_line

    from healthboard.config import BadSetting

    try:
        execute_from_command_line(sys.argv)
    except BadSetting as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
