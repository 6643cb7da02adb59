"""What a pipeline keeps on disk, in one directory: by default `./tailrace-pipelines/<name>/`.

checkpoint/             Spark's: how far it is, and the state of windows and the like
corrupt-checkpoint/     the same of the query that writes corrupt messages, where they have a sink of their own
losses.jsonl            records that were gone, with onDataLoss=report
history/batches.jsonl   a line for each finished batch: what Spark's checkpoint says of it (`history.py`)
history/progress.jsonl  a line for each finished batch: rows, rows that came too late, durations
lock                    held by whoever runs it
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.spark.pipelines.history import Batch, Keeper, append, batches, lines

DEFAULT = "tailrace-pipelines"
PROGRESS = "progress.jsonl"


class AlreadyRunning(Exception):
    """Somebody else runs this pipeline: two would write the same rows."""


@dataclass(frozen=True, slots=True)
class State:
    directory: Path

    @staticmethod
    def of(name: str, directory: "str | Path | State | None" = None) -> "State":
        """That of the pipeline `name`, where no directory is given."""
        if isinstance(directory, State):
            return directory
        return State((Path(directory) if directory is not None else Path(DEFAULT) / name).absolute())

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    @property
    def corrupt_checkpoint(self) -> Path:
        return self.directory / "corrupt-checkpoint"

    @property
    def history(self) -> Path:
        return self.directory / "history"

    def batches(self) -> list[Batch]:
        """The finished batches, in order, also those that Spark has forgotten."""
        return batches(self.history, self.checkpoint)

    def keeper(self) -> Keeper:
        return Keeper(self.history, self.checkpoint)

    def progress(self) -> list[dict[str, Any]]:
        """What is known of the work of finished batches, in order; one that ended with the process may be missing."""
        return list(lines(self.history / PROGRESS))

    def add_progress(self, progress: Mapping[str, Any]) -> None:
        self.history.mkdir(parents=True, exist_ok=True)
        append(self.history / PROGRESS, [progress])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises AlreadyRunning. The lock is gone with the process that has it, however that ends."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise AlreadyRunning(
                    f"{self.directory} is in use: process {file.read().strip() or 'unknown'} runs this pipeline"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield
