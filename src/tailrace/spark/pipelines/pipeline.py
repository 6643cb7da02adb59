"""The decorator `pipeline` and the class `Pipeline`: a function from frame to frame, with its source, decoder and sink.

    @pipeline(source="orders", decode=Json("id INT, amount DOUBLE"), sink=Topic("big"))
    def big(orders):
        return orders.where("amount > 100")

    big.run(bootstrap="localhost:9092")      # live
    big.replay(...)                          # the same over history
    big.test([{"id": 1, "amount": 150.0}])   # the same over some rows
    big(frame)                               # the function itself

Nothing is read, and Spark not started, before one of these is called.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tailrace.spark.pipelines.decoders import COUNTED, READ, Decoder, Raw
from tailrace.spark.pipelines.sinks import Sink, check_sink
from tailrace.spark.source.options import EARLIEST, GROUP, LATEST, BadOptions
from tailrace.util.times import NoTime, milliseconds, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

    from tailrace.spark.pipelines.replay.replay import Plan, Replayed
    from tailrace.spark.pipelines.run import Outcome

Transform = Callable[["DataFrame"], "DataFrame"]

BOOTSTRAP = "localhost:9092"
_WORDS = (EARLIEST, LATEST, GROUP)
_NAMES = re.compile(r"[A-Za-z0-9._,\s-]*")  # of topics; a source with any other character is a pattern
# Options of the format that an argument says, by how they begin.
_SAID_BY = {
    "starting": "start=",
    "ending": "end= of a replay",
    "group": "group=",
    "subscribe": "source=",
    "assign": "source=",
    "failondataloss": "on_data_loss=",
    "ondataloss": "on_data_loss=",
    "statedirectory": "state=",
    "recordedbatches": "mode='exact' of a replay",
}


@dataclass(frozen=True, slots=True)
class Pipeline:
    transform: Transform
    name: str
    source: tuple[str, ...]
    sink: Sink
    decode: Decoder = field(default_factory=Raw)
    group: str = ""
    start: str | datetime = EARLIEST  # counts for a new checkpoint only
    options: Mapping[str, str] = field(default_factory=dict)  # more of the format
    output_mode: str = "append"

    def __call__(self, frame: "DataFrame") -> "DataFrame":
        return self.transform(frame)

    def run(self, bootstrap: str = BOOTSTRAP, **settings: Any) -> "Outcome":
        """Runs the pipeline on live data until it is stopped, or once over the existing records. The settings, by name:

        once           ends when the existing records have been read
        every          a cadence, such as "10 seconds"; without, a batch begins when the last one is done
        state          the directory of its state; ./tailrace-pipelines/<name>
        sink           one instead of the pipeline's
        options        more options of the format `tailrace`
        on_data_loss   "fail", "earliest" or "report"
        on_progress    is called with each finished batch
        max_restarts   how many failures in a row are passed over
        stop           a `threading.Event` that ends it
        spark, master  the Spark session to use, or where to make one
        """
        from tailrace.spark.pipelines.run import run

        return run(self, bootstrap, **settings)

    def plan_replay(self, bootstrap: str = BOOTSTRAP, **settings: Any) -> "Plan":
        """Returns what a replay would read, and what is missing from it. Takes `start`, `end`, `mode`, `state` and
        `options`.
        """
        from tailrace.spark.pipelines.replay.replay import plan_replay

        return plan_replay(self, bootstrap, **settings)

    def replay(self, bootstrap: str = BOOTSTRAP, **settings: Any) -> "Replayed":
        """Runs the pipeline over history, into another output. The settings, by name:

        sink           where the rows go; needed
        start, end     times, "earliest", "now", or offsets: what is read; all of it
        mode           "batch", or "exact": over the very batches that the live run had
        overwrite      replaces the files that are there
        options        more options of the format `tailrace`
        state          the directory of the live run; ./tailrace-pipelines/<name>
        plan           what `plan_replay` returned
        on_progress    is called as batches finish
        spark, master  the Spark session to use, or where to make one
        conf           settings of a session that is made for it
        """
        from tailrace.spark.pipelines.replay.replay import replay

        return replay(self, bootstrap, **settings)

    def test(
        self,
        rows: Iterable[Mapping[str, Any]] | None = None,
        *,
        messages: Iterable[Any] | None = None,
        spark: "SparkSession | None" = None,
    ) -> list[dict[str, Any]]:
        """Runs the pipeline over decoded rows, or over messages, which are decoded first: see `sample_run.run_on`."""
        from tailrace.spark.pipelines.sample_run import run_on

        return run_on(self, rows, messages, spark)

    @property
    def topics(self) -> list[str]:
        """The sources that are names."""
        return [one for one in self.source if _NAMES.fullmatch(one)]

    @property
    def patterns(self) -> list[str]:
        """The sources that are regular expressions, each for a whole name."""
        return [one for one in self.source if not _NAMES.fullmatch(one)]

    def reads(self, topic: str) -> bool:
        return topic in self.topics or any(re.fullmatch(pattern, topic) for pattern in self.patterns)

    @property
    def has_headers(self) -> bool:
        return any(
            name.lower() == "includeheaders" and str(value).lower() == "true" for name, value in self.options.items()
        )

    # What `run` and `replay` share

    def client_options(self, bootstrap: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the options of the connection to the broker, for the source and for a sink that is a topic."""
        given = {**self.options, **(more or {})}
        client = {name: str(value) for name, value in given.items() if name.lower().startswith("kafka.")}
        return {"kafka.bootstrap.servers": bootstrap} | client

    def read_options(self, bootstrap: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The options of the format, without a start, an end, and a group. Raises BadOptions."""
        _check_options({**self.options, **(more or {})})
        given = {**self._subscription(), "columns": ",".join(READ), **self.options, **(more or {})}
        return self.client_options(bootstrap, more) | {name: str(value) for name, value in given.items()}

    def _subscription(self) -> dict[str, str]:
        if not self.patterns:
            return {"subscribe": ",".join(self.source)}
        every = [*map(re.escape, self.topics), *self.patterns]
        return {"subscribePattern": "|".join(f"(?:{one})" for one in every)}

    def start_options(self) -> dict[str, str]:
        """Returns where a stream without a checkpoint begins. That may depend on the time of the call: `yesterday`."""
        if self.start in _WORDS:
            return {"startingOffsets": str(self.start)}
        moment = milliseconds(_moment(self.start))
        return {"startingTimestamp": str(moment), "startingOffsetsByTimestampStrategy": LATEST}

    def frame_of(self, messages: "DataFrame", counted: "str | Observation" = COUNTED) -> "DataFrame":
        """Returns the pipeline's result for messages with the columns of the format, in a stream or a batch. `counted`
        names the observation that counts corrupt messages.
        """
        return self.transformed(self.decode.decode(messages, counted))

    def transformed(self, frame: "DataFrame") -> "DataFrame":
        """Returns the function's result for a decoded frame. Raises BadOptions if that is not a frame."""
        from pyspark.sql import DataFrame

        made: object = self.transform(frame)
        if isinstance(made, DataFrame):
            return made
        code = getattr(self.transform, "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
        missing = ": is a `return` missing?" if made is None else ""
        raise BadOptions(f"the function of pipeline {self.name}{place} returns {made!r}, and not a frame{missing}")


def pipeline(
    *,
    source: str | Iterable[str],
    sink: Sink,
    decode: Decoder | None = None,
    group: str | None = None,
    start: str | datetime = EARLIEST,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    output_mode: str = "append",
) -> Callable[[Transform], Pipeline]:
    """Makes a pipeline of a function. It, its group and what it keeps on disk are named as the function is.

    `source` is a topic or several. A text with a character that no topic's name has is a pattern: a regular expression
    for whole names, such as `orders-.*`. Topics that match later are read from their beginning.

    `start` is earliest, latest, group (where the group is), or a time, also one such as yesterday or -2h: of a pipeline
    that has not run yet.
    """

    check_sink(sink)

    def decorate(transform: Transform) -> Pipeline:
        own = name or transform.__name__
        made = Pipeline(
            transform=transform,
            name=own,
            source=(source,) if isinstance(source, str) else tuple(source),
            sink=sink,
            decode=decode or Raw(),
            group=group or own,
            start=_start(start),
            options=_check_options(options or {}),
            output_mode=output_mode,
        )
        _check_patterns(made)
        return made

    return decorate


def _check_patterns(made: Pipeline) -> None:
    for pattern in made.patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOptions(
                f"source {pattern!r} is neither a topic's name nor a regular expression: {error}"
            ) from None
    for sink in (made.sink, made.decode.side):
        kind, name = (sink and sink.place) or ("", "")
        if made.patterns and kind == "topic" and made.reads(name):
            raise BadOptions(f"{made.name} would read what it writes: topic {name} matches {' or '.join(made.source)}")


def _start(given: str | datetime) -> str | datetime:
    """Checks the start, and returns it unchanged: a time is looked up when the pipeline runs."""
    if given not in _WORDS:
        _moment(given)
    return given


def _moment(given: str | datetime) -> datetime:
    if isinstance(given, datetime):
        return given.astimezone()
    try:
        return parse(given, datetime.now(UTC))
    except NoTime as error:
        raise BadOptions(f"start is {', '.join(_WORDS)} or a time: {error}") from None


def _check_options(options: Mapping[str, str]) -> dict[str, str]:
    for name in options:
        said_by = [argument for begin, argument in _SAID_BY.items() if _begins(name.lower(), begin)]
        if said_by:
            raise BadOptions(f"option {name} is said by an argument: {said_by[0]}")
    return dict(options)


def _begins(name: str, begin: str) -> bool:
    return name == begin if begin == "group" else name.startswith(begin)  # groupIdPrefix is another
