"""The file that Spark's Java process logs to: its errors, with their stack traces (`log4j2.properties`).

`TAILRACE_SPARK_LOG` says where it is; by default it is in the directory for temporary files. It is made with the first
error.
"""

import os
import tempfile
from pathlib import Path

VARIABLE = "TAILRACE_SPARK_LOG"


def choose(default: Path | None = None) -> None:
    """Chooses the log file of the next Java process, unless the user has chosen one."""
    if VARIABLE not in os.environ:
        path = default or Path(tempfile.gettempdir(), f"tailrace-spark-{os.getpid()}.log")
        os.environ[VARIABLE] = str(path.absolute())


def written() -> Path | None:
    """The file, if there is something in it."""
    path = Path(os.environ.get(VARIABLE, ""))
    return path if path.is_file() and path.stat().st_size > 0 else None
