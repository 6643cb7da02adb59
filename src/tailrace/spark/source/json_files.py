"""JSON files: single objects, replaced as a whole, and lines, which are only appended. A kill may truncate the last
line, and nothing else.
"""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

logger = logging.getLogger("tailrace.spark.source")


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON of each line, up to one that a kill has cut. What cannot be read is passed over, and said."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError:
                logger.warning("%s, line %d: this is no JSON, and is passed over", path, number)


def append(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """In place of a line that a kill has cut, if there is one."""
    with path.open("a+b") as file:
        file.truncate(_end_of_lines(file))
        file.write(b"".join(json.dumps(one).encode() + b"\n" for one in objects))


def _end_of_lines(file: BinaryIO) -> int:
    end = file.seek(0, 2)
    while end > 0:
        start = max(0, end - (1 << 16))
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0


def read_json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def write_json(path: Path, value: Mapping[str, Any] | None) -> None:
    """All of it or nothing."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")  # several processes may write one
    beside.write_text(json.dumps(value, indent=2) + "\n")
    beside.replace(path)
