"""One log line per record, control characters escaped: text from nodes and users cannot forge a second line."""

import logging


class Line(logging.Formatter):
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        import time

        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        first, _, rest = text.partition("\n")
        clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in first)
        # a traceback of our own code keeps its lines, indented, so that a line start is always ours
        return clean + ("\n" + "\n".join("    " + line for line in rest.splitlines()) if rest else "")
