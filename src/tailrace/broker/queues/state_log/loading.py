"""The start: reads the state log in a thread, and hands the states over to the coordinator.

It is read once the time is known: what records have waited already is seen by the clock. Without the log, and with a
topic of a user's in its place, share groups are unavailable, and all else works.
"""

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from tailrace.broker.configs.share import share_settings
from tailrace.broker.core.delayed import IncrementalResponse
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.topics import SHARE_STATE_TOPIC
from tailrace.broker.groups.records import NotSaved
from tailrace.broker.groups.timers import Timer
from tailrace.broker.queues.group_queues import partition_settings
from tailrace.broker.queues.names import ShareKey
from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.queue_partition import QueuePartition
from tailrace.broker.queues.state_log.loaded_states import LoadedStates
from tailrace.broker.queues.state_log.records import ShareSnapshotted
from tailrace.log.layout.errors import without_frames
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.queues.coordinator import QueueCoordinator

logger = logging.getLogger("tailrace.broker.queues")

TOMBSTONES_AT_ONCE = 500
RETRY_MS = 1_000
LOADING = "loading"  # a kind of deadline
UNWRITTEN = Timer("", LOADING)
COPY_IT = (
    "the broker keeps the state of queues under this name now. Copy it to another topic, delete it, and start again"
)


class Loading:
    def __init__(self, queues: "QueueCoordinator", broker: "Broker") -> None:
        self._queues = queues
        self._broker = broker
        self._failure: Exception | None = None
        self._is_done = True  # unless there is something to read
        self._must_begin = False
        self._waiting: list[Callable[[], None]] = []
        self._gone: list[ShareKey] = []  # states whose topics were deleted
        self._left: list[QueuePartition] = []  # states that have yet to agree with their logs

    @property
    def is_under_way(self) -> bool:
        """Whether states are still being read, so that it is not known what groups have left."""
        return not self._is_done and self._failure is None

    @property
    def is_done(self) -> bool:
        return self._is_done

    def require_done(self) -> None:
        """Raises Refused."""
        if self._queues.log.is_foreign:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"{SHARE_STATE_TOPIC} is a topic of a user's: {COPY_IT}")
        if self._failure is not None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"cannot read the state of queues: {self._failure}")
        if not self._is_done:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the state of queues is being read")

    def then(self, action: Callable[[], None]) -> None:
        """Does something once states are read, or cannot be."""
        if self.is_under_way:
            self._waiting.append(action)
        else:
            action()

    def prepare(self) -> None:
        """Has the log read, as soon as the time is known; `require_done` raises no error once that is done."""
        log = self._queues.log
        if log.is_foreign:
            logger.error("share groups are unavailable: %s is a topic of a user's: %s", SHARE_STATE_TOPIC, COPY_IT)
        elif log.unavailable is not None:
            self._failed(log.unavailable)
        elif log.log is not None:
            self._is_done, self._must_begin = False, True

    def begin(self) -> None:
        """Called when the time is known."""
        if not self._must_begin:
            return
        self._must_begin = False
        queues = self._queues
        loaded = LoadedStates(self._settings(), queues.now_ms, queues.steady_ms)

        def read(error: Exception | None) -> None:
            if error is not None:
                self._failed(error)
            else:
                queues.needed = loaded.needed
                IncrementalResponse(self._hand_over(loaded), self._broker.start_job)

        queues.log.read(loaded.replay, read)

    def _settings(self) -> Callable[[str], PartitionSettings]:
        """Returns a function that a thread may call."""
        metadata, known = self._broker.metadata, dict[str, PartitionSettings]()
        plain = share_settings({}, metadata.configs)
        own = {group: share_settings(values, metadata.configs) for group, values in metadata.group_overrides.items()}

        def settings_of(group: str) -> PartitionSettings:
            found = known.get(group)
            if found is None:
                found = known[group] = partition_settings(group, own.get(group, plain))
            return found

        return settings_of

    def _failed(self, error: Exception) -> None:
        logger.error("cannot read the state of queues: %s. Share groups are unavailable until it is repaired", error)
        self._failure = without_frames(error)
        self._end()

    def _end(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def _hand_over(self, loaded: LoadedStates) -> Generator[None, None, None]:
        """Topics may have been deleted before that was written to the state log."""
        queues = self._queues
        for key, one in loaded.states.items():
            topic = self._broker.metadata.topics_by_id.get(key.topic_id)
            partition = topic.partition(key.partition) if topic is not None else None
            if partition is None:
                self._gone.append(key)
            else:
                queues.adopt(key, partition, one)
            yield
        self._left = list(queues.all())
        yield from self._write()

    def go_on(self) -> None:
        """Tries again to write what has become of queues since the last stop."""
        IncrementalResponse(self._write(), self._broker.start_job)

    def _write(self) -> Generator[None, None, None]:
        """Until that is written, a state may tell of records that are not those of its log."""
        queues = self._queues
        try:
            while self._gone:
                queues.append([ShareSnapshotted(key, None) for key in self._gone[:TOMBSTONES_AT_ONCE]])
                del self._gone[:TOMBSTONES_AT_ONCE]
                yield
            while self._left:
                queues.resume(self._left[-1])
                self._left.pop()
                yield
        except NotSaved as error:
            logger.warning("cannot write what has become of queues since the last stop: %s. It is tried again", error)
            queues.timers.set(UNWRITTEN, RETRY_MS)
            return
        self._is_done = True
        self._end()
