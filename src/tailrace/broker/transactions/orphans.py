"""Aborts, at the start, transactions that are open in a partition and that the coordinator does not know as open.

They are left by a crash that took the record of the transaction log but not the batches, or they came with a directory
from elsewhere. Without this, consumers of committed records would stop before them for ever. The markers of all
decisions must have been written before: until then their transactions are open in partitions, too.
"""

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.transactions.markers import append_marker
from tailrace.broker.transactions.state import ProducerIdentity
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition
from tailrace.records.control import Marker

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.transactions")


class Outcome(NamedTuple):
    """How many producers had unknown transactions: those that are aborted, and those that could not be."""

    aborted: int
    left: int


IsKnown = Callable[[ProducerIdentity, TopicPartition], bool]
"""Returns whether the coordinator knows a transaction that is open in a partition, and will end it there."""


def abort_unknown(broker: "Broker", is_known: IsKnown, now_ms: int) -> Generator[None, None, Outcome]:
    """Aborts the unknown transactions, some at a time."""
    aborted: set[ProducerIdentity] = set()
    left: set[ProducerIdentity] = set()
    for name, log in list(broker.directory.logs.items()):
        yield
        partition = broker.partition(*name)
        if partition is None or partition.log is not log or partition.topic.is_followed:
            continue
        for producer_id, epoch, _ in log.producers.open_transactions():
            yield
            producer = ProducerIdentity(producer_id, epoch)
            if log.producers.has_open_transaction(*producer) and not is_known(producer, name):
                (aborted if _abort(broker, partition, producer, now_ms) else left).add(producer)
    if aborted:
        logger.warning("aborted %s transactions that were open in partitions, and not decided by anyone", len(aborted))
    return Outcome(len(aborted - left), len(left))


def _abort(broker: "Broker", partition: Partition, producer: ProducerIdentity, now_ms: int) -> bool:
    try:
        append_marker(broker, partition, producer, Marker.ABORT, broker.leader_epoch(partition), now_ms, now_ms)
    except (LogError, Refused) as error:
        logger.error(
            "cannot abort the transaction of producer %s in %s: %s. Consumers of committed records stop before it. "
            "It is tried again",
            producer.producer_id,
            partition.name,
            error,
        )
        return False
    return True
