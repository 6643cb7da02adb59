"""The batches that a query has finished, kept beyond the hundred of which Spark's checkpoint knows.

Spark writes `offsets/N` before batch N and `commits/N` after it: a line with a version, then JSON. Of a batch that has
both, one line is added to `batches.jsonl`: where it ended, its watermark and its time, also where it had no data. That
is what an exact replay needs. The first line names the query: a checkpoint that was made anew has another one, and then
the old file is put aside. A last line that a kill has cut is written again.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tailrace.spark.json_lines import append as append
from tailrace.spark.json_lines import lines as lines

logger = logging.getLogger(__name__)

FILE = "batches.jsonl"

Offsets = dict[str, dict[str, int]]  # as `positions.Positions.to_json` has them


@dataclass(frozen=True, slots=True)
class Batch:
    id: int
    ends: tuple[Offsets, ...]  # where it ended: one for each source of the query, of which ours have one
    watermark_ms: int
    timestamp_ms: int
    next_watermark_ms: int
    conf: Mapping[str, str] = field(default_factory=dict)  # the settings that Spark keeps with a batch

    @property
    def end(self) -> Offsets:
        (only,) = self.ends
        return only


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
        """What the checkpoint says of batches that were finished since it was last called."""
        if not self._is_open and not self._open():
            return
        after = self._last.id if self._last else -1
        if not (new := list(finished(self._checkpoint, after))):
            return
        if new[0].id > after + 1:
            logger.warning("Spark forgot batches %d to %d before they were kept", after + 1, new[0].id - 1)
        conf = [self._last.conf if self._last else None, *(batch.conf for batch in new)]
        append(self._path, (_line(batch, before) for batch, before in zip(new, conf, strict=False)))
        self._last = new[-1]

    def _open(self) -> bool:
        query = _query(self._checkpoint)
        if query is None:
            return False
        head = next(lines(self._path), None)
        if head is not None and head["query"] != query:
            self._path.rename(self._path.with_name(f"batches-{head['query']}.jsonl"))
            head = None
        if head is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            append(self._path, [{"query": query}])
        kept = _kept(self._path)
        self._last = kept[-1] if kept else None
        self._is_open = True
        return True


def _kept(path: Path) -> list[Batch]:
    found: list[Batch] = []
    conf: Mapping[str, str] = {}
    for line in lines(path):
        if "query" not in line:
            conf = line.get("conf", conf)
            found.append(Batch(**{**line, "ends": tuple(line["ends"]), "conf": conf}))
    return found


def _line(batch: Batch, conf_before: Mapping[str, str] | None) -> dict[str, Any]:
    """The settings only where they have changed."""
    line = asdict(batch)
    if batch.conf == conf_before:
        del line["conf"]
    return line


def _query(checkpoint: Path) -> str | None:
    found = _entry(checkpoint / "metadata")
    return str(json.loads(found[0])["id"]) if found else None


def finished(checkpoint: Path, after: int) -> Iterator[Batch]:
    """Those that are finished, in order. One that Spark deletes meanwhile was kept before."""
    finished = {int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()}
    for number in sorted(number for number in finished if number > after):
        offsets = _entry(checkpoint / "offsets" / str(number))
        commit = _entry(checkpoint / "commits" / str(number))
        if offsets and commit:
            yield _batch(number, offsets, commit)


def _batch(number: int, offsets: list[str], commit: list[str]) -> Batch:
    about = json.loads(offsets[1])
    after = json.loads(commit[1]) if len(commit) > 1 else {}
    return Batch(
        id=number,
        ends=tuple(json.loads(line) for line in offsets[2:]),
        watermark_ms=about["batchWatermarkMs"],
        timestamp_ms=about["batchTimestampMs"],
        next_watermark_ms=after.get("nextBatchWatermarkMs", 0),
        conf=about.get("conf", {}),
    )


def _entry(path: Path) -> list[str]:
    """The lines of a file of a checkpoint, which Spark puts into its place when it is whole; none if it is gone."""
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []
