"""Which batches and offsets of a producer belong to an open transaction, and may be appended.

The coordinator is consulted for each one that is not on the fast path: in the first version of the protocol the
partition must have been added before; from the second on (Produce 12, TxnOffsetCommit 5), it is added now.

In the second version the first batch may be on disk without the record that opens its transaction; if the power fails
then, the start aborts it. Its producer sends it again, as it has no response, and must not take that for a success.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import Flushed
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import OFFSETS_TOPIC
from tailrace.broker.transactions import state
from tailrace.broker.transactions.state import ProducerIdentity, State
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import BatchHeader

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

PRODUCE_ADDS_FROM = 12
OFFSETS_ADD_FROM = 5
ABORTABLE_FROM = 11  # versions of Produce that know TRANSACTION_ABORTABLE
OFFSETS_ABORTABLE_FROM = 4

_NOT_NOW = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class ProducerTransaction:
    """The transaction of one Produce, as far as its batches need it. `unflushed` is what their acknowledgement has to
    wait for, besides the batches.
    """

    __slots__ = ("_broker", "_call", "_names", "_producer_id", "_transactional_id", "unflushed")

    def __init__(
        self, transactional_id: str | None, names: Collection[TopicPartition], call: Call, broker: "Broker"
    ) -> None:
        self._transactional_id = transactional_id
        self._names = names  # of all partitions of the request: one record for them
        self._call = call
        self._broker = broker
        self._producer_id: int | None = None  # of the first batch
        self.unflushed: list[Flushed] = []

    def admit(self, partition: Partition, header: BatchHeader) -> None:
        """Checks that a transactional batch may be appended now. Raises Refused."""
        if self._transactional_id is None:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch needs a transactional id"
            )
        if self._producer_id not in (None, header.producer_id):
            raise state.unknown_mapping()
        self._producer_id = header.producer_id
        log, may_add = partition.log, self._call.version >= PRODUCE_ADDS_FROM
        is_repeated = log is not None and log.producers.is_duplicate(header)
        if is_repeated and not may_add:
            return  # answered like the first one
        if is_repeated and log is not None and not log.producers.continues_transaction(header):
            raise Refused(ErrorCode.TRANSACTION_ABORTABLE, "the batch was aborted, as its transaction was not on disk")
        try:
            self._admit_by_coordinator(partition.name, header, is_repeated)
        except Refused as error:
            raise _for_producers(error, self._call.version, PRODUCE_ADDS_FROM) from None

    def check_sequence(self, log: Log, header: BatchHeader) -> None:
        """Checks the sequence of a transactional batch that is appended next, where the log does not know the producer:
        from version 12 on each transaction has an epoch of its own, and begins with the first sequence. Raises Refused.
        """
        if self._call.version < PRODUCE_ADDS_FROM or header.producer_id in log.producers.producers:
            return
        if header.base_sequence != 0:
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins with sequence {header.base_sequence} instead of 0",
            )

    def _admit_by_coordinator(self, name: TopicPartition, header: BatchHeader, is_repeated: bool) -> None:
        assert self._transactional_id is not None
        version = self._call.version
        names, self._names = (name, *self._names), ()  # the others are added with the first
        waits = admit(
            self._broker,
            self._transactional_id,
            ProducerIdentity(header.producer_id, header.producer_epoch),
            names,
            self._call,
            may_add=version >= PRODUCE_ADDS_FROM,
            is_abortable=version >= ABORTABLE_FROM,
        )
        if is_repeated:  # the response to the first one may have waited for that
            waits = self._broker.transactions.log.unflushed(self._transactional_id)
        self.unflushed += waits


def admit(
    broker: "Broker",
    transactional_id: str,
    producer: ProducerIdentity,
    names: Sequence[TopicPartition],
    call: Call,
    *,
    may_add: bool,
    is_abortable: bool,
) -> list[Flushed]:
    """Checks that the transaction has the first of the partitions; with `may_add` all of them are added. Returns what
    has to be waited for until that is on disk. Raises Refused.
    """
    coordinator = broker.transactions
    coordinator.begin(call)
    if may_add:
        if not coordinator.add_partitions(transactional_id, producer, names, state.VERSION_2):
            return []
        return coordinator.log.unflushed(transactional_id)
    current = state.check_producer(coordinator.transactions.get(transactional_id), producer)
    if current.state is not State.ONGOING or names[0] not in current.partitions:
        code = ErrorCode.TRANSACTION_ABORTABLE if is_abortable else ErrorCode.INVALID_TXN_STATE
        raise Refused(code, f"{names[0]} was not added to the transaction")
    return []


def admit_offsets(
    broker: "Broker", transactional_id: str, producer: ProducerIdentity, group_id: str, call: Call
) -> list[Flushed]:
    """Checks that offsets of a group may be committed in the transaction; from version 5 of TxnOffsetCommit on, they
    are added to it. Returns what has to be waited for until that is on disk: also for a repeated request, as the
    response to the first one may have waited for that. Raises Refused.
    """
    name = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of_group(group_id, call.now_ms))
    try:
        admit(
            broker,
            transactional_id,
            producer,
            [name],
            call,
            may_add=call.version >= OFFSETS_ADD_FROM,
            is_abortable=call.version >= OFFSETS_ABORTABLE_FROM,
        )
    except Refused as error:
        raised = _for_producers(error, call.version, OFFSETS_ADD_FROM)
        if raised.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            raised = Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        raise raised from None
    return broker.transactions.log.unflushed(transactional_id)


def _for_producers(error: Refused, version: int, concurrent_from: int) -> Refused:
    """Returns the error as producers expect it from a partition, instead of the coordinator."""
    if error.code is ErrorCode.PRODUCER_FENCED:
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= concurrent_from:
        return error
    return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) if error.code in _NOT_NOW else error
