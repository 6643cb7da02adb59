"""What share groups need to know of the records in a batch: their keys, and the headers that say when. Pure.

    x-deliver-at, x-delay-ms    not before this time, or not before so long after its timestamp
    x-expires-at, x-ttl-ms      not from this time on, or not from so long after its timestamp on

Times are milliseconds since 1970, as decimal digits. A header that is none of that is ignored. The last one of a name
counts; of two that say the same thing, the later one of delivery and the earlier one of expiry.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.records.decoders import Headers
from tailrace.records.record import Record

DELIVER_AT, DELAY_MS = "x-deliver-at", "x-delay-ms"
EXPIRES_AT, TTL_MS = "x-expires-at", "x-ttl-ms"
TIME_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
_DIGITS_MAX = 18
RECORDS_MAX = 50_000  # of batches that are remembered


class Needs(NamedTuple):
    """What is to be known."""

    delivery: bool = False
    expiry: bool = False
    keys: bool = False


class Inspection(NamedTuple):
    """What was found out about the records of a batch, by their offsets."""

    first: int
    last: int
    due: Sequence[tuple[int, int]] = ()  # when those are to be delivered that have such a header
    expiry: Sequence[tuple[int, int]] = ()  # likewise
    keys: Sequence[tuple[int, int]] = ()  # hashes of those that have a key


def inspect(records: Iterable[Record], first: int, last: int, needs: Needs) -> Inspection:
    """Inspects the records of a batch, which has these offsets."""
    due: list[tuple[int, int]] = []
    expiry: list[tuple[int, int]] = []
    keys: list[tuple[int, int]] = []
    for record in records:
        if needs.keys and record.key is not None:
            keys.append((record.offset, hash(record.key)))
        if record.headers:
            if needs.delivery and (times := _times(record, DELIVER_AT, DELAY_MS)):
                due.append((record.offset, max(times)))
            if needs.expiry and (times := _times(record, EXPIRES_AT, TTL_MS)):
                expiry.append((record.offset, min(times)))
    return Inspection(first, last, due, expiry, keys)


def _times(record: Record, at: str, after: str) -> list[int]:
    """Returns the times that a header with a time, and one with a duration, stand for."""
    times = [time for time in (_number(record.headers, at),) if time is not None]
    duration = _number(record.headers, after)
    return times if duration is None else [*times, min(max(0, record.timestamp) + duration, TIME_MAX)]


def _number(headers: Headers, name: str) -> int | None:
    text = next((value for key, value in reversed(headers) if key == name), None)
    if text is None or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    return min(int(text), TIME_MAX)


class Inspections:
    """Those of the batches that were inspected last."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self._known: OrderedDict[int, tuple[Inspection, int]] = OrderedDict()
        self._records = 0

    def find(self, first: int) -> Inspection | None:
        """Returns that of the batch which begins with this offset."""
        known = self._known.get(first)
        return known[0] if known is not None else None

    def add(self, inspection: Inspection) -> None:
        size = 1 + len(inspection.due) + len(inspection.expiry) + len(inspection.keys)
        before = self._known.pop(inspection.first, None)
        self._records += size - (before[1] if before is not None else 0)
        self._known[inspection.first] = inspection, size
        while self._records > RECORDS_MAX and len(self._known) > 1:
            _, (_, dropped) = self._known.popitem(last=False)
            self._records -= dropped
