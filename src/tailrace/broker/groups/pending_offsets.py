"""Offsets that were committed in a transaction whose marker is not written yet.

They are kept by transaction, for the marker, and by group, for a client that requires stable offsets. Most of the time
there are none: `if pending_offsets` is all that other requests pay for them.

An offset counts once its transaction is committed, unless another commit for the same partition counts already, and its
record lies behind. So the record offset of a commit matters only while offsets for the same partition are pending: it
marks those before it as superseded, and need not be kept.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tailrace.broker.groups.records import OffsetCommitValue

Place = tuple[str, int]
"""A topic and a partition."""


class GroupTransaction(NamedTuple):
    """A transaction as one partition of `__consumer_offsets` sees it: there its offsets and its marker are."""

    partition_index: int
    producer_id: int


class PendingOffset(NamedTuple):
    value: OffsetCommitValue
    record_offset: int
    is_superseded: bool = False


PendingAtPlace = dict[GroupTransaction, PendingOffset]


class PendingOffsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, PendingAtPlace]] = {}
        self._transactions: dict[GroupTransaction, dict[tuple[str, Place], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def has(self, group_id: str, place: Place) -> bool:
        return place in self._groups.get(group_id, {})

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def groups(self) -> Iterator[str]:
        return iter(self._groups)

    def of_group(self, group_id: str) -> Mapping[Place, PendingAtPlace]:
        """The pending offsets of a group. Must not be changed."""
        return self._groups.get(group_id, {})

    def set(
        self,
        transaction: GroupTransaction,
        group_id: str,
        place: Place,
        value: OffsetCommitValue,
        record_offset: int,
    ) -> None:
        pending = self._groups.setdefault(group_id, {}).setdefault(place, {})
        pending[transaction] = PendingOffset(value, record_offset)
        self._transactions.setdefault(transaction, {})[group_id, place] = None

    def supersede(self, group_id: str, place: Place, record_offset: int) -> None:
        """A commit counts from now on whose record has this offset: pending ones before it will not."""
        pending = self._groups.get(group_id, {}).get(place, {})
        for transaction, one in pending.items():
            if one.record_offset < record_offset:
                pending[transaction] = one._replace(is_superseded=True)

    def remove(self, group_id: str, place: Place) -> None:
        """The offset was deleted, and with it what is pending for it."""
        for transaction in list(self._groups.get(group_id, {}).get(place, {})):
            self._drop(transaction, group_id, place)

    def take(self, transaction: GroupTransaction) -> list[tuple[str, Place, PendingOffset]]:
        """Removes the offsets of a transaction that has ended, and returns them with their groups and places."""
        return [
            (group_id, place, self._drop(transaction, group_id, place))
            for group_id, place in list(self._transactions.get(transaction, {}))
        ]

    def _drop(self, transaction: GroupTransaction, group_id: str, place: Place) -> PendingOffset:
        places = self._groups[group_id]
        dropped = places[place].pop(transaction)
        if not places[place]:
            del places[place]
        if not places:
            del self._groups[group_id]
        of_transaction = self._transactions[transaction]
        del of_transaction[group_id, place]
        if not of_transaction:
            del self._transactions[transaction]
        return dropped
