"""The state directory of a pipeline: by default `./tailrace-pipelines/<name>/`.

pipeline.json           whose it is: the pipeline's name, what it reads, and where it writes
checkpoint/             Spark's: how far it is, and the state of windows and the like
corrupt-checkpoint/     the same of the query that writes corrupt messages, where they have a sink of their own
corrupt-start.json      where that one begins, if not with the pipeline
losses.jsonl            records that were gone, with onDataLoss=report
latest.json             where its topics ended when its last batch was planned
history/batches.jsonl   a line for each finished batch: what Spark's checkpoint says of it (`history.py`)
history/progress.jsonl  a line for each finished batch: rows, rows that came too late, how long it took
lock                    held by the process that runs it
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.spark.pipelines.progress import Progress, to_keep
from tailrace.spark.pipelines.state.checkpoint_files import check_logs, check_metadata
from tailrace.spark.pipelines.state.history import PROGRESS, Batch, Keeper, Offsets, batches
from tailrace.spark.source.json_files import append, lines, read_json, write_json
from tailrace.spark.source.options import BadOptions
from tailrace.spark.source.small_batches import ENDS

DEFAULT = "tailrace-pipelines"
_OWNER, _SIDE = "pipeline.json", "corrupt-start.json"


class AlreadyRunning(Exception):
    """Another process runs this pipeline: two would write the same rows."""


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

    def check_checkpoints(self, *, has_failed: bool = False) -> None:
        """Raises DamagedCheckpoint. The query's id is looked at only where a start has failed: before, a sink of files
        says what is wrong with it.
        """
        for checkpoint in (self.checkpoint, self.corrupt_checkpoint):
            check_logs(checkpoint)
            if has_failed:
                check_metadata(checkpoint)

    def batches(self) -> list[Batch]:
        """The finished batches, in order, also those that Spark has forgotten."""
        return batches(self.history, self.checkpoint)

    def keeper(self) -> Keeper:
        return Keeper(self.history, self.checkpoint)

    def progress(self) -> list[dict[str, Any]]:
        """The progress of finished batches, in order. The last one may be missing if the process ended with it."""
        return list(lines(self.history / PROGRESS))

    def add_progress(self, progress: Progress) -> None:
        self.history.mkdir(parents=True, exist_ok=True)
        append(self.history / PROGRESS, [to_keep(progress)])

    def ends(self) -> Offsets | None:
        """The ends of its topics when the last batch was planned."""
        found: Offsets | None = read_json(self.directory / ENDS)
        return found

    # Whose it is

    def owner(self) -> dict[str, Any] | None:
        """The pipeline that has run here: its `name`, its `source`, and as `sink` the places where it has written, such
        as ["files", "/data/out"] or ["topic", "big"]. None where none has.
        """
        found = read_json(self.directory / _OWNER)
        return None if found is None else dict(found)

    def claim(self, name: str, source: Iterable[str], places: Iterable[tuple[str, str]]) -> None:
        """Notes whose it is, and where it writes now, too. Raises BadOptions where it is another's, which has read what
        this one would then never see. It has to be `locked`.
        """
        mine = {"name": name, "source": sorted(source)}
        has_read = any(self.checkpoint.glob("offsets/*"))
        found = (self.owner() if has_read else None) or {**mine, "sink": []}
        for what, value in mine.items():
            if found[what] != value:
                raise BadOptions(
                    f"{self.directory} belongs to pipeline {found['name']}, which reads {', '.join(found['source'])}; "
                    f"{name} reads {', '.join(mine['source'])}, and would skip what that one has read. If it was "
                    f"renamed, keep name={found['name']!r}; else it needs a state directory (state=) and "
                    "an output of its own"
                )
        sink = found["sink"] + [list(place) for place in places if list(place) not in found["sink"]]
        write_json(self.directory / _OWNER, {**mine, "sink": sink})

    # The query of corrupt messages

    def knows_side(self) -> bool:
        """Whether the start of the second query is known: it has run, or its start was noted."""
        return self.corrupt_checkpoint.exists() or (self.directory / _SIDE).exists()

    def side_start(self) -> Offsets | None:
        """The noted start of the second query; None if it begins where the pipeline began."""
        found: Offsets | None = read_json(self.directory / _SIDE)
        return found

    def note_side_start(self, start: Offsets | None) -> None:
        write_json(self.directory / _SIDE, start)

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
