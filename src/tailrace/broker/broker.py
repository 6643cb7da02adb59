"""The broker: owns all state, handles requests and drives the background tasks, on one thread.

    requests   `handle` returns a response, or a DelayedResponse; the handlers are in `apis/`, one module per API key
    logs       are created by the first append; the code that appends calls `appended`, so that the log is flushed
    flushes    are jobs that the server runs in threads (`flushes.next_job`) and gives back (`flushed`)
    the clock  comes from the server (`tick`)

Nothing in this package waits, starts a thread or opens a socket: `start_job` has work done elsewhere.

Groups, transactions, queues and compaction are imported on first use, which makes the start faster.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tailrace.broker.background.checkpoints import Checkpointer
from tailrace.broker.background.disk_budget import DiskBudget
from tailrace.broker.background.disk_reserve import DiskReserve
from tailrace.broker.background.journal import JournalSetup
from tailrace.broker.background.removals import finish_removal
from tailrace.broker.background.retention import Retention
from tailrace.broker.background.scrubber import Scrubber
from tailrace.broker.backlog.group_reader import GroupReader
from tailrace.broker.backlog.history import GroupHistory
from tailrace.broker.backlog.ledger import BROKER, Actor, LossLedger
from tailrace.broker.backlog.policies import BacklogPolicies
from tailrace.broker.backlog.queue_reader import QueueReader
from tailrace.broker.backlog.readers import BacklogReader
from tailrace.broker.backlog.segments import SegmentPublisher
from tailrace.broker.core.api import Api, Call, Silence
from tailrace.broker.core.clients import Clients
from tailrace.broker.core.counters import Counters, LogSizes
from tailrace.broker.core.delayed import DelayedResponse, DependentResponse, Flushed, StartJob
from tailrace.broker.core.errors import Refused
from tailrace.broker.core.partition import Partition
from tailrace.broker.core.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, Topic
from tailrace.broker.core.wall_clock import WallClock
from tailrace.broker.fetch.sessions import FetchSessions
from tailrace.broker.groups.timers import Timers
from tailrace.broker.metadata.log import MetadataLog
from tailrace.broker.metadata.producer_ids import ProducerIds
from tailrace.broker.metadata.state import Metadata, MetadataCache
from tailrace.broker.produce.recompression import Recompressor
from tailrace.broker.quotas.client_quotas import QuotaMeter
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.flush.journal_write import JournalWriteJob
from tailrace.log.flush.queue import FlushQueue, Job
from tailrace.log.jobs import FlushJob
from tailrace.log.layout.errors import LogOffline
from tailrace.log.log import Log
from tailrace.log.state.refused_batches import RefusedBatches
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.broker.background.compaction import Compactor
    from tailrace.broker.groups.coordinator import GroupCoordinator
    from tailrace.broker.groups.records import OffsetCommitValue
    from tailrace.broker.queues.coordinator import QueueCoordinator
    from tailrace.broker.transactions.coordinator import TransactionCoordinator

LOGS_MADE_MAX = 100  # per request: creating a log takes some system calls, while other requests wait


class Broker:
    def __init__(
        self,
        directory: DataDirectory,
        metadata: Metadata,
        metadata_log: Log,
        *,
        start_job: StartJob,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """A broker over an open directory whose logs are all in the metadata: see `startup.open_broker`."""
        self.directory = directory
        self.metadata = metadata
        self.configs = metadata.configs
        self.start_job = start_job
        self.random_bytes = random_bytes
        self.node_id = self.configs.number("node.id")
        self.rack = self.configs.text("broker.rack") or None
        self.flushes = FlushQueue()
        self.metadata_log = MetadataLog(metadata_log, metadata, self.flushes)
        checkpoint_ms = self.configs.number("log.flush.offset.checkpoint.interval.ms")
        self.journal_setup = JournalSetup(
            directory, self.flushes, start_job, self.configs.number("tailrace.journal.bytes")
        )
        readers: list[BacklogReader] = [GroupReader(self), QueueReader(self)]
        self.ledger = LossLedger(self, readers)
        self.backlog = BacklogPolicies(self, readers)
        self.checkpointer = Checkpointer(directory, self.flushes, start_job, checkpoint_ms, self.ledger.when_flushed)
        self.recompressor = Recompressor(start_job)
        self.counters = Counters()
        self.sizes = LogSizes()
        self.disk_reserve = DiskReserve(directory, metadata, start_job)
        self.clock = WallClock()
        self.refused_batches = RefusedBatches()
        self._partitions: dict[Log, Partition] = {}
        self.retention = Retention(
            self._partitions,
            self.sizes,
            self.configs,
            self.checkpointer,
            self.flushes,
            self.counters,
            start_job,
            self.clock,
            self.ledger,
            self.backlog.holds,
            self._start_moved,
        )
        self.disk_budget = DiskBudget(
            self._partitions,
            self.sizes,
            metadata,
            self.retention,
            self.checkpointer,
            start_job,
            self.ledger,
            self.backlog.holds,
        )
        self.segment_publisher = SegmentPublisher(self)
        self.group_history = GroupHistory(self)
        self.scrubber = Scrubber(directory, self.configs, start_job)
        self.producer_ids = ProducerIds(metadata, self.metadata_log)
        self.fetch_sessions = FetchSessions(self.configs.number("max.incremental.fetch.session.cache.slots"))
        self.fetch_bytes_max = self.configs.number("fetch.max.bytes")
        self.quotas = QuotaMeter(metadata.quotas, self.configs.quota_window_s)
        self.timers = Timers()  # of groups
        self.clients = Clients(lambda: self.timers.now)
        self.all_topics: MetadataCache[bytes] = MetadataCache(metadata)  # encoded Metadata responses, by version
        self._may_make = LOGS_MADE_MAX  # left for the current request
        self._failure: LogOffline | None = None
        for name, log in directory.logs.items():
            partition = self.partition(name.topic, name.partition)
            assert partition is not None, f"{name} is not in the metadata"
            self._adopt(partition, log)
        for name, error in directory.unavailable.items():
            if (partition := self.partition(name.topic, name.partition)) is not None:
                partition.unavailable = error

    @cached_property
    def compactor(self) -> "Compactor":
        from tailrace.broker.background.compaction import Compactor

        return Compactor(self)

    @cached_property
    def groups(self) -> "GroupCoordinator":
        from tailrace.broker.groups.coordinator import GroupCoordinator

        coordinator = GroupCoordinator(self)
        coordinator.observe_commits(self._committed)
        coordinator.observe_commits(self.group_history.note_commit)
        return coordinator

    @cached_property
    def transactions(self) -> "TransactionCoordinator":
        from tailrace.broker.transactions.coordinator import TransactionCoordinator

        return TransactionCoordinator(self)

    @property
    def used_transactions(self) -> "TransactionCoordinator | None":
        """None while there are no transactions: nothing has been imported for them then."""
        return self.transactions if "transactions" in self.__dict__ else None

    @cached_property
    def queues(self) -> "QueueCoordinator":
        from tailrace.broker.queues.coordinator import QueueCoordinator

        coordinator = QueueCoordinator(self)
        coordinator.tell_time(self.groups.now_ms, self.timers.now)
        return coordinator

    @property
    def used_queues(self) -> "QueueCoordinator | None":
        """None while there are no share groups: nothing has been imported for them then."""
        return self.queues if "queues" in self.__dict__ else None

    @property
    def positions_are_loading(self) -> bool:
        """Whether it is still being read what groups have read."""
        return self.groups_are_loading or self.queues_are_loading

    @property
    def queues_are_loading(self) -> bool:
        return (queues := self.used_queues) is not None and queues.loading.is_under_way

    @property
    def groups_are_loading(self) -> bool:
        return "groups" in self.__dict__ and self.groups.is_loading  # they are read at the start, or there are none

    def _committed(
        self, group: str, topic: str, index: int, before: "OffsetCommitValue | None", now: "OffsetCommitValue | None"
    ) -> None:
        partition = self.partition(topic, index)
        if partition is not None and now is not None:
            stood = before.offset if before is not None else None
            self.ledger.note_commit(group, partition, stood, now.offset, now.commit_timestamp)
            self.backlog.groups.committed(group, partition.topic, now.commit_timestamp)

    def _start_moved(self, partition: Partition) -> None:
        if (queues := self.used_queues) is not None:
            queues.log_start_moved(partition)

    def load_groups(self) -> None:
        """Starts reading the groups' log, if there is one."""
        if any(name.topic == OFFSETS_TOPIC for name in self.directory.logs):
            self.groups.load()

    def load_queues(self) -> None:
        """Has the state of queues read, if there is any, or a user's own topic of that name."""
        if SHARE_STATE_TOPIC in self.metadata.topics:
            self.queues.loading.prepare()

    def load_transactions(self) -> None:
        """Starts reading the transaction log, if there is one, or a transaction that is open in some partition."""
        logs = self.directory.logs
        has_log = any(name.topic == TRANSACTIONS_TOPIC for name in logs)
        if has_log or any(log.producers.open_transactions() for log in logs.values()):
            self.transactions.load()
        elif self.directory.is_restored:
            self.directory.forget_restore()  # nothing is open

    # Requests

    def handle(self, api: Api, request: Any, call: Call) -> Any:
        """Returns the response, or a DelayedResponse. It leaves once all metadata that it may depend on is on disk."""
        self._may_make = LOGS_MADE_MAX
        answer = api.handle(request, call, self)
        if self.metadata_log.is_settled or isinstance(answer, Silence) or getattr(answer, "waits_for_metadata", False):
            return answer
        return MetadataFlushedResponse(self.metadata_log.when_settled(), answer)

    # Topics and partitions

    def topic(self, name: str) -> Topic | None:
        return self.metadata.topics.get(name)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.metadata.topics.get(topic)
        return found.partition(index) if found is not None else None

    def log_for_append(self, partition: Partition) -> Log:
        """Returns the partition's log, and creates it if there is none. Raises StorageError; and Refused while the
        previous log of that name is being removed, or if one request would create too many logs.
        """
        if partition.log is not None:
            return partition.log
        if partition.unavailable is not None:
            raise partition.unavailable.again()
        if self._may_make <= 0 and not partition.topic.is_internal:  # those are few, and no client's request
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "too many new partitions in one request: try again")
        # The log stays in `directory.logs` until the deletion of the previous topic of that name is on disk.
        if partition.name in self.directory.removing or partition.name in self.directory.logs:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is still being deleted")
        self.metadata_log.write_delayed()
        topic = partition.topic
        log = self.directory.create(
            partition.name,
            topic_id=topic.topic_id,
            leader_epoch=self.metadata.leader_epoch,
            config=topic.config.log,
        )
        self._may_make -= 1
        self._adopt(partition, log)
        return log

    def _adopt(self, partition: Partition, log: Log) -> None:
        partition.log = log
        log.configure(partition.topic.config.log)
        log.producers.refused = self.refused_batches.of(partition.name)
        self._partitions[log] = partition
        self.sizes.measure(log)

    def partition_of(self, log: Log) -> Partition | None:
        """Returns the partition that the log belongs to; None if the log was removed."""
        return self._partitions.get(log)

    def leader_epoch(self, partition: Partition | None) -> int:
        """Returns the leader epoch of a partition, also of one that has no log yet."""
        if partition is None or partition.log is None:
            return self.metadata.leader_epoch
        return partition.log.leader_epoch

    def appended(self, partition: Partition, log: Log, now_ms: int) -> None:
        """Schedules the flush of what was appended. Must be called after every append. If fetches wait at the end of
        the partition, the flush is requested at once.
        """
        self.flushes.appended(log, now_ms)
        if partition.waiting_fetches:
            self.flushes.request(log)

    def when_flushed(self, partition: Partition) -> Flushed:
        """Returns a response that is resolved once all that the partition holds now is on disk."""
        flushed = Flushed()
        if partition.log is None:
            flushed.resolve(partition.unavailable.again() if partition.unavailable is not None else None)
        else:
            self.flushes.when_flushed(partition.log, partition.log.end_offset, flushed.resolve)
        return flushed

    def flushed(self, job: Job | JournalWriteJob) -> None:
        """Takes back a flush job that has run, and resolves the responses and fetches that waited for it."""
        self.flushes.finished(job)
        if isinstance(job, JournalWriteJob):
            for log in job.logs:
                self._moved(log)
        elif isinstance(job, FlushJob):
            self.notice(job.log)
            self._moved(job.log)

    def _moved(self, log: Log) -> None:
        partition = self._partitions.get(log)
        if partition is not None:
            self.sizes.measure(log)
            if partition.waiting_fetches:
                partition.moved()

    def remove_logs(self, topics: Sequence[Topic], now_ms: int, actor: Actor = BROKER) -> DelayedResponse[None]:
        """Deletes the logs of topics that are no longer in the metadata, and wakes the fetches that wait for them. The
        loss is noted first. The response is resolved when their names can be used again.
        """
        removed: DelayedResponse[None] = DelayedResponse()
        self.ledger.note_topic_deletion(topics, now_ms, actor)
        self.segment_publisher.topics_deleted(topics)
        names, gone = [], []
        for topic in topics:
            self.counters.topics.pop(topic.name, None)
            self.backlog.gates.forget(topic)
            gone += topic.touched
        self.groups.topics_deleted(topics)
        if (queues := self.used_queues) is not None:
            queues.topics_deleted(topics)
        for partition in gone:
            if (log := partition.log) is not None:
                partition.log = None
                del self._partitions[log]
                self.sizes.forget(log)
                self.flushes.forget(log)
                names.append(partition.name)
        for partition in gone:
            partition.moved()
        if unavailable := [partition.name for partition in gone if partition.unavailable is not None]:
            self.directory.forget(unavailable)
            self.checkpointer.when_offsets_saved()
        if not names:
            removed.resolve(None)
            return removed
        job = self.directory.begin_remove(names)

        def finish() -> None:
            finish_removal(self.directory, job, self.start_job)
            removed.resolve(None)

        self.ledger.then(lambda: self.start_job(job, finish))
        return removed

    @property
    def failure(self) -> LogOffline | None:
        """Why this broker can no longer guarantee anything: the log of an internal topic takes no appends."""
        return self.metadata_log.log.offline or self._failure

    def notice(self, log: Log) -> None:
        """Checks a log that has met an error. If an internal topic can take no more appends, the broker has failed."""
        partition = self._partitions.get(log)
        if log.offline is not None and partition is not None and partition.topic.must_be_writable:
            self._failure = log.offline

    # The clock

    @property
    def next_deadline(self) -> int | None:
        """When `advance` has something to do, by the steady clock; None if nothing is due."""
        transactions, queues = self.used_transactions, self.used_queues
        deadlines = (
            self.timers.next_deadline,
            self.backlog.acks.next_deadline,
            transactions.timers.next_deadline if transactions is not None else None,
            queues.timers.next_deadline if queues is not None else None,
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now_ms: int, steady_ms: int) -> None:
        """Runs all background tasks; called some times a second. Raises unexpected errors as an ExceptionGroup after
        all tasks have run.
        """
        tasks: Sequence[Callable[[], None]] = (
            lambda: self.clock.tick(now_ms, steady_ms),
            lambda: self.refused_batches.expire(steady_ms),
            lambda: self.checkpointer.tick(now_ms, steady_ms),
            self.journal_setup.tick,
            lambda: self.ledger.tick(now_ms),
            self.disk_reserve.tick,
            lambda: self.backlog.tick(now_ms, steady_ms),
            lambda: self.retention.tick(now_ms),
            lambda: self.disk_budget.tick(now_ms, self.disk_reserve.disk_bytes),
            lambda: self.segment_publisher.tick(now_ms, steady_ms),
            lambda: self.compactor.tick(now_ms),
            lambda: self.scrubber.tick(now_ms),
            lambda: self.advance(now_ms, steady_ms),
            lambda: self.group_history.tick(now_ms, steady_ms),
            lambda: self._tick_queues(steady_ms),
        )
        errors = []
        for task in tasks:
            try:
                task()
            except Exception as error:  # noqa: BLE001 - raised again when all are done
                errors.append(error)
        if errors:
            raise ExceptionGroup("background tasks failed", errors)

    def _tick_queues(self, steady_ms: int) -> None:
        if (queues := self.used_queues) is not None:
            queues.snapshots.tick(steady_ms)

    def advance(self, now_ms: int, steady_ms: int) -> None:
        """Lets groups, transactions and queues do what is due by now, and ends delays. Called at the next deadline, and
        with each tick.
        """
        self.groups.tell_time(now_ms, steady_ms)
        self.groups.advance()
        if (transactions := self.used_transactions) is not None:
            transactions.tell_time(now_ms, steady_ms)
            transactions.advance()
        if (queues := self.used_queues) is not None:
            queues.tell_time(now_ms, steady_ms)
            queues.advance()
        self.backlog.acks.advance(steady_ms)


class MetadataFlushedResponse(DependentResponse[Any]):
    """A response that also waits until the metadata it depends on is on disk."""

    __slots__ = ()

    def __init__(self, settled: Flushed, answer: Any) -> None:
        super().__init__(answer if isinstance(answer, DelayedResponse) else DelayedResponse.of(answer))
        settled.when_resolved(self._is_settled)

    def _is_settled(self, error: object) -> None:
        if error is None:  # if there is an error, the process is about to stop, and must not respond
            self._first.when_resolved(self.resolve)
