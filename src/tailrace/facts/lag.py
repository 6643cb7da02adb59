"""`__tailrace_lag`: how far each group is behind, as the monitor sees it. Compacted: one record per group, and a beat.

The monitor writes the record of a group when it changes, at most once in 15 seconds, a tombstone when the group is
gone, and the beat each round: a record is fresh while the beat is. Rows have moments instead of durations, so that a
group that stands still needs no new record: `lag_seconds` and the like follow from the time at which a row is read.

Any client may write to the topic: what is no record of the monitor is refused.
"""

from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple, TypeVar

from tailrace.facts import document
from tailrace.facts.document import UnreadableFact, is_flag, is_number, is_text, is_time

T = TypeVar("T")

VERSION = 1
FRESH_INTERVALS = 3  # so many rounds of the monitor may fail before what it wrote is old


class LagRow(NamedTuple):
    """A group in one partition. Times are milliseconds since 1970; None where unknown, or never.

    `unread_at` is the timestamp of the first record that the group has not read. `loss_at` is when it is expected to
    lose messages, at once if it has lost some; `loss_low_at` the same with the worst rates of the last hour. `rule`
    says why: age, size, budget or hold_cap. `estimate` marks figures from a Kafka that does not publish its segments.
    """

    topic: str
    partition: int
    committed: int
    start: int
    end: int
    lag_records: int
    lag_bytes: int | None
    bytes_exact: bool
    unread_at: int | None
    produce_rate: float
    consume_rate: float
    loss_at: int | None
    loss_low_at: int | None
    rule: str | None
    state: str
    unread_lost: int
    estimate: bool

    def lag_seconds(self, now_ms: int) -> float | None:
        """The age of the first unread record; 0 if there is none, None if its age is unknown."""
        if not self.lag_records:
            return 0.0
        return None if self.unread_at is None else max(0, now_ms - self.unread_at) / 1000

    @property
    def catchup_seconds(self) -> float | None:
        """How long the group needs to catch up at its rate; None: never."""
        if not self.lag_records:
            return 0.0
        faster = self.consume_rate - self.produce_rate
        return self.lag_records / faster if faster > 0 else None

    def loss_seconds(self, now_ms: int) -> float | None:
        return None if self.loss_at is None else max(0, self.loss_at - now_ms) / 1000

    def loss_low_seconds(self, now_ms: int) -> float | None:
        return None if self.loss_low_at is None else max(0, self.loss_low_at - now_ms) / 1000


_NUMBER, _MAYBE = (int, float), (int, float, NoneType)
_ROW_TYPES: tuple[tuple[type, ...], ...] = (
    *((str,), (int,), (int,), (int,), (int,), (int,), _MAYBE, (bool,), _MAYBE, _NUMBER, _NUMBER, _MAYBE, _MAYBE),
    *((str, NoneType), (str,), (int,), (bool,)),
)  # of the fields of a LagRow


class GroupLag(NamedTuple):
    """All rows of a group, as of `at`."""

    group: str
    at: int
    has_members: bool
    rows: tuple[LagRow, ...]

    @property
    def key(self) -> bytes:
        return key_of(self.group)

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())


class Beat(NamedTuple):
    """One round of the monitor. `source` is "tailrace" or "kafka"."""

    at: int
    interval_ms: int
    source: str

    def encode(self) -> bytes:
        return document.encode(VERSION, self._asdict())

    def is_fresh(self, now_ms: int) -> bool:
        return now_ms - self.at <= FRESH_INTERVALS * self.interval_ms


BEAT_KEY = document.encode(VERSION, {"of": []})


def key_of(group: str) -> bytes:
    return document.encode(VERSION, {"of": [group]})


def decode_group(value: bytes) -> GroupLag:
    """Raises UnreadableFact."""

    def read(fields: dict[str, Any]) -> GroupLag:
        document.require(fields, {"group": is_text, "at": is_time, "has_members": is_flag})
        rows = tuple(LagRow(*row) for row in fields.pop("rows"))
        if not all(all(map(isinstance, row, _ROW_TYPES)) for row in rows):
            raise UnreadableFact("not a row of the monitor")
        return GroupLag(**fields, rows=rows)

    return _read(value, read)


def decode_beat(value: bytes) -> Beat:
    """Raises UnreadableFact."""

    def read(fields: dict[str, Any]) -> Beat:
        document.require(fields, {"at": is_time, "interval_ms": is_number, "source": is_text})
        return Beat(**fields)

    return _read(value, read)


def _read(value: bytes, read: Callable[[dict[str, Any]], T]) -> T:
    fields = document.decode(value, VERSION)
    try:
        return read(fields)
    except (KeyError, TypeError) as error:
        raise UnreadableFact(f"not a record of the monitor: {error}") from None
