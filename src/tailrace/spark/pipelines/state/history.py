"""The finished batches of a query, kept beyond the hundred that Spark's checkpoint has.

Spark writes `offsets/N` before batch N and `commits/N` after it: a line with a version, then JSON. Of a batch that has
both, one line is added to `batches.jsonl`: where it ended, its watermark and its time, also where it had no data. That
is what an exact replay needs. The first line names the query: a checkpoint that was made anew has another one, and then
the old file is put aside, together with what was noted of the work of its batches. A last line that a kill has cut is
written again.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tailrace.spark.pipelines.state.checkpoint_files import NO_OFFSET, DamagedCheckpoint
from tailrace.spark.source.json_files import append, lines
from tailrace.spark.source.options import BadOptions

logger = logging.getLogger("tailrace.spark.pipelines.state")

FILE = "batches.jsonl"
PROGRESS = "progress.jsonl"  # beside it: see `state`

Offsets = dict[str, dict[str, int]]  # as `positions.Positions.to_json` has them


@dataclass(frozen=True, slots=True)
class Batch:
    id: int
    ends: tuple[Offsets, ...]  # where it ended: one for each time that the query reads its topics
    watermark_ms: int
    timestamp_ms: int

    @property
    def end(self) -> Offsets:
        """Raises BadOptions where there are several."""
        if len(self.ends) != 1:
            raise BadOptions(
                f"the pipeline reads its topics {len(self.ends)} times, as in a join of a frame with itself, and has "
                "no one place where a batch ends: mode='batch' does not need it"
            )
        return self.ends[0]

    @property
    def lowest(self) -> Offsets:
        """Before which all was read, however often it is."""
        found: Offsets = {}
        for end in self.ends:
            for topic, offsets in end.items():
                known = found.setdefault(topic, {})
                known |= {index: min(at, known.get(index, at)) for index, at in offsets.items()}
        return found


def batches(directory: Path, checkpoint: Path) -> list[Batch]:
    """All that are known, in order: those that were kept, and those that only the checkpoint has so far."""
    kept = _kept(directory / FILE)
    return kept + list(finished(checkpoint, kept[-1].id if kept else -1))


class Keeper:
    """Adds to the file of one query, of which it remembers where it is."""

    def __init__(self, directory: Path, checkpoint: Path) -> None:
        self._path = directory / FILE
        self._checkpoint = checkpoint
        self._last: Batch | None = None
        self._is_open = False

    def keep(self) -> None:
        """Records the batches in the checkpoint that were finished since the last call."""
        if not self._is_open and not self._open():
            return
        after = self._last.id if self._last else -1
        if not (new := list(finished(self._checkpoint, after))):
            return
        if new[0].id > after + 1:
            logger.warning("Spark forgot batches %d to %d before they were kept", after + 1, new[0].id - 1)
        append(self._path, map(asdict, new))
        self._last = new[-1]

    def _open(self) -> bool:
        query = _query(self._checkpoint)
        if query is None:
            return False
        head = next(lines(self._path), None)
        if head is not None and head["query"] != query:
            _put_aside(self._path.with_name(PROGRESS), head["query"])
            _put_aside(self._path, head["query"])  # the last, since it says whose they are
            head = None
        if head is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            append(self._path, [{"query": query}])
        kept = _kept(self._path)
        self._last = kept[-1] if kept else None
        self._is_open = True
        return True


def _put_aside(path: Path, query: str) -> None:
    if path.exists():
        path.rename(path.with_name(f"{path.stem}-{query}{path.suffix}"))


def _kept(path: Path) -> list[Batch]:
    return [
        Batch(entry["id"], tuple(entry["ends"]), entry["watermark_ms"], entry["timestamp_ms"])
        for entry in lines(path)
        if "query" not in entry
    ]


def _query(checkpoint: Path) -> str | None:
    """The id of the query; None where it is missing or damaged, which is an error when the query starts."""
    try:
        return str(json.loads("".join(_entry(checkpoint / "metadata")))["id"])
    except (ValueError, TypeError, KeyError):
        return None


def finished(checkpoint: Path, after: int) -> Iterator[Batch]:
    """Those that are finished, in order. One that Spark deletes meanwhile was kept before. Raises DamagedCheckpoint."""
    finished = {int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()}
    for number in sorted(number for number in finished if number > after):
        path = checkpoint / "offsets" / str(number)
        if offsets := _entry(path):
            try:
                yield _batch(number, offsets)
            except (ValueError, LookupError):
                raise DamagedCheckpoint(path) from None


def _batch(number: int, offsets: list[str]) -> Batch:
    about = json.loads(offsets[1])
    ends = tuple(json.loads(line) for line in offsets[2:] if line != NO_OFFSET)
    return Batch(number, ends, about["batchWatermarkMs"], about["batchTimestampMs"])


def _entry(path: Path) -> list[str]:
    """The lines of a file of a checkpoint, which Spark puts into its place when it is whole; none if it is gone."""
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []
