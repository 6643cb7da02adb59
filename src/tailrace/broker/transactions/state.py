"""One transactional id: its producer, its state, and the decisions on it. Pure: no log, no clock, no broker.

A decision takes the transaction as it is and returns the transaction as it is to be, which becomes a record; or raises
Refused. The coordinator writes the record, and only its replay changes the state.

    Empty            the producer has begun no transaction since it got its epoch
    Ongoing          a transaction is open, from its first partition on
    PrepareCommit    decided, and being carried out: the markers are being written
    PrepareAbort
    CompleteCommit   all markers are written
    CompleteAbort

    event                      in state            new state                                      refused
    -------------------------  ------------------  ---------------------------------------------  ---------------------
    a producer begins          none                Empty, a new producer id, epoch 0              its timeout is invalid
                               Empty, Complete     Empty, epoch + 1; after the last epoch a new   given another producer
                                                   producer id, epoch 0                           or epoch: fenced
                               Ongoing             PrepareAbort, epoch + 1; then decided again
    partitions are added       Empty, Complete     Ongoing, which starts now                      other id: unknown
                               Ongoing             Ongoing, with more partitions                  other epoch: fenced
    the producer ends it       Ongoing             Prepare; in version 2 with epoch + 1
                               Complete, the same  unchanged: it is repeated                      the opposite: invalid
      version 2, repeated      Complete, epoch-1   unchanged, if the outcome is the same          the opposite: invalid
      version 2, abort         Empty, Complete     PrepareAbort without partitions, epoch + 1
    its timeout, an operator   Ongoing             PrepareAbort, epoch + 1
    its directory is restored  Ongoing             PrepareAbort, the last epoch, a next producer id
                               Prepare             unchanged, with a next producer id
                               Empty, Complete     unchanged, with a new producer id, epoch 0
    all markers are written    Prepare             Complete; with the next producer id, epoch 0,
                                                   where the epochs of this one are used up
    unused for long            Empty, Complete     forgotten

While a transaction is being carried out, all requests but those of a fenced producer are refused with
CONCURRENT_TRANSACTIONS; the coordinator lets them wait for the end instead.

The time of each decision of an id is later than that of the one before, also if the clock goes back: with the producer
it names the decision, and the markers carry it, so that a backup can tell which decision a marker belongs to.

The version of the protocol is the client's (KIP-890): in version 2 each transaction has an epoch of its own, so that a
late batch of one cannot end up in the next. `last_epoch` is not in the log, so a repeated request to begin is refused
after a restart, as in Kafka.
"""

from collections.abc import Callable, Collection
from enum import IntEnum
from typing import NamedTuple

from tailrace.broker.core.errors import Refused
from tailrace.log.layout.names import TopicPartition
from tailrace.protocol.errors import ErrorCode

NO_EPOCH = -1
NO_PRODUCER = -1
NOT_STARTED = -1
LAST_EPOCH = 32_766  # that a producer gets; 32767 occurs only where a transaction of such a producer is ended
PARTITIONS_MAX = 10_000  # of one transaction
VERSION_2 = 2  # of the protocol

NextProducerId = Callable[[], int]
"""Allocates a producer id that was never used. Raises StorageError."""


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # in logs of Kafka

    @property
    def label(self) -> str:
        """As in Kafka's responses: PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        """Consumers of committed records may have to stop before it."""
        return self is State.ONGOING or self.is_prepared

    @property
    def is_commit(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


class Transaction(NamedTuple):
    """All that is known of a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NOT_STARTED  # wall clock, as is `started_ms`
    started_ms: int = NOT_STARTED
    previous_producer_id: int = NO_PRODUCER  # before the last transition
    next_producer_id: int = NO_PRODUCER  # after this transaction
    version: int = 0  # of the protocol that the client uses
    last_epoch: int = NO_EPOCH  # before the last one; not in the log


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that a client sends; both are -1 if it has none."""

    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


NO_IDENTITY = ProducerIdentity()


def fenced() -> Refused:
    return Refused(ErrorCode.PRODUCER_FENCED, "a newer producer has this transactional id, or its transaction ended")


def unknown_mapping() -> Refused:
    return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id does not have this producer id")


def invalid(reason: str) -> Refused:
    return Refused(ErrorCode.INVALID_TXN_STATE, reason)


def _require_settled(current: Transaction) -> None:
    if current.state.is_prepared:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before is being completed")


# A producer begins


def check_timeout(timeout_ms: int, max_ms: int) -> None:
    if not 0 < timeout_ms <= max_ms:
        raise Refused(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"the transaction timeout must be 1 to {max_ms} ms (transaction.max.timeout.ms), and is {timeout_ms}",
        )


def begin_producer(
    current: Transaction | None, given: ProducerIdentity, timeout_ms: int, next_id: NextProducerId, now_ms: int
) -> Transaction:
    """A producer takes over the transactional id. If a transaction is open, returns its abort, which has to be
    completed before this is decided again.
    """
    if current is None:
        producer_id = next_id()
        return Transaction(producer_id, 0, timeout_ms, updated_ms=now_ms, previous_producer_id=producer_id)
    is_known = given.producer_id == current.producer_id or (
        given.producer_id == current.previous_producer_id and given.epoch >= LAST_EPOCH
    )
    if given.epoch != NO_EPOCH and not is_known:
        raise fenced()
    _require_settled(current)
    if current.state is State.ONGOING:
        if given not in (NO_IDENTITY, (current.producer_id, current.epoch)):
            raise fenced()
        return abort(current, next_id, now_ms)
    empty = current._replace(
        state=State.EMPTY,
        partitions=frozenset(),
        timeout_ms=timeout_ms,
        updated_ms=max(now_ms, current.updated_ms),
        started_ms=NOT_STARTED,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER,
        version=0,
    )
    if given.epoch not in (NO_EPOCH, current.epoch):
        if given.epoch == current.last_epoch:  # repeated: the response was lost
            return empty
        raise fenced()
    if current.epoch >= LAST_EPOCH:
        return empty._replace(producer_id=next_id(), epoch=0, last_epoch=given.epoch)
    return empty._replace(epoch=current.epoch + 1, last_epoch=given.epoch)


# Partitions are added


def check_producer(current: Transaction | None, producer: ProducerIdentity) -> Transaction:
    """Returns the transaction if it takes partitions of this producer. Raises Refused."""
    if current is None:
        raise unknown_mapping()
    _require_settled(current)
    if current.producer_id != producer.producer_id:
        raise unknown_mapping()
    if current.epoch != producer.epoch or current.epoch > LAST_EPOCH:
        raise fenced()
    return current


def add_partitions(
    current: Transaction | None,
    producer: ProducerIdentity,
    partitions: Collection[TopicPartition],
    version: int,
    now_ms: int,
) -> Transaction | None:
    """Adds partitions, and opens the transaction if it is not. Returns None where it has all of them already."""
    known = check_producer(current, producer)
    is_open = known.state is State.ONGOING
    if is_open and known.partitions.issuperset(partitions):
        return None
    wanted = known.partitions.union(partitions) if is_open else frozenset(partitions)
    if len(wanted) > PARTITIONS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"a transaction has at most {PARTITIONS_MAX} partitions")
    return known._replace(
        state=State.ONGOING,
        partitions=wanted,
        updated_ms=max(now_ms, known.updated_ms),
        started_ms=known.started_ms if is_open else now_ms,
        previous_producer_id=known.producer_id,
        version=version,
    )


# The end


def end(
    current: Transaction | None,
    producer: ProducerIdentity,
    *,
    commit: bool,
    version: int,
    next_id: NextProducerId,
    now_ms: int,
) -> Transaction | None:
    """The producer commits or aborts. Returns None where that has been done already."""
    if current is None:
        raise unknown_mapping()
    if version >= VERSION_2:
        return _end_in_version_2(current, producer, commit, next_id, now_ms)
    if producer.producer_id != current.producer_id:
        raise unknown_mapping()
    if producer.epoch != current.epoch:
        raise fenced()
    if current.state is State.ONGOING:
        return _prepare(current, commit, now_ms)._replace(version=0)  # the epoch stays, whatever has added partitions
    if current.state.is_prepared and current.state.is_commit is commit:
        _require_settled(current)
    if current.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) and current.state.is_commit is commit:
        return None
    raise _nothing_to_end(current)


def _end_in_version_2(
    current: Transaction, producer: ProducerIdentity, commit: bool, next_id: NextProducerId, now_ms: int
) -> Transaction | None:
    _require_settled(current)
    is_complete = current.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    if producer == (current.previous_producer_id, LAST_EPOCH) and current.epoch == 0 and is_complete:
        is_repeated = True  # of the last transaction of the producer id before
    elif producer.producer_id != current.producer_id:
        raise unknown_mapping()
    elif current.epoch > LAST_EPOCH:  # no producer has it
        raise fenced()
    elif producer.epoch == current.epoch:
        is_repeated = False
    elif producer.epoch == current.epoch - 1 and is_complete:
        is_repeated = True
    else:
        raise fenced()
    if is_repeated:
        if current.state.is_commit is commit:
            return None
        raise _nothing_to_end(current)
    if current.state is State.ONGOING:
        return _prepare_with_next_epoch(current, commit, next_id, now_ms)
    if commit:
        raise _nothing_to_end(current)
    # A client aborts whenever it is not sure that it has begun a transaction.
    begun = current._replace(partitions=frozenset(), started_ms=now_ms, version=VERSION_2)
    return _prepare_with_next_epoch(begun, commit, next_id, now_ms)


def _nothing_to_end(current: Transaction) -> Refused:
    return invalid(f"there is no transaction to end like this: the state is {current.state.label}")


def _prepare(current: Transaction, commit: bool, now_ms: int) -> Transaction:
    return current._replace(
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        updated_ms=max(now_ms, current.updated_ms + 1),
        previous_producer_id=current.producer_id,
    )


def _prepare_with_next_epoch(current: Transaction, commit: bool, next_id: NextProducerId, now_ms: int) -> Transaction:
    prepared = _prepare(current, commit, now_ms)
    if current.epoch >= LAST_EPOCH:
        prepared = prepared._replace(next_producer_id=next_id())
    return prepared._replace(epoch=current.epoch + 1, last_epoch=current.epoch, version=VERSION_2)


def abort(current: Transaction, next_id: NextProducerId, now_ms: int) -> Transaction:
    """The broker aborts an open transaction, and fences its producer."""
    if current.state is not State.ONGOING:
        raise _nothing_to_end(current)
    if current.version >= VERSION_2:
        return _prepare_with_next_epoch(current, False, next_id, now_ms)._replace(last_epoch=NO_EPOCH)
    return _prepare(current, False, now_ms)._replace(epoch=current.epoch + 1, last_epoch=NO_EPOCH)


def renew(current: Transaction, next_id: NextProducerId, now_ms: int) -> Transaction:
    """Gives the transactional id a producer id that no log has, and aborts its open transaction; a prepared one gets
    the new id when it is complete.

    In a directory that was restored from a backup, logs may have later batches of the producer than the transaction log
    knows of. Under the old id new batches would be taken for those, or be fenced by them.
    """
    if current.state is State.ONGOING:
        current = abort(current._replace(epoch=LAST_EPOCH), next_id, now_ms)  # its markers fence all that there was
    if not current.state.is_prepared:
        return current._replace(
            producer_id=next_id(), epoch=0, previous_producer_id=current.producer_id, last_epoch=NO_EPOCH
        )
    if current.next_producer_id == NO_PRODUCER:
        return current._replace(next_producer_id=next_id())
    return current


def complete(current: Transaction, now_ms: int) -> Transaction:
    """All markers of a decided transaction are written."""
    assert current.state.is_prepared
    completed = current._replace(
        state=State.COMPLETE_COMMIT if current.state.is_commit else State.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=max(now_ms, current.updated_ms),
        previous_producer_id=current.producer_id,
    )
    if current.next_producer_id == NO_PRODUCER:
        return completed
    return completed._replace(producer_id=current.next_producer_id, epoch=0, next_producer_id=NO_PRODUCER)


def identity_of(transaction: Transaction) -> ProducerIdentity:
    """The identity that the producer goes on with once the transaction is complete."""
    if transaction.next_producer_id != NO_PRODUCER:
        return ProducerIdentity(transaction.next_producer_id, 0)
    return ProducerIdentity(transaction.producer_id, transaction.epoch)
