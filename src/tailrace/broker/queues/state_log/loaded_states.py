"""What a replay of the state log gives: the states of all share partitions. Pure; built by the thread that reads."""

from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.partition.share_partition import SharePartition
from tailrace.broker.queues.partition.states import UNCHANGED
from tailrace.broker.queues.state_log.conversion import update_of
from tailrace.broker.queues.state_log.needed_records import NeededLog
from tailrace.broker.queues.state_log.records import (
    UNKNOWN_START,
    ShareChange,
    ShareSnapshotted,
    ShareSnapshotValue,
    UnreadableShareState,
)
from tailrace.records.record import Record


class LoadedState(NamedTuple):
    """A state; None while it is not known where the group begins. And what the last snapshot says beside it."""

    state: SharePartition | None
    epoch: int
    created_ms: int


class LoadedStates:
    """`settings_of` may be called by any thread. The times are those of the beginning."""

    def __init__(self, settings_of: Callable[[str], PartitionSettings], now_ms: int, steady_ms: int) -> None:
        self.states: dict[ShareKey, LoadedState] = {}
        self.needed = NeededLog()
        self._settings_of = settings_of
        self._now_ms = now_ms
        self._steady_ms = steady_ms

    def replay(self, change: ShareChange, record: Record) -> None:
        """Raises UnreadableShareState."""
        self.needed.note(change, record.offset, len(record.key or b"") + len(record.value or b""))
        age_ms = max(0, self._now_ms - record.timestamp)
        try:
            if isinstance(change, ShareSnapshotted):
                self._replay_snapshot(change.key, change.value, age_ms)
            elif (known := self.states.get(change.key)) is not None and known.state is not None:
                known.state.replay(update_of(change.value), self._steady_ms, age_ms)
        except ValueError as error:
            raise UnreadableShareState(f"record {record.offset} of the state log of share groups: {error}") from error

    def _replay_snapshot(self, key: ShareKey, value: ShareSnapshotValue | None, age_ms: int) -> None:
        if value is None:
            self.states.pop(key, None)
            return
        known = self.states.get(key)
        if value.is_partial and known is not None and known.state is not None:
            return  # what follows it is true of the state before, too
        state = None
        if value.start_offset != UNKNOWN_START:
            state = SharePartition(self._settings_of(key.group), value.start_offset)
            state.replay(update_of(value)._replace(start_offset=UNCHANGED), self._steady_ms, age_ms)
        self.states[key] = LoadedState(state, value.state_epoch, value.create_timestamp)
