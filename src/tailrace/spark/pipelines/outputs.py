"""Whether an output directory and a checkpoint belong together, checked before a query writes files.

Spark's file sink numbers its batches by the checkpoint and skips each number that `_spark_metadata` of the output
already has. With a checkpoint that the output does not belong to, rows are therefore skipped and still count as read;
or numbers are missing from `_spark_metadata`, and Spark cannot read the output. So a start is refused unless

1. the output has no owner file (`_tailrace_owner.json`, which Spark's readers ignore), or it names this query, and
2. the last batch of the output is the one before the checkpoint's next, or that next one where it is already planned: a
   kill between the sink's commit and the checkpoint's leaves this.

An output without an owner file, which an earlier version has written, is adopted if its numbers fit.
"""

import json
import logging
import re
import threading
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.stores import Directory
from tailrace.spark.source.options import BadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("tailrace.spark.pipelines")

OWNER = "_tailrace_owner.json"
NO_BATCH = -1
_BATCHES, _QUERY = "_spark_metadata", "metadata"
_BATCH_FILE = re.compile(r"(\d+)(?:\.compact)?")
_claiming = threading.Lock()  # several pipelines of one process may start at once


class OutputMismatch(BadOptions):
    """The output and the checkpoint do not belong together."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The content of an owner file."""

    query: str  # the id that Spark gave the query, in `metadata` of its checkpoint
    pipeline: str
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress of a checkpoint."""

    query: str | None  # None where no query has started from it
    planned: int = NO_BATCH  # the last batch in offsets/
    finished: int = NO_BATCH  # the last batch in commits/

    @property
    def next(self) -> int:
        """The batch that Spark would run first: a planned one that is not finished is run again."""
        return self.planned if NO_BATCH < self.planned != self.finished else self.planned + 1

    def fits(self, last: int) -> bool:
        """Whether an output whose last batch is `last` can go on from here."""
        return last in (self.next - 1, self.planned)


def claim(session: "SparkSession", path: str, checkpoint: str, pipeline: str) -> None:
    """Makes the query of this checkpoint the owner of the output, which may start on return.

    Raises OutputMismatch, with nothing changed, and StoreError. The query's id is made here for a new checkpoint, and
    is written before the owner file: a kill in between leaves an output without an owner, which is adopted.
    """
    output, state = Directory(session, path), Directory(session, checkpoint)
    with _claiming:
        content, last = output.read(OWNER), last_batch(output.inside(_BATCHES).names())
        found = read_owner(content, path)
        at = _read_checkpoint(state)
        mine = Owner(at.query or str(uuid.uuid4()), pipeline, checkpoint)
        if problem := mismatch(path, last, found, mine, at):
            raise OutputMismatch(problem)
        if at.query is None:
            state.write(_QUERY, json.dumps({"id": mine.query}).encode(), replace=False)
        if found != mine:
            written = json.dumps(asdict(mine), indent=2).encode() + b"\n"
            output.write(OWNER, written, replace=content is not None)


def last_batch(names: Iterable[str]) -> int:
    """The highest number among the names of a log of Spark's, compacted batches included."""
    found = (_BATCH_FILE.fullmatch(name) for name in names)
    return max((int(one[1]) for one in found if one), default=NO_BATCH)


def read_owner(content: bytes | None, path: str) -> Owner | None:
    """None also for a file that cannot be read, as a power cut may leave it: the numbers then decide."""
    if content is None:
        return None
    try:
        return Owner(**json.loads(content))
    except (ValueError, TypeError):
        logger.warning("%s/%s cannot be read: it is written again if the batch numbers fit", path, OWNER)
        return None


def _read_checkpoint(state: Directory) -> Checkpoint:
    content = state.read(_QUERY)
    planned, finished = (last_batch(state.inside(name).names()) for name in ("offsets", "commits"))
    if content is None and planned == NO_BATCH:
        return Checkpoint(None, planned, finished)
    try:
        return Checkpoint(str(json.loads(content or b"")["id"]), planned, finished)
    except (ValueError, TypeError, KeyError):
        raise OutputMismatch(
            f"{state.path}/{_QUERY} is missing or damaged: it is unknown which output this checkpoint belongs to. "
            "Restore the file from a backup. Or start over: delete the state directory and the output together"
        ) from None


# What is said


def mismatch(path: str, last: int, found: Owner | None, mine: Owner, at: Checkpoint) -> str | None:
    """Returns what does not fit, and what to do about it; None if everything fits.

    `last` is the last batch of the output and `found` its owner; `at` is the checkpoint of `mine`.
    """
    is_other = found is not None and found.query != mine.query
    if at.fits(last) and not is_other:
        return None
    if found is not None and is_other:
        why = f"the output belongs to pipeline {found.pipeline} with the state directory {_state(found.checkpoint)}"
        advice = _advice_on_owner(path, found, mine, at)
    else:
        why = _why(last, at)
        advice = _advice_on_numbers(path, last, mine, at)
    return (
        f"{path} and the state directory {_state(mine.checkpoint)} of {mine.pipeline} do not belong together: "
        f"{why}{_harm(last, at)}. {advice}"
    )


def _why(last: int, at: Checkpoint) -> str:
    if at.planned == NO_BATCH:
        return f"the output already has batches up to {last}, and the checkpoint has none"
    if last == NO_BATCH:
        return f"the output has no batch, and the checkpoint has batches up to {at.planned}"
    relation = "older" if last > at.planned else "newer"
    return (
        f"the output has batches up to {last}, and the checkpoint up to {at.planned}: it is {relation} than the output"
    )


def _harm(last: int, at: Checkpoint) -> str:
    if at.fits(last):
        return ""
    if last >= at.next:
        return f". Spark would skip the rows of batches {at.next} to {last}"
    return f". Spark could not read the output without batches {last + 1} to {at.next - 1}"


def _advice_on_owner(path: str, found: Owner, mine: Owner, at: Checkpoint) -> str:
    own_path = "a path of its own"
    if at.planned != NO_BATCH:
        own_path = "its own path, or a new path together with a new state directory"
    if found.pipeline != mine.pipeline:
        return (
            f"If {found.pipeline} was renamed, keep name={found.pipeline!r} and {_state_option(found)}. "
            f"If both are in use, give {mine.pipeline} {own_path}"
        )
    if found.checkpoint != mine.checkpoint:
        return f"Run it with {_state_option(found)}, or give it {own_path}"
    return f"Its checkpoint was deleted or replaced. {_restore(path, mine)}"


def _advice_on_numbers(path: str, last: int, mine: Owner, at: Checkpoint) -> str:
    state = _state(mine.checkpoint)
    if last == NO_BATCH:
        return (
            f"If the path has changed, set it back ({state}/pipeline.json lists the earlier ones), or go on in the new "
            "path with a new state directory and start='group', which begins where the consumer group is. "
            "If the output was deleted, restore it; or start over: delete the state directory, too"
        )
    if at.planned == NO_BATCH:
        return (
            "If the pipeline was renamed or run elsewhere, give it the name= and state= it had; if another pipeline "
            f"writes there, give this one a path of its own. If the checkpoint was deleted: {_restore(path, mine)}"
        )
    return _restore(path, mine)


def _restore(path: str, mine: Owner) -> str:
    return (
        f"Restore {mine.checkpoint} and {path} from one backup. Or start over: delete {path} and "
        f"{_state(mine.checkpoint)} together, or take a new path and a new state directory"
    )


def _state_option(owner: Owner) -> str:
    """The argument of a run from Python, and that of `tailrace run` where the directory has the pipeline's name."""
    state = _state(owner.checkpoint)
    above, _, name = state.rpartition("/")
    return f"state={state!r}" + (f" (--state {above})" if name == owner.pipeline and above else "")


def _state(checkpoint: str) -> str:
    """The state directory that a checkpoint is in."""
    return checkpoint.rstrip("/").rpartition("/")[0] or checkpoint
