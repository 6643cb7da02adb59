"""A share partition in memory, deep or empty, without a broker: what it takes, and how fast records are accepted.

    python -m bench.programs.share_partition PARKED ACQUIRED ROUNDS

The deep one has ten million records behind it in the log, as many parked one by one as said, and as many held by
members, in runs of 500. Both accept 500 records after the other in turns, `ROUNDS` times. Prints a line of JSON: the
memory of the deep one in MB, and the rates of each round.
"""

import gc
import json
import os
import sys
import time

from bench.harness import process_tree
from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import AckBatch, AckType, OffsetRange

BACKLOG = 10_000_000
RECORDS = 500  # of one acquisition
LOCK_MS = 30_000
_TURNS = 40  # acquisitions of a round
_SETTINGS = PartitionSettings(locks_max=200_000, parked_max=2_000_000, retry_delay_ms=600_000)


def acquire(partition: SharePartition, member: str) -> OffsetRange:
    found = partition.next_available(0)
    assert found is not None
    batch = OffsetRange(found.first, found.first + RECORDS - 1)
    partition.acquire(member, found.first, [batch], records_max=RECORDS, now_ms=0, lock_ms=LOCK_MS)
    return batch


def finish(partition: SharePartition, member: str, batch: OffsetRange, kind: AckType) -> None:
    """One record after the other."""
    for offset in range(batch.first, batch.last + 1):
        update = partition.acknowledge(member, [AckBatch(offset, offset, [kind])], 0, LOCK_MS).update
        assert update is not None
        partition.replay(update, 0)


def deep(parked: int, acquired: int) -> SharePartition:
    partition = SharePartition(_SETTINGS)
    for _ in range(parked // RECORDS):
        finish(partition, "slow", acquire(partition, "slow"), AckType.RELEASE)
    for n in range(acquired // RECORDS):
        acquire(partition, f"member-{n % 50}")
    assert (partition.parked, partition.in_flight) == (parked, acquired)
    return partition


def rate(partition: SharePartition) -> float:
    """Records accepted in a second."""
    begun = time.perf_counter()
    for _ in range(_TURNS):
        finish(partition, "worker", acquire(partition, "worker"), AckType.ACCEPT)
    return _TURNS * RECORDS / (time.perf_counter() - begun)


def memory() -> int:
    gc.collect()
    return process_tree.memory_bytes(os.getpid())


def main() -> None:
    parked, acquired, rounds = map(int, sys.argv[1:])
    rate(SharePartition(_SETTINGS))  # what it imports and caches is no part of the state
    before = memory()
    full = deep(parked, acquired)
    taken = (memory() - before) / 1e6
    rates: dict[str, list[float]] = {"deep": [], "empty": []}
    for n in range(rounds):
        sides = [("deep", full), ("empty", SharePartition(_SETTINGS))]
        for name, partition in reversed(sides) if n % 2 else sides:
            rates[name].append(rate(partition))
    assert full.end_offset < BACKLOG
    print(json.dumps({"memory_mb": taken, **rates}))


if __name__ == "__main__":
    main()
