"""Aborts, at the start, transactions that are open in a partition and that the coordinator does not know as open.

They are left by a crash that took the record of the transaction log but not the batches, or they came with a directory
from elsewhere. Without this, consumers of committed records would stop before them for ever. The markers of all
decisions must have been written before: until then their transactions are open in partitions, too.
"""

import logging
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.transactions.markers import append_marker
from tailrace.broker.transactions.state import ProducerIdentity, State, Transaction
from tailrace.log.layout.errors import LogError
from tailrace.log.layout.names import TopicPartition
from tailrace.records.control import Marker

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

logger = logging.getLogger("tailrace.broker.transactions")

KnownTransactions = dict[ProducerIdentity, frozenset[TopicPartition]]
"""The partitions of each open transaction, by its producer."""


def abort_unknown(broker: "Broker", transactions: Iterable[Transaction], now_ms: int) -> Generator[None, None, int]:
    """Aborts the unknown transactions, some at a time. Returns how many there were."""
    known = {
        ProducerIdentity(one.producer_id, one.epoch): one.partitions
        for one in transactions
        if one.state is State.ONGOING
    }
    aborted: set[ProducerIdentity] = set()
    for name, log in list(broker.directory.logs.items()):
        partition = broker.partition(*name)
        if partition is None or partition.log is not log or partition.topic.is_followed:
            continue
        yield
        for found in log.producers.open_transactions():
            producer = ProducerIdentity(found.producer_id, found.epoch)
            if name not in known.get(producer, ()) and _abort(broker, partition, producer, now_ms):
                aborted.add(producer)
    if aborted:
        logger.warning("aborted %s transactions that were open in partitions, and not decided by anyone", len(aborted))
    return len(aborted)


def _abort(broker: "Broker", partition: Partition, producer: ProducerIdentity, now_ms: int) -> bool:
    try:
        append_marker(broker, partition, producer, Marker.ABORT, broker.leader_epoch(partition), now_ms, now_ms)
    except (LogError, Refused) as error:
        logger.error(
            "cannot abort the transaction of producer %s in %s: %s. Consumers of committed records stop before it; "
            "the next start tries again",
            producer.producer_id,
            partition.name,
            error,
        )
        return False
    return True
