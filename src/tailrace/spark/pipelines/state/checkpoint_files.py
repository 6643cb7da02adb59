"""Finds damage in the small files of Spark's checkpoint, as a power cut or a full disk may leave it.

Spark reads `metadata` and the latest files of `offsets/` and `commits/` when a query starts. What it says of one that
is damaged does not name the file.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from tailrace.spark.source.options import BadOptions

_LATEST = 2  # files of each log
NO_OFFSET = "-"  # in place of that of a source that has none yet


class DamagedCheckpoint(BadOptions):
    """A file of the checkpoint cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is damaged: the pipeline cannot know how far it was. Restore the state directory and the output "
            "from one backup. Or start over: delete the state directory and the output together"
        )


def check_logs(checkpoint: Path) -> None:
    """Raises DamagedCheckpoint."""
    for log in ("offsets", "commits"):
        for path in _latest(checkpoint / log):
            if not _is_sound(path.read_text(errors="replace").splitlines()[1:]):
                raise DamagedCheckpoint(path)


def check_metadata(checkpoint: Path) -> None:
    """Raises DamagedCheckpoint."""
    path = checkpoint / "metadata"
    if path.exists() and not _is_sound(path.read_text(errors="replace").splitlines()):
        raise DamagedCheckpoint(path)


def _latest(log: Path) -> Iterator[Path]:
    numbers = sorted(int(path.name) for path in log.glob("*") if path.name.isdecimal())
    yield from (log / str(number) for number in numbers[-_LATEST:])


def _is_sound(entries: list[str]) -> bool:
    try:
        for entry in entries:
            if entry != NO_OFFSET:
                json.loads(entry)
    except ValueError:
        return False
    return bool(entries)
