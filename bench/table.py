"""The measures by name, in the order in which they run."""

from collections.abc import Callable

from bench.harness.measure import Bench, Figure
from bench.measures import (
    append,
    broker,
    clean_open,
    compaction,
    consumers,
    flush,
    groups,
    growth,
    history,
    journal,
    monitor,
    preallocation,
    queues,
    recovery,
    spark,
)

MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "append-bandwidth": append.bandwidth,
    "append-cost": append.cost,
    "history": append.history,
    "recovery": recovery.scan,
    "opening": clean_open.clean_open,
    "group-commit": flush.group_commit,
    "fdatasync": flush.fdatasync,
    "preallocation": preallocation.ways,
    "broker-start": broker.start,
    "broker-ack": broker.acknowledgement,
    "broker-journal": journal.journal,
    "broker-produce": broker.produce,
    "broker-consume": broker.consume,
    "broker-wake": consumers.wake,
    "broker-parked": consumers.parked,
    "broker-cold-reader": consumers.cold_reader,
    "group-heartbeats": groups.heartbeats,
    "group-large": groups.large_group,
    "group-producer": groups.producer_beside,
}

# Those that write many gigabytes: `make bench-upkeep`.
UPKEEP_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "kept-throughput": history.throughput,
    "kept-scan": history.scan,
    "compaction": compaction.beside_a_producer,
}

# How cost grows, for docs/PERFORMANCE.md.
GROWTH_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "growth-partitions": growth.partitions,
    "growth-connections": growth.connections,
    "growth-history": growth.history,
    "growth-size": growth.message_size,
}

# Those of the monitor, of which most are minutes of waiting.
MONITOR_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "monitor-idle": monitor.idle,
    "monitor-start": monitor.first_ack,
    "monitor-crowd": monitor.crowd,
    "monitor-crowd-behind": monitor.crowd_behind,
}

# Those of queues: share groups.
QUEUE_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "queue-depth": queues.depth,
    "queue-delay": queues.delay,
}

# Those that need Spark and its own connector: `make bench-spark`.
SPARK_MEASURES: dict[str, Callable[[Bench], list[Figure]]] = {
    "spark-read": spark.reading,
    "spark-write": spark.writing,
    "spark-latency": spark.latency,
}
