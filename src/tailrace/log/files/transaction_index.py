"""The aborted transactions of a segment, in Kafka's `.txnindex` format.

    34 bytes an entry: version (int16, 0), producer id, first offset, last offset (of the abort marker), last stable
    offset

A reader that wants only committed records gets this list with its bytes and leaves out what it names. Derived data.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    ENTRY_SIZE = _ENTRY.size

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)

    def append(self, aborted: AbortedTransaction) -> None:
        self.data += _ENTRY.pack(_VERSION, *aborted)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for _, *fields in _ENTRY.iter_unpack(bytes(self.data)):  # a copy: its owner may append meanwhile
            yield AbortedTransaction(*fields)

    def overlapping(self, first: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records at `first` or later and before `end`."""
        return [aborted for aborted in self if aborted.last_offset >= first and aborted.first_offset < end]

    def keep_before(self, offset: int) -> None:
        """Afterwards no abort marker at `offset` or later is listed."""
        kept = [aborted for aborted in self if aborted.last_offset < offset]
        self.data.clear()
        for aborted in kept:
            self.append(aborted)

    def is_sound(self) -> bool:
        if len(self.data) % self.ENTRY_SIZE:
            return False
        return all(
            version == _VERSION and first <= last for version, _, first, last, _ in _ENTRY.iter_unpack(self.data)
        )
