"""Formats log lines: for people on a terminal, and as JSON otherwise, for machines that collect them.

Modules that only a log line needs are imported for the first one, which makes starts faster.
"""

import logging
import sys

_COLOURS = {logging.WARNING: "\033[33m", logging.ERROR: "\033[31m", logging.CRITICAL: "\033[31;1m"}
_PLAIN = "\033[0m"


class ForPeople(logging.Formatter):
    def __init__(self, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        from datetime import datetime

        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        line = f"{time} {record.levelname.lower():7} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        colour = _COLOURS.get(record.levelno) if self._colours else None
        return f"{colour}{line}{_PLAIN}" if colour else line


class ForMachines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json
        from datetime import UTC, datetime

        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(*, colours: bool, level: int = logging.INFO) -> None:
    """Sends log records to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ForPeople(colours) if sys.stderr.isatty() else ForMachines())
    logger = logging.getLogger("tailrace")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
