"""Opens a broker: replays the metadata log first, and then matches every other log with it.

1  the directory is opened, with recovery where the last stop was not clean
2  the metadata log is replayed; in an empty directory it begins with the cluster id. Where a repair has given up some
   of it, metadata is restored from the partitions' logs as far as possible
3  an unclean stop is counted, on disk: everything appended from now on has a new leader epoch
4  logs of deleted topics are removed; a log without `partition.metadata` is adopted if its topic is certain; other
   unknown logs are moved aside, never deleted
5  all other logs get at least that leader epoch, also if a crash came before their own was written
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from tailrace.broker.background.removals import finish_deletion, finish_removal
from tailrace.broker.backlog.ledger import Cuts, RemovedLog
from tailrace.broker.broker import Broker
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.core.delayed import StartJob
from tailrace.broker.core.losses import announce
from tailrace.broker.core.topics import LOSSES_TOPIC, METADATA_TOPIC, Topic
from tailrace.broker.metadata.compaction_history import rule_out_gaps
from tailrace.broker.metadata.log import replay_all, write_records
from tailrace.broker.metadata.records import ClusterCreated, MetadataRecord, StartedUncleanly, TopicCreated
from tailrace.broker.metadata.restore import bring_back, new_cluster_id
from tailrace.broker.metadata.state import Metadata
from tailrace.facts.document import UnreadableFact
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.errors import LogError, LogUnavailable, OutOfSpace
from tailrace.log.layout.names import INTERNAL_TOPICS, METADATA_PARTITION, PARTITION_METADATA, TopicPartition
from tailrace.log.log import Log
from tailrace.log.retention import Reason

logger = logging.getLogger("tailrace.broker")


class NotOurs(LogError):
    """The directory has logs but no metadata log: it belongs to another program, or has lost its metadata log."""


def open_broker(
    directory: DataDirectory,
    configs: BrokerConfigs,
    now_ms: int,
    *,
    start_job: StartJob,
    random_bytes: Callable[[int], bytes],
) -> Broker:
    """Opens a broker with the state that the directory's metadata log describes. May wait for a disk.

    Raises NotOurs, UnknownRecord, LogUnavailable if the log of an internal topic is damaged, and what a damaged
    metadata log raises.
    """
    metadata = Metadata(configs)
    _require_whole(directory)
    log, first = _load_metadata(directory, metadata, now_ms, random_bytes)
    delayed = _record_start(log, metadata, first, now_ms)
    _forget_deleted(directory, metadata)
    stale = _sort_out(directory, metadata)
    removed = [RemovedLog.of(name, directory.logs[name]) for name in stale]
    removal = directory.begin_remove(stale) if stale else None  # the broker expects a topic for every log
    for known in directory.logs.values():  # a log whose creation was cut short has no epoch yet
        if known.offline is None:
            known.raise_leader_epoch(metadata.leader_epoch)
    rule_out_gaps(directory, metadata)
    broker = Broker(directory, metadata, log, start_job=start_job, random_bytes=random_bytes)
    if delayed is not None:
        _delay_appends(broker, delayed, now_ms)
    broker.load_groups()
    broker.load_transactions()
    broker.load_queues()
    announce(directory)
    cuts = {} if directory.was_clean else _finish_deletions(broker, now_ms)
    if removal is not None:
        broker.ledger.note_removed_logs(removed, cuts, now_ms)
        broker.ledger.then(lambda: start_job(removal, lambda: finish_removal(directory, removal, start_job)))
    elif (leftovers := directory.begin_delete_leftovers()) is not None:
        start_job(leftovers, lambda: finish_deletion(leftovers))
    return broker


def _finish_deletions(broker: Broker, now_ms: int) -> Cuts:
    """Carries out deletions that a crash has interrupted after their loss was noted. Returns the last notes."""
    try:
        cuts = broker.ledger.last_cuts()
        for partition, before in list(broker.ledger.unfinished_cuts(cuts)):
            broker.retention.delete(partition, before, Reason.START, now_ms)
    except (LogError, UnreadableFact) as error:
        logger.error("cannot read the end of %s: %s. A loss may be noted twice", LOSSES_TOPIC, error)
        return {}
    return cuts


def _load_metadata(
    directory: DataDirectory, metadata: Metadata, now_ms: int, random_bytes: Callable[[int], bytes]
) -> tuple[Log, list[MetadataRecord]]:
    """Replays the metadata log into `metadata`. Returns the log, and the records that this start has to add to it."""
    log, first = _metadata_log(directory, random_bytes)
    log.rule_out_gaps()  # the metadata log is never compacted
    replay_all(log, metadata)
    if not first:
        _identify_metadata_log(directory, metadata, random_bytes)
        log = directory.logs[METADATA_PARTITION]
    lost = bring_back(directory, metadata, random_bytes) if log.recorded_gaps else []
    if lost:
        write_records(log, metadata, lost, now_ms)
    if not directory.was_clean and not first:
        first = [StartedUncleanly(count=metadata.unclean_starts + 1)]
    return log, first


def _delay_appends(broker: Broker, delayed: list[MetadataRecord], now_ms: int) -> None:
    """On return, these records will be written before anything is appended to any log."""
    broker.metadata_log.delay(delayed, now_ms)
    broker.directory.record_start = broker.metadata_log.write_delayed
    for log in broker.directory.logs.values():
        if log is not broker.metadata_log.log:
            log.before_append(broker.metadata_log.write_delayed)


def _require_whole(directory: DataDirectory) -> None:
    """Raises LogUnavailable if the log of an internal topic lacks records that were flushed: replaying the rest would
    give a state that never existed.
    """
    for name, log in sorted(directory.logs.items()):
        if name.topic not in INTERNAL_TOPICS:
            continue
        for segment in log.sealed_segments:  # an earlier start may have begun a new segment after the lost records
            log.find_missing_around(segment)
        if log.damage:
            raise LogUnavailable(name, directory.path, "; ".join(map(str, log.damage)), is_lost=True)


def _identify_metadata_log(directory: DataDirectory, metadata: Metadata, random_bytes: Callable[[int], bytes]) -> None:
    """Gives the metadata log the topic id that its records name; or a new id, if a repair has given those up."""
    log, topic = directory.logs[METADATA_PARTITION], metadata.topics.get(METADATA_TOPIC)
    if topic is not None and log.topic_id != topic.topic_id:
        _adopt(directory, METADATA_PARTITION, topic.topic_id)
    elif topic is None and log.topic_id is None:
        _adopt(directory, METADATA_PARTITION, random_bytes(16))


def _adopt(directory: DataDirectory, name: TopicPartition, topic_id: bytes) -> None:
    directory.adopt(name, topic_id)
    logger.warning("%s in %s/%s was lost or damaged, and has been rewritten", PARTITION_METADATA, directory.path, name)


def _forget_deleted(directory: DataDirectory, metadata: Metadata) -> None:
    """Removes partitions of deleted topics from the unavailable ones, and those that a wrong checkpoint names."""
    if directory.logs[METADATA_PARTITION].recorded_gaps:
        return  # an unknown topic may be one whose records a repair has given up
    gone = [name for name in directory.unavailable if metadata.partition_count(name.topic) <= name.partition]
    if gone:
        directory.forget(gone)
        job = directory.begin_save_offsets()
        job.run()
        with suppress(OutOfSpace):  # a later checkpoint saves them
            job.finish()


def _metadata_log(directory: DataDirectory, random_bytes: Callable[[int], bytes]) -> tuple[Log, list[MetadataRecord]]:
    """Returns the metadata log; and, if it is new, the records that it begins with."""
    log = directory.logs.get(METADATA_PARTITION)
    if log is not None and log.end_offset > 0:
        return log, []
    others = [str(name) for name in directory.logs if name != METADATA_PARTITION]
    if others:
        raise NotOurs(
            f"{directory.path} has logs, such as {min(others)}, but no {METADATA_PARTITION}, which describes them. "
            f"If it is a data directory of tailrace, restore {METADATA_PARTITION} from a backup; "
            "if not, choose another directory"
        )
    topic_id = random_bytes(16)
    if log is None:
        log = directory.create(METADATA_PARTITION, topic_id=topic_id)
    created = TopicCreated(topic_id=log.topic_id or topic_id, name=METADATA_TOPIC, partition_count=1)
    return log, [ClusterCreated(cluster_id=new_cluster_id(random_bytes)), created]


def _record_start(
    log: Log, metadata: Metadata, first: list[MetadataRecord], now_ms: int
) -> list[MetadataRecord] | None:
    """Writes the first records of the log, or the record of an unclean stop. If the disk has no room for the latter,
    the broker starts nevertheless, and takes no appends: returns the records to write before the first append.
    """
    is_new, pending = log.end_offset == 0, first
    try:
        if first:
            write_records(log, metadata, first, now_ms)
            pending = []
        log.flush()
    except OutOfSpace as error:
        if is_new:
            raise
        for change in pending:
            metadata.replay(change)
        logger.error(
            "the disk is full, so the broker starts read-only: %s. Fetches are served; appends are refused until "
            "there is room. Free some disk space",
            error,
        )
        return pending
    return None


def _sort_out(directory: DataDirectory, metadata: Metadata) -> list[TopicPartition]:
    """Matches every log in the directory with the metadata: adopts it, or moves it aside. Returns the logs of deleted
    topics, which are still in the directory.
    """
    stale = []
    for name, log in list(directory.logs.items()):
        if name == METADATA_PARTITION:
            continue
        topic = metadata.topics.get(name.topic)
        if topic is not None and log.topic_id == topic.topic_id and name.partition < topic.partition_count:
            continue
        if log.topic_id is not None and log.topic_id in metadata.deleted:
            stale.append(name)
        elif topic is not None and _is_surely_of(name, log, topic, directory, metadata):
            _adopt(directory, name, topic.topic_id)
        else:
            is_lost = topic is not None and name in directory.named and name.partition < topic.partition_count
            aside = directory.set_aside(name, is_lost=is_lost)
            logger.warning("unknown partition directory %s (not in the metadata log); moved to %s", name, aside)
    return stale


def _is_surely_of(name: TopicPartition, log: Log, topic: Topic, directory: DataDirectory, metadata: Metadata) -> bool:
    """Whether a log without a topic id, or with an unknown one, must belong to this topic: a checkpoint names it, and
    the metadata log, which is complete, has never had another topic of that name. A log without records, created by a
    repair, belongs to the topic in any case.
    """
    if name not in directory.named or name.partition >= topic.partition_count or log.topic_id in metadata.topics_by_id:
        return False
    if log.topic_id is None and int(log.start_offset) == log.end_offset:
        return True
    is_whole = not directory.logs[METADATA_PARTITION].recorded_gaps
    return is_whole and topic.name not in metadata.deleted.values()
