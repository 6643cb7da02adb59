"""The measures by name, in the order in which they run."""

from collections.abc import Callable

from bench import (
    append,
    committing,
    compaction,
    flushing,
    groups,
    growth,
    kept,
    opening,
    preallocation,
    recovery,
    serving,
    spark,
    waiting,
)
from bench.harness import Bench, Figure

MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "append-bandwidth": append.bandwidth,
    "append-cost": append.cost,
    "history": append.history,
    "recovery": recovery.scan,
    "opening": opening.clean_open,
    "group-commit": flushing.group_commit,
    "fdatasync": flushing.fdatasync,
    "preallocation": preallocation.ways,
    "broker-start": serving.start,
    "broker-ack": serving.acknowledgement,
    "broker-journal": committing.journal,
    "broker-produce": serving.produce,
    "broker-consume": serving.consume,
    "broker-wake": waiting.wake,
    "broker-parked": waiting.parked,
    "broker-cold-reader": waiting.cold_reader,
    "group-heartbeats": groups.heartbeats,
    "group-large": groups.large_group,
    "group-producer": groups.producer_beside,
}

# Those that write many gigabytes: `make bench-upkeep`.
UPKEEP_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "kept-throughput": kept.throughput,
    "kept-scan": kept.scan,
    "compaction": compaction.beside_a_producer,
}

# How cost grows, for docs/PERFORMANCE.md.
GROWTH_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "growth-partitions": growth.partitions,
    "growth-connections": growth.connections,
    "growth-history": growth.history,
    "growth-size": growth.message_size,
}

# Those that need Spark and its own connector: `make bench-spark`.
SPARK_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "spark-read": spark.reading,
    "spark-write": spark.writing,
    "spark-latency": spark.latency,
}
