"""Recompresses batches whose codec differs from their topic's `compression.type`, in threads and in order.

The keys of large batches for compacted topics are checked in the same jobs (`key_checks`).

A batch that has to be changed or checked is copied, and a job works on the copy in a thread. Until that is done, other
batches for its partition are queued behind it: offsets follow the order of arrival, and the sequence of an idempotent
producer holds. Other partitions are not affected.

    a queue     for each partition with a batch in progress; all others have none, and no cost
    AT_ONCE     jobs at a time, of each partition in turn, so that one with many batches does not hold up the others;
                the same threads do all other jobs
    WAITING_BYTES_MAX    of batches at most; more are refused, so that clients retry. While batches that grew by their
                         change exceed it, one job runs at a time
    TURN_BATCHES_MAX     of a queue are appended in one turn of the loop, or TURN_BYTES_MAX
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from tailrace.broker.core.delayed import Pause, StartJob
from tailrace.broker.core.errors import Refused, code_of
from tailrace.broker.core.partition import Partition
from tailrace.broker.produce.key_checks import KeysMissing, missing_keys, open_batch
from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import Buffer
from tailrace.records.compression import DecompressionBudget
from tailrace.records.errors import CorruptBatch
from tailrace.records.recompression import Target, recompress, records_limit

logger = logging.getLogger("tailrace.broker.produce")

AT_ONCE = 2
WAITING_BYTES_MAX = 128 << 20
BATCH_OVERHEAD = 1024  # memory for a batch besides its bytes: for small batches, most of it
TURN_BATCHES_MAX = 50  # of 20 to 30 µs
TURN_BYTES_MAX = 2 << 20


class Recompressor:
    def __init__(self, start_job: StartJob) -> None:
        self.waiting_bytes = 0  # of queued batches, with the overhead of each
        self._start_job = start_job
        self._queues: dict[Partition, deque[Conversion]] = {}  # for each partition with a batch in progress
        self._pausing: set[Partition] = set()  # whose queue continues in another turn
        self._waiting: dict[Partition, deque[Conversion]] = {}  # for a thread; the partition whose turn is next first
        self._under_way = 0
        self._has_given_up = False

    def enqueue(
        self,
        partition: Partition,
        data: Buffer,
        target: Target | None,
        budget: DecompressionBudget,
        then: "Callable[[Conversion], None]",
        keys_unchecked: bool = False,
    ) -> None:
        """Queues a batch. Calls `then`, never at once, when all earlier batches of the partition are done and this one
        is changed. Without a `target` it is not changed. With `keys_unchecked` its keys are checked first. If neither
        applies, it only waits for its turn. `budget` is that of the request. Raises Refused.
        """
        if self.waiting_bytes + len(data) + BATCH_OVERHEAD > WAITING_BYTES_MAX:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "too many batches are waiting to be recompressed: retry later")
        conversion = Conversion(self, partition, bytearray(data), target, budget, then, keys_unchecked)
        self.waiting_bytes += conversion.size
        self._queues.setdefault(partition, deque()).append(conversion)
        partition.has_queue = True
        if not conversion.is_done:
            self._waiting.setdefault(partition, deque()).append(conversion)
            self._start()

    def _start(self) -> None:
        # Over the limit one job still runs: only finished jobs shorten the queues.
        while self._waiting and self._under_way < (AT_ONCE if self.waiting_bytes <= WAITING_BYTES_MAX else 1):
            conversion = self._next()
            self._under_way += 1
            self._start_job(conversion, conversion.finish)

    def _next(self) -> "Conversion":
        """The first batch of the partition whose turn it is; its next one has to wait for the other partitions."""
        partition = next(iter(self._waiting))
        conversions = self._waiting.pop(partition)
        conversion = conversions.popleft()
        if conversions:
            self._waiting[partition] = conversions
        return conversion

    def finished(self, conversion: "Conversion") -> None:
        """Takes back a job: appends the batches at the head of its queue that are done."""
        if self._has_given_up:
            return
        self._under_way -= 1
        self.waiting_bytes += conversion.resize()
        if conversion.partition not in self._pausing:
            self._work_off(conversion.partition)
        self._start()

    def _work_off(self, partition: Partition) -> None:
        """Appends the batches of a queue that are done, up to the first that is not. If they are too many, another turn
        of the loop continues; until then the queue stays, and new batches are added to it.
        """
        queue = self._queues[partition]
        batches = size = 0
        while queue and queue[0].is_done:
            if batches >= TURN_BATCHES_MAX or size >= TURN_BYTES_MAX:
                self._pausing.add(partition)
                self._start_job(Pause(), partial(self._go_on, partition))
                return
            first = queue.popleft()
            batches += 1
            size += first.size
            self.waiting_bytes -= first.size
            try:
                first.then(first)
            except Exception:  # the batches behind it must still be appended
                logger.exception("unexpected error after a queued batch for %s was done", partition.name)
        if not queue:
            del self._queues[partition]
            partition.has_queue = False

    def _go_on(self, partition: Partition) -> None:
        if self._has_given_up:
            return
        self._pausing.discard(partition)
        self._work_off(partition)
        self._start()

    def give_up(self) -> None:
        """Drops the queued batches when the broker stops: they are not appended, and were not acknowledged."""
        self._has_given_up = True


class Conversion:
    """One queued batch, and the job that changes or checks it, if needed."""

    __slots__ = (
        "_budget",
        "_data",
        "_keys_missing",
        "_keys_unchecked",
        "_limit",
        "_owner",
        "_refusal",
        "_target",
        "is_done",
        "partition",
        "size",
        "then",
    )

    def __init__(
        self,
        owner: Recompressor,
        partition: Partition,
        data: bytearray,
        target: Target | None,
        budget: DecompressionBudget,
        then: "Callable[[Conversion], None]",
        keys_unchecked: bool,
    ) -> None:
        self.partition = partition
        self.size = len(data) + BATCH_OVERHEAD
        self.then = then
        self.is_done = target is None and not keys_unchecked
        self._owner = owner
        self._data = data
        self._target = target
        self._limit = records_limit(partition.topic.config.max_message_bytes)
        self._budget = budget
        self._keys_unchecked = keys_unchecked
        self._keys_missing: list[int] = []
        # Not an exception: its traceback would hold this object, and the decompressed bytes, in a cycle.
        self._refusal: tuple[ErrorCode, str] | None = None

    def run(self) -> None:
        try:
            self._work()
        except CorruptBatch as error:
            self._refuse(code_of(error), str(error))
        except BaseException as error:  # also a library's panic: the batches behind this one continue
            logger.exception("unexpected error while recompressing a batch for %s", self.partition.name)
            self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot recompress the batch: {error}")

    def _work(self) -> None:
        budget: DecompressionBudget | None = self._budget
        if self._keys_unchecked:
            opened, budget = open_batch(self._data, budget=budget), None  # the budget is used up for this batch
            self._keys_missing = missing_keys(opened)
        if self._keys_missing:
            self._data = bytearray()
        elif self._target is not None:
            self._data = recompress(self._data, self._target, self._limit, budget)

    def _refuse(self, code: ErrorCode, message: str) -> None:
        self._refusal = code, message
        self._data = bytearray()

    def finish(self) -> None:
        self.is_done = True
        self._owner.finished(self)

    def resize(self) -> int:
        """Returns by how many bytes the batch has grown."""
        before, self.size = self.size, len(self._data) + BATCH_OVERHEAD
        return self.size - before

    def outcome(self) -> bytearray:
        """Returns the batch as it is to be stored. Raises Refused if it was invalid."""
        if self._refusal is not None:
            raise Refused(*self._refusal)
        if self._keys_missing:
            raise KeysMissing(self._keys_missing)
        return self._data
