"""Reads one task's range of one partition as Arrow batches, in Spark's Python workers."""

import logging
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tailrace.client.cluster.cluster import cluster_for
from tailrace.client.cluster.metadata import TopicPartition
from tailrace.client.errors import OffsetOutOfRange, TopicNotFound, TopicRecreated
from tailrace.client.fetch import PartitionReader
from tailrace.spark.columns.decoder import ColumnDecoder
from tailrace.spark.columns.ranges import ALL, NumberRange
from tailrace.spark.source.losses import DataLost, GoneSincePlanned, Loss
from tailrace.spark.source.options import OnDataLoss, SourceOptions
from tailrace.spark.source.positions import Positions, split

logger = logging.getLogger("tailrace.spark.source")


@dataclass
class Range(InputPartition):
    """The range of offsets that one task reads, without `end`. `topic_id` is None if the broker has no topic ids."""

    place: TopicPartition
    start: int
    end: int
    topic_id: bytes | None = None
    times: NumberRange = ALL


def ranges(
    start: Positions, end: Positions, min_partitions: int, times: Mapping[TopicPartition, NumberRange] | None = None
) -> list[Range]:
    """The ranges from one to the other, in at least so many pieces where there are so many records. What begins behind
    its end is empty: a start that was found anew after a crash, while the end was written down before.
    """
    wide = {
        place: (start.offsets[place], stop)
        for place, stop in sorted(end.offsets.items())
        if place in start.offsets and start.offsets[place] < stop
    }
    total = sum(stop - begin for begin, stop in wide.values())
    wanted = min_partitions if min_partitions > len(wide) else 0
    return [
        Range(place, begin, stop, end.topic_ids.get(place.topic), (times or {}).get(place, ALL))
        for place, (first, last) in wide.items()
        for begin, stop in split(first, last, -(-(last - first) * wanted // total))
    ]


def read(options: SourceOptions, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Raises DataLost where records of the range have gone since it was planned; GoneSincePlanned where the driver is
    to note them.
    """
    start: int | None = wanted.start
    while start is not None:
        start = yield from _read_from(start, options, wanted)


def _read_from(start: int, options: SourceOptions, wanted: Range) -> Generator[pa.RecordBatch, None, int | None]:
    """Yields rows, and returns the offset at which to continue if reading may go on behind deleted records."""
    place = wanted.place
    decoder = ColumnDecoder(place.topic, place.partition, options.columns, check_crcs=options.check_crcs)
    cluster = cluster_for(options.client)
    with PartitionReader(cluster, place.topic, place.partition, start, wanted.end, topic_id=wanted.topic_id) as reader:
        try:
            for chunk in reader:
                yield from decoder.decode(chunk.records, start, wanted.end, chunk.aborted, wanted.times)
        except (OffsetOutOfRange, TopicRecreated, TopicNotFound) as error:
            again = wanted.end  # of a topic that is gone, or has lost its end, nothing more comes
            if isinstance(error, OffsetOutOfRange) and reader.position < error.earliest:
                again = min(error.earliest, wanted.end)
            loss = Loss(place, reader.position, again, f"gone while they were read: {error}")
            if options.on_data_loss is OnDataLoss.FAIL:
                raise DataLost([loss]) from error
            if options.on_data_loss is OnDataLoss.REPORT:
                raise GoneSincePlanned(loss) from error
            logger.warning("%s; onDataLoss=earliest: reading goes on", loss)
            return again if again < wanted.end else None
    if reader.gap is not None:
        logger.warning("%s has nothing between offsets %d and %d: compaction took it", place, *reader.gap)
    return None
