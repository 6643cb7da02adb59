"""Records that are gone before they were read: reported, never skipped in silence.

What is missing is a range of one partition: it was deleted, the log has lost its end, or the topic
was deleted, perhaps to be made again. `onDataLoss` says what then happens:

    fail      the query stops, and the error names the range (the default)
    earliest  reading goes on with what there is; a warning names the range
    report    the same, and the range is written to the state directory, a line of JSON for each
"""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.spark.source.json_files import append, lines
from tailrace.spark.source.options import OnDataLoss, SourceOptions

logger = logging.getLogger("tailrace.spark.source")

FILE = "losses.jsonl"
MARK = "TAILRACE_DATA_LOST"  # in the text of the error, which is all that Spark passes on
ADVICE = (
    "To go on without them: option onDataLoss=earliest; to have them written down, too: onDataLoss=report with "
    "stateDirectory=…. To start over instead: a new checkpoint and a new output, never one of them alone."
)
LOST_END = "the log ends before: its end was lost, or it is another topic's"
_NOTICED = "noticed_at_ms"


class Loss(NamedTuple):
    place: TopicPartition
    start: int
    end: int | None  # the first offset that is there again; None is not known
    why: str

    def __str__(self) -> str:
        if self.end is None:
            return f"{self.place}: all from offset {self.start} on is missing ({self.why})"
        return f"{self.place}: offsets {self.start} to {self.end - 1} are missing ({self.why})"


class DataLost(Exception):
    """The query must not go on as if nothing were missing."""

    def __init__(self, losses: Iterable[Loss]) -> None:
        self.losses = list(losses)
        super().__init__(self.losses)

    def __str__(self) -> str:
        lines = "\n".join(f"  {loss}" for loss in self.losses)
        return f"[{MARK}] records that this query has not read are gone:\n{lines}\n{ADVICE}"


class GoneSincePlanned(Exception):
    """Records that existed when a batch was planned are gone. Not an error that ends the query: when the driver plans
    the batch again, it finds the loss and records it.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        super().__init__(loss)

    def __str__(self) -> str:
        return (
            f"{self.loss}. The batch has to be planned again, by starting the query again from its checkpoint: "
            "onDataLoss=report then notes what is missing, and goes on"
        )


def meet(losses: list[Loss], options: SourceOptions) -> None:
    """Raises DataLost, or notes what is missing: by the option."""
    if not losses:
        return
    if options.on_data_loss is OnDataLoss.FAIL:
        raise DataLost(losses)
    for loss in losses:
        logger.warning("%s; onDataLoss=%s: reading goes on", loss, options.on_data_loss)
    if options.on_data_loss is OnDataLoss.REPORT:
        assert options.state_directory is not None
        _write_down(losses, Path(options.state_directory))


def _write_down(losses: list[Loss], directory: Path) -> None:
    """Each once, also where a batch is planned again."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE
    known = [{name: value for name, value in one.items() if name != _NOTICED} for one in lines(path)]
    noted = [
        {
            **{"topic": loss.place.topic, "partition": loss.place.partition},
            **{"from": loss.start, "to": loss.end, "why": loss.why},
        }
        for loss in losses
    ]
    append(path, (one | {_NOTICED: int(time.time() * 1000)} for one in noted if one not in known))
