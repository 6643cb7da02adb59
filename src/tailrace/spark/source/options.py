"""The options of the `tailrace` format: those of Spark's own `kafka` format, by the same names, and a few of ours.

Options of the client (`kafka.…`) are passed to the client, which refuses unknown ones.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.options import ClientOptions
from tailrace.spark.columns.schema import COLUMNS, HEADERS, TYPES
from tailrace.spark.source.consumer_properties import refusal, with_effect
from tailrace.spark.source.positions import offsets_in, partitions_in

Found = TypeVar("Found")

EARLIEST, LATEST, GROUP = "earliest", "latest", "group"
FIRST, NEXT = -2, -1  # in the place of an offset: the first that is there, the next that will be
_PREFIX = "kafka."
_SECONDS_IN = {"": 1e-3, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}

NAMES = {
    name.lower(): name
    for name in (
        *("subscribe", "subscribePattern", "assign", "columns", "includeHeaders", "minPartitions"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
        *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay"),
        *("group", "failOnDataLoss", "onDataLoss", "stateDirectory", "filterPushdown"),
        "prefetch",
        "recordedBatches",
        # The connector's, and without effect here: they are about its own consumers.
        *("groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"),
    )
}
SINK_NAMES = {
    name.lower(): name
    for name in (
        *("topic", "delivery"),
        "includeHeaders",  # the connector's, and without effect: a column of headers is written where there is one
        # Spark's own, which a sink is told, too
        *(
            "queryName",
            "checkpointLocation",
            "asyncProgressTrackingEnabled",
            "asyncProgressTrackingCheckpointIntervalMs",
        ),
        "_asyncProgressTrackingOverrideSinkSupportCheck",
    )
}


class BadOptions(ValueError):
    """Options that contradict each other, or have values that they cannot have."""


class OnDataLoss(StrEnum):
    FAIL = "fail"
    EARLIEST = "earliest"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which topics: some by name, those that match a pattern, or some partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the topics; empty if a pattern selects them."""
        return self.topics or tuple(dict.fromkeys(place.topic for place in self.partitions))


@dataclass(frozen=True, slots=True)
class Bound:
    """A start or an end: a word, offsets of partitions, or times in ms, for all partitions or for some."""

    word: str | None = None
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int | None = None
    timestamps: tuple[tuple[TopicPartition, int], ...] = ()
    latest_if_later: bool = False  # than any record: else that is an error


@dataclass(frozen=True, slots=True)
class SourceOptions:
    client: ClientOptions
    selection: Selection
    starting: Bound
    ending: Bound
    columns: tuple[str, ...] = COLUMNS
    min_partitions: int = 0
    min_offsets_per_trigger: int | None = None
    max_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    group: str | None = None
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    state_directory: str | None = None
    filter_pushdown: bool = False
    prefetch: bool = True  # the rows of small batches of a stream (`small_batches.py`)
    recorded_batches: str | None = None  # a file: play these again (`recorded_batches`)
    check_crcs: bool = True


def source_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Raises BadOptions, and BadOption of the client."""
    given = {name.lower(): value for name, value in options.items()}
    properties = properties_in(given)
    if is_stream and any(name.startswith("ending") for name in given):
        raise BadOptions("a stream has no end: endingOffsets and the like are for spark.read")
    check_names(given, NAMES, SINK_NAMES, "writing")
    if (given.get("startingoffsets") or "").lower() == GROUP and "group" not in given:
        raise BadOptions("startingOffsets=group begins where a group is: the option group names it")
    starting = _bound(given, "starting", LATEST if is_stream else EARLIEST)
    ending = _bound(given, "ending", LATEST)
    if not is_stream:
        _check_closed(starting, ending)
    least, most = _number(given, "minoffsetspertrigger"), _number(given, "maxoffsetspertrigger")
    if least is not None and most is not None and least > most:
        raise BadOptions(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}: at most as much")
    if why := refusal(properties):
        raise BadOptions(why)
    client = ClientOptions.from_properties({"client.id": "tailrace-spark", **with_effect(properties)})
    return SourceOptions(
        client=replace(client, check_crcs=False),  # rows are decoded behind a check of their own
        selection=_selection(given),
        starting=starting,
        ending=ending,
        columns=_wanted_columns(given),
        min_partitions=_number(given, "minpartitions") or 0,
        min_offsets_per_trigger=least,
        max_offsets_per_trigger=most,
        max_trigger_delay_s=_seconds(given, "maxtriggerdelay", 900.0),
        group=given.get("group"),
        on_data_loss=_on_data_loss(given),
        state_directory=given.get("statedirectory"),
        filter_pushdown=_flag(given, "filterpushdown", False),
        prefetch=_flag(given, "prefetch", True),
        recorded_batches=given.get("recordedbatches"),
        check_crcs=client.check_crcs,
    )


def properties_in(given: Mapping[str, str]) -> dict[str, str]:
    """Those of Kafka's clients."""
    properties = {name[len(_PREFIX) :]: value for name, value in given.items() if name.startswith(_PREFIX)}
    if "bootstrap.servers" not in properties:
        raise BadOptions("option kafka.bootstrap.servers says where the broker is: HOST:PORT")
    return properties


def check_names(given: Mapping[str, str], names: Mapping[str, str], others: Mapping[str, str], use: str) -> None:
    """Raises BadOptions for a name that is not one of `names`; `others` are there for another use."""
    for name in given:
        if name in names or name.startswith(_PREFIX):
            continue
        if name in others:
            raise BadOptions(f"option {others[name]} is for {use}")
        near = get_close_matches(name, names, 1)
        hint = f"; is {names[near[0]]} meant?" if near else f"; there are {', '.join(sorted(names.values()))}"
        raise BadOptions(f"there is no option {name!r}{hint}")


def _selection(given: Mapping[str, str]) -> Selection:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(names) != 1:
        raise BadOptions("one of the options subscribe, subscribePattern and assign says which topics to read")
    text = given[names[0].lower()]
    if names[0] == "assign":
        return Selection(partitions=tuple(_valid(partitions_in, text, "assign")))
    if names[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise BadOptions(f"subscribePattern {text!r} is no pattern: {error}") from error
        return Selection(pattern=text)
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise BadOptions("subscribe has no topic in it")
    return Selection(topics=topics)


def _bound(given: Mapping[str, str], which: str, default: str) -> Bound:
    """The connector's order: a time for all, times by partition, offsets."""
    later = _is_latest_if_later(given)
    if f"{which}timestamp" in given:
        return Bound(timestamp=_number(given, f"{which}timestamp"), latest_if_later=later)
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        found = _valid(offsets_in, text, f"{which}OffsetsByTimestamp")
        if before := [place for place, time in found.items() if time < 0]:
            raise BadOptions(f"{which}OffsetsByTimestamp has {found[before[0]]} for {before[0]}: times are from 0 on")
        return Bound(timestamps=tuple(sorted(found.items())), latest_if_later=later)
    text = given.get(f"{which}offsets", default)
    word = text.strip().lower()
    words = (EARLIEST, LATEST, GROUP) if which == "starting" else (EARLIEST, LATEST)
    if word in words:
        return Bound(word=word)
    found = _valid(offsets_in, text, f"{which}Offsets")
    least = -2 if which == "starting" else -1
    if too_low := [place for place, offset in found.items() if offset < least]:
        raise BadOptions(f"{which}Offsets has {found[too_low[0]]} for {too_low[0]}: the least is {least}")
    return Bound(offsets=tuple(sorted(found.items())))


def _is_latest_if_later(given: Mapping[str, str]) -> bool:
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", LATEST):
        raise BadOptions(f"startingOffsetsByTimestampStrategy is error or latest, and not {strategy!r}")
    return strategy == LATEST


def _check_closed(starting: Bound, ending: Bound) -> None:
    """A batch is a range of what is there."""
    if starting.word == LATEST or NEXT in dict(starting.offsets).values():
        raise BadOptions("a batch does not begin at the latest offset, where nothing is: that is for streams")
    if ending.word == EARLIEST:
        raise BadOptions("a batch does not end at the earliest offset, before which nothing is")


def _wanted_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Those of the rows, headers last where they are included."""
    headers = (HEADERS,) if _flag(given, "includeheaders", False) else ()
    return tuple(dict.fromkeys((*_columns(given.get("columns")), *headers)))


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return COLUMNS
    by_name = {name.lower(): name for name in TYPES}
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name.lower() not in by_name]:
        raise BadOptions(f"there is no column {unknown[0]!r}; there are {', '.join(TYPES)}")
    return tuple(by_name[name.lower()] for name in names)


def _on_data_loss(given: Mapping[str, str]) -> OnDataLoss:
    text = given.get("ondataloss")
    if text is None:
        return OnDataLoss.FAIL if _flag(given, "failondataloss", True) else OnDataLoss.EARLIEST
    try:
        choice = OnDataLoss(text.lower())
    except ValueError:
        raise BadOptions(f"onDataLoss is one of {', '.join(OnDataLoss)}, and not {text!r}") from None
    if choice is OnDataLoss.REPORT and "statedirectory" not in given:
        raise BadOptions("onDataLoss=report needs the option stateDirectory: where losses are written down")
    return choice


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or (int(text) == 0 and name.endswith("offsetspertrigger")):
        raise BadOptions(f"{NAMES[name]} is a whole number, and not {text!r}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """A duration as Spark writes it: `15m`, or a number of milliseconds."""
    text = given.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _SECONDS_IN:
        raise BadOptions(f"{NAMES[name]} is a duration such as 30s or 15m, and not {text!r}")
    return int(found[1]) * _SECONDS_IN[found[2]]


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise BadOptions(f"{NAMES[name]} is true or false, and not {text!r}")
    return text == "true"


def _valid(read: Callable[[str, str], Found], text: str, option: str) -> Found:
    try:
        return read(text, option)
    except ValueError as error:
        raise BadOptions(str(error)) from error
