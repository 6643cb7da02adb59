"""A data directory: many logs, the small files that cover all of them, and the lock that keeps other processes out.

    <topic>-<partition>/                 a log
    <topic>-<partition>.…-delete/       a removed log, until its files are deleted
    <topic>-<partition>.…-stray/        a log that was moved aside: never opened, never deleted
    recovery-point-offset-checkpoint     where the scan of each log begins after a crash
    log-start-offset-checkpoint          where each log begins
    cleaner-offset-checkpoint            up to where each log is compacted
    tailrace.journal                     acknowledged records that may be missing in their log: read after a crash
    tailrace.journal.<number>            a journal with records of an unavailable log: read with that log
    .kafka_cleanshutdown                 exists if, and only if, the last stop was clean
    .lock                                held by the process that has the directory open
    tailrace.format                      the version of the format; a newer one is refused

The marker of a clean stop is removed, durably, before anything is opened: a crash at any later point is an unclean
stop.

A partition is *unavailable* if a checkpoint names it and it has no log, or its log cannot be opened. It has no `Log`,
its name is not free, and its checkpoint entries are kept. The directory cannot be opened while an internal topic's
partition is unavailable.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from errno import EDQUOT, EMFILE, ENFILE, ENOSPC, EROFS

from tailrace.log.directory.admission import check_admission, lock_directory
from tailrace.log.directory.markers import (
    format_of,
    leave_clean_marker,
    make_directory,
    raise_format,
    take_clean_marker,
)
from tailrace.log.directory.offset_checkpoints import NotedOffsets, OffsetCheckpoints, OffsetsJob
from tailrace.log.directory.removal import DeleteJob, Removal, RemoveJob
from tailrace.log.disk.interface import (
    Files,
    Space,
    join,
    read_whole,
    remove_if_there,
    replace_whole,
    write_whole,
)
from tailrace.log.files.checkpoints import RESTORED_FILE
from tailrace.log.files.directory_state import DirectoryState, PartitionDirectory
from tailrace.log.files.journal_file import FILE_NAME as JOURNAL_FILE
from tailrace.log.files.journal_file import keep_journal, read_journal
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.partition_metadata import encode_topic_id
from tailrace.log.flush.journal import Journal, MakeJournalJob, open_journal
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import (
    JobUnderWay,
    LogOffline,
    LogUnavailable,
    OutOfSpace,
    SegmentsMissing,
    StorageError,
)
from tailrace.log.layout.names import (
    INTERNAL_TOPICS,
    LOG,
    PARTITION_METADATA,
    REMOVED,
    STRAY,
    TopicPartition,
    is_put_away,
    parse_partition,
    put_away_name,
)
from tailrace.log.log import Log
from tailrace.log.recovery.recovery import recover
from tailrace.log.recovery.state import NO_SEGMENT, RecoveryReport
from tailrace.log.scan.restore import Journaled, by_log
from tailrace.log.scrub import ScrubChunk, ScrubJob
from tailrace.log.segment.derived_cache import DerivedCache

_NOT_THE_LOGS_FAULT = (ENOSPC, EDQUOT, EMFILE, ENFILE, EROFS)  # any other log would fail in the same way

logger = logging.getLogger("tailrace.log.directory")


class DataDirectory:
    def __init__(self, files: Files, path: str, config: LogConfig | None = None) -> None:
        """Opens every log in the directory, after recovery where needed. Raises DirectoryInUse, ForeignDirectory,
        UnknownFormat, and LogUnavailable if a log of an internal topic is lost or cannot be opened.
        """
        self.files = files
        self.path = path
        self.config = config or LogConfig()
        self.logs: dict[TopicPartition, Log] = {}
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        self.unavailable: dict[TopicPartition, LogUnavailable] = {}
        self.named: set[TopicPartition] = set()  # in the checkpoints, as they were found
        self._unclaimed: Journaled = {}  # the journal's records of logs that are not here under that topic id
        self.saving_offsets: OffsetsJob | None = None
        self.offset_checkpoints = OffsetCheckpoints(files, path)
        self.removing: dict[TopicPartition, RemoveJob] = {}  # their names are not free yet
        self.leftovers: list[str] = []  # directories of removed logs, to be deleted
        self.put_away: set[str] = set()  # the same, and logs that were moved aside
        self.journal: Journal | None = None  # once it was begun; `begin_make_journal` makes a missing one
        self._is_journal_begun = False
        self.record_start: Callable[[], None] | None = None  # writes that the disk had no room for, until they succeed
        self._cache = DerivedCache()
        self._offsets_noted = 0
        check_admission(files, path)  # before anything is written there, including the lock file
        make_directory(files, path)
        self._lock = lock_directory(files, path)
        try:
            self._open()
        except BaseException as error:
            self.abandon()
            if isinstance(error, OSError):
                raise StorageError(f"cannot open {path}", error) from error
            raise

    def _open(self) -> None:
        if check_admission(self.files, self.path):
            raise_format(self.files, self.path)  # first: from here on the directory counts as ours
        state = DirectoryState(self.files, self.path)
        for name in state.damaged:
            logger.warning("%s in %s is damaged: its contents are rebuilt by reading the logs", name, self.path)
        directories = self.files.directories_in(self.path)
        self._directories = set(directories)  # of partitions that cannot be opened: kept for the next start
        self._note_missing(state, directories)
        if state.clean:
            state.clean = take_clean_marker(self.files, self.path)
        self.was_clean, self.named = state.clean, state.named
        self._open_logs(state, directories)
        if not state.clean:
            self.files.sync_directory(self.path)  # first: a partition in a checkpoint must exist
        is_saved = self.offset_checkpoints.are_on_disk(self.note_offsets(), state)
        if not is_saved or not state.clean or not state.is_ours:
            self._save_what_recovery_found(state)
        raise_format(self.files, self.path)

    def _note_missing(self, state: DirectoryState, directories: Collection[str]) -> None:
        """Notes partitions without a directory. Runs before anything is changed: the broker does not start without a
        log of an internal topic.
        """
        for partition in sorted(state.missing(directories)):
            self._is_unavailable(partition, state, "a checkpoint names it, but it has no directory", is_lost=True)
        own = [name for name in state.named if name.topic in INTERNAL_TOPICS and str(name) in directories]
        for partition in sorted(own) if state.clean and state.is_ours else ():
            if not any(LOG in name for name in self.files.files_in(join(self.path, str(partition)))):
                self._is_unavailable(partition, state, NO_SEGMENT, is_lost=True)

    def _is_unavailable(self, partition: TopicPartition, state: DirectoryState, reason: str, *, is_lost: bool) -> None:
        error = LogUnavailable(partition, self.path, reason, is_lost=is_lost)
        if partition.topic in INTERNAL_TOPICS:
            raise error
        self.unavailable[partition] = error
        known = (state.recovery_points, state.start_offsets, state.cleaner_offsets)
        self.offset_checkpoints.keep(partition, *((offsets or {}).get(partition) for offsets in known))

    def _open_logs(self, state: DirectoryState, directories: Iterable[str]) -> None:
        journaled = {} if state.clean else by_log(read_journal(self.files, self.path))
        for name in directories:
            partition = parse_partition(name)
            if partition is not None:
                self._open_log(partition, state.partition_directory(join(self.path, name), partition), state, journaled)
            elif is_put_away(name):
                self.put_away.add(name)
                if name.endswith(REMOVED):
                    self.leftovers.append(name)
        claimed = {(log.name, log.topic_id or b"") for log in self.logs.values()} if journaled else set()
        self._unclaimed = {key: of_log for key, of_log in journaled.items() if key not in claimed}

    def _open_log(
        self, partition: TopicPartition, place: PartitionDirectory, state: DirectoryState, journaled: Journaled
    ) -> None:
        try:
            log, report = recover(self.files, place, self.config, cache=self._cache, journaled=journaled)
        except SegmentsMissing as error:
            self._is_unavailable(partition, state, str(error), is_lost=True)
        except OSError as error:
            if error.errno in _NOT_THE_LOGS_FAULT:
                raise
            reason = f"cannot open its log: {error.filename or place.directory}: {error.strerror or error}"
            self._is_unavailable(partition, state, reason, is_lost=False)
        else:
            self.logs[partition], self.reports[partition] = log, report
            if log.unflushed:  # it is new: its directory exists, but it was never flushed
                self._to_be_enrolled(log)

    def _to_be_enrolled(self, log: Log) -> None:
        log.is_enrolled = False
        log.enrol = self.offset_checkpoints.enrol

    def _save_what_recovery_found(self, state: DirectoryState) -> None:
        """Saves what recovery found, so that the next start need not repeat the work. If the disk is full, a later
        checkpoint does it, and a log that is missing in the recovery points is added with its next flush.
        """
        try:
            for log in self.logs.values():
                if not log.is_saved:
                    log.checkpoint(None)
            self._save_offsets()
        except OutOfSpace as error:
            logger.warning("cannot save the result of recovery: %s. The next start repeats it", error)
            known = self.named if state.recovery_points is None else state.recovery_points
            for partition in self.logs.keys() - known:
                log = self.logs[partition]
                log.unflushed.named(log.directory)  # forces a flush, which enrols the log, before the journal takes it
                self._to_be_enrolled(log)

    # Creating and removing logs

    @property
    def is_restored(self) -> bool:
        """Whether the directory comes from a backup and has not been started since (`forget_restore`)."""
        return self.files.exists(join(self.path, RESTORED_FILE))

    def forget_restore(self) -> None:
        remove_if_there(self.files, join(self.path, RESTORED_FILE))

    def has_format(self, version: int) -> bool:
        """Whether the directory is marked with this format, or a newer one. Reads a file."""
        return format_of(self.files, self.path) >= version

    def require_format(self, version: int) -> None:
        """Marks the directory with a format, durably, if it has an older one: from here on older releases refuse it.
        Raises StorageError.
        """
        try:
            raise_format(self.files, self.path, version)
        except OSError as error:
            raise StorageError(f"cannot raise the format of {self.path}", error) from error

    def create(
        self,
        partition: TopicPartition,
        *,
        topic_id: bytes | None = None,
        leader_epoch: int = 0,
        config: LogConfig | None = None,
    ) -> Log:
        """Creates a new, empty log. Its directory and its topic id are on disk with its first flush. Raises JobUnderWay
        while an earlier log of this name is being removed, and LogUnavailable if the partition is unavailable.
        """
        assert partition not in self.logs
        if partition in self.unavailable:
            raise self.unavailable[partition].again()
        if partition in self.removing:
            raise JobUnderWay(f"{partition} in {self.path} is still being removed")
        place = PartitionDirectory(join(self.path, str(partition)), partition, recovery_point=0, start_offset=0)
        try:
            log, _ = recover(self.files, place, config or self.config, leader_epoch=leader_epoch, cache=self._cache)
            log.note_creation()
            self._to_be_enrolled(log)
            if topic_id is not None:
                log.assign_topic_id(topic_id)
                # Written now, so that a killed process leaves no log without a topic id; flushed with the rest.
                metadata = join(place.directory, PARTITION_METADATA)
                write_whole(self.files, metadata, encode_topic_id(topic_id), sync=False)
        except OSError as error:
            raise StorageError(f"cannot create {place.directory}", error) from error
        self.logs[partition] = log
        return log

    def begin_remove(self, partitions: Iterable[TopicPartition]) -> RemoveJob:
        """Takes logs out of this directory, and returns the job that renames their directories. From now on appends,
        flushes and reads raise LogRemoved, but pinned slices can be read to their end. The job's `finish` returns
        another job, which deletes the files; until then no log of the same name can be created. If the job fails, the
        removal may be begun again; before that, this raises JobUnderWay.
        """
        wanted = list(dict.fromkeys(partitions))
        for partition in wanted:
            assert partition in self.logs or partition in self.removing
            if partition in self.removing and self.removing[partition].is_under_way:
                raise JobUnderWay(f"{partition} in {self.path} is being removed already")
        job = RemoveJob(self, {partition: self._removal_of(partition) for partition in wanted})
        self.removing.update(dict.fromkeys(wanted, job))
        return job

    @property
    def failed_removals(self) -> list[TopicPartition]:
        """The partitions whose removal may be begun again."""
        return [partition for partition, job in self.removing.items() if not job.is_under_way]

    def _removal_of(self, partition: TopicPartition) -> Removal:
        """Returns the removal of this partition: the earlier one if that has failed, so that the new name stays the
        same.
        """
        if partition in self.removing:
            return self.removing[partition].removals[partition]
        name = self._name_for(partition, REMOVED)
        return Removal(self._let_go_of(partition), name)

    def begin_delete_leftovers(self) -> DeleteJob | None:
        """Returns a job that deletes the files of removed logs, including those that an earlier process removed; None
        if there are none.
        """
        names, self.leftovers = self.leftovers, []
        return DeleteJob(self, names) if names else None

    def set_aside(self, partition: TopicPartition, *, is_lost: bool = False) -> str:
        """Moves a log aside: takes it out of this directory, durably, and keeps its files under the returned name. With
        `is_lost`, the partition then counts as lost: no other log gets its name.

        Waits for the disk. Raises StorageError if it refuses, and JobUnderWay while the log has a job.
        """
        self._require_idle()
        self.logs[partition].require_settled()
        name = self._name_for(partition, STRAY)
        try:
            self.files.rename(self.logs[partition].directory, join(self.path, name))
            self.files.sync_directory(self.path)
        except OSError as error:
            raise StorageError(f"cannot move {partition} in {self.path} aside", error) from error
        log = self._let_go_of(partition)
        self.offset_checkpoints.take_away([log])
        if is_lost:
            reason = f"the topic of its log is unknown, and the log was moved to {name}"
            self.unavailable[partition] = LogUnavailable(partition, self.path, reason, is_lost=True)
            self._directories.discard(str(partition))
            self.offset_checkpoints.keep(partition, log.recovery_point, log.start_offset, None)
        with suppress(OutOfSpace):  # a later checkpoint does it
            self._save_offsets()
        return name

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Frees the names of these unavailable partitions, which have no topic; durable with the next save of the
        offsets. The next start removes a directory that is left.
        """
        for partition in partitions:
            if str(partition) not in self._directories:
                del self.unavailable[partition]
            self.offset_checkpoints.give_up(partition)

    def adopt(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Assigns a log whose `partition.metadata` was lost or wrong to this topic, durably, and restores what the
        journal has of it. Must be called at startup, before anything is appended. Waits for the disk. Raises
        StorageError.
        """
        log = self.logs[partition]
        is_journaled = (log.name, topic_id) in self._unclaimed
        try:
            if is_journaled:
                self._take_back_epoch(log)  # first: once the log has its topic id, any start brings the records back
            replace_whole(self.files, join(log.directory, PARTITION_METADATA), encode_topic_id(topic_id))
            log.topic_id = topic_id
            if is_journaled:
                self._recover_again(partition, log)
        except OSError as error:
            raise StorageError(f"cannot assign {partition} in {self.path} to its topic", error) from error

    def _take_back_epoch(self, log: Log) -> None:
        """Drops the epoch that recovery began at the end of the log: the journal's records were written before it."""
        log.epochs.truncate(log.end_offset)
        replace_whole(self.files, join(log.directory, EPOCHS_FILE), log.epochs.encode())

    def _recover_again(self, partition: TopicPartition, log: Log) -> None:
        """Recovers a log again, with its records in the journal, which its first recovery did not use."""
        log.let_go()
        offsets = log.recovery_point, log.start_offset, log.compacted_to
        place = PartitionDirectory(log.directory, partition, "", False, *offsets)
        self.logs[partition], self.reports[partition] = recover(
            self.files, place, self.config, cache=self._cache, journaled=self._unclaimed
        )

    def _let_go_of(self, partition: TopicPartition) -> Log:
        log = self.logs.pop(partition)
        self.reports.pop(partition, None)
        log.note_removal()
        return log

    def _name_for(self, partition: TopicPartition, suffix: str) -> str:
        """Returns a name that no other directory has. It is made unique by the topic id if known, rather than at
        random.
        """
        number = int.from_bytes(self.logs[partition].topic_id or b"")
        while (name := put_away_name(partition, number, suffix)) in self.put_away:
            number += 1
        self.put_away.add(name)
        return name

    # Checkpoints

    def begin_save_offsets(self) -> OffsetsJob:
        """Returns a job that saves recovery points and start offsets, and then removes deleted segments. Raises
        JobUnderWay while another one is out.
        """
        self._require_idle()
        self.saving_offsets = job = OffsetsJob(self)
        return job

    def note_offsets(self) -> NotedOffsets:
        """Returns the offsets of all logs as they are now. Logs that are being removed are included: they may reappear
        after a crash.
        """
        self._offsets_noted += 1
        removing = {partition: job.removals[partition].log for partition, job in self.removing.items()}
        return NotedOffsets.of(self.logs | removing, self._offsets_noted)

    def _require_idle(self) -> None:
        if self.saving_offsets is not None:
            raise JobUnderWay(f"the checkpoints of {self.path} are still being saved")

    def checkpoint(self, steady_ms: int) -> None:
        """Checkpoints all logs: on return, each recovery point is the end of its log, all start offsets are on disk,
        and deleted segments are removed. Skips logs that have a job under way or are offline.
        """
        self._require_idle()
        for log in self.logs.values():
            if not log.is_saved and log.offline is None and log.is_idle:
                try:
                    log.checkpoint(steady_ms)
                except LogOffline:  # it has logged why; the others go on
                    pass
                except StorageError as error:
                    logger.error("%s", error)
        self._save_offsets()

    def _save_offsets(self) -> None:
        job = self.begin_save_offsets()
        job.run()
        job.finish()

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Truncates a log at `end`, as `Log.truncate` does. Lowers the recovery point first, so that recovery after a
        crash in between does not report the missing end as a loss.
        """
        self._require_idle()
        log = self.logs[partition]
        log.require_settled()
        log.recovery_point = min(log.recovery_point, log.end_after_truncation(end))
        self._save_offsets()
        self._void_journal()  # it may have batches that are about to be truncated
        log.truncate(end)

    def _void_journal(self) -> None:
        """Empties the journal: on return, no log needs its contents, and none of it counts."""
        self.begin_journal()
        if self.journal is not None:
            for log in self.logs.values():
                if log.offline is None:
                    log.flush()
            self.journal.begin_session()

    def begin_journal(self) -> None:
        """Empties the journal at the end of a start, when all logs have its records and no log is left to be adopted; a
        start that fails earlier leaves the journal to the next one. A journal with records of an unavailable log is
        kept under another name until that log is back. Raises StorageError.
        """
        if self._is_journal_begun or self.journal is not None:
            return
        needed = {str(partition).encode() for partition in self.unavailable} & {name for name, _ in self._unclaimed}
        try:
            if not self.was_clean:
                keep_journal(self.files, self.path, needed)
            self.journal = open_journal(self.files, self.path)
        except OSError as error:
            raise StorageError(f"cannot begin the journal in {self.path}", error) from error
        self._unclaimed = {}
        self._is_journal_begun = True

    def use_journal(self, size: int) -> Journal | None:
        """Returns the journal, ready for writing, if there is one of this size. Removes one of another size; 0 means no
        journal. Must be called right after the start, while no log needs the journal.
        """
        self.begin_journal()
        if self.journal is not None and self.journal.size != size:
            self._close_journal()
            remove_if_there(self.files, join(self.path, JOURNAL_FILE))
        return self.journal

    # What only a data directory on the local disk has

    def begin_make_journal(self, size: int) -> MakeJournalJob:
        """Returns a job that creates a journal of this size. The caller assigns its result to `journal`."""
        return MakeJournalJob(self.files, self.path, size)

    def begin_scrub(self, chunks: Sequence[ScrubChunk], note: tuple[str, bytes] | None = None) -> ScrubJob:
        return ScrubJob(self.files, chunks, note)

    def free_space(self) -> Space:
        """Returns the space of the disk. May block for long. Raises OSError."""
        return self.files.space(self.path)

    def read_file(self, name: str) -> bytes | None:
        """Returns a small file beside the logs, or None if it does not exist. Raises OSError."""
        return read_whole(self.files, join(self.path, name))

    def close(self, steady_ms: int) -> None:
        """Closes all logs; on return, everything is on disk. If nothing failed, the stop counts as clean, and the next
        start reads no data. Raises JobUnderWay, and does nothing, while a log has a job.
        """
        self._require_idle()
        for log in self.logs.values():
            log.require_settled()
        if any(job.is_under_way for job in self.removing.values()):
            raise JobUnderWay(f"logs of {self.path} are still being removed")
        try:
            is_start_recorded = self._do_what_is_due()
            for log in self.logs.values():
                log.close(steady_ms)
            self._save_offsets()
            is_clean = not self.removing and all(log.is_cleanly_closed for log in self.logs.values())
            # A log that is unavailable since a crash is recovered by the first start after it is back.
            if is_start_recorded and is_clean and (self.was_clean or not self.unavailable):
                self._leave_clean_marker()
        finally:
            self._close_journal()
            self._lock.release()

    def _do_what_is_due(self) -> bool:
        """Does what a start on a full disk had no room for. Returns False if there still is no room."""
        try:
            if self.record_start is not None:
                self.record_start()
            for log in self.logs.values():
                log.do_what_is_due()
        except StorageError as error:
            logger.warning("this stop does not count as clean: %s", error)
            return False
        return True

    def abandon(self) -> None:
        """Closes everything without a flush. Another process may then open the directory, and finds it as after a
        crash.
        """
        for log in self.logs.values():
            log.let_go()
        self._close_journal()
        self._lock.release()

    def _close_journal(self) -> None:
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def _empty_journal(self) -> None:
        """Empties the journal: on return, none of its contents count, as the logs have it all. Removes a journal that
        cannot be written.
        """
        self.begin_journal()
        try:
            if self.journal is not None:
                self.journal.begin_session()
        except OSError as error:
            logger.warning("cannot write %s in %s: %s. Removing it", JOURNAL_FILE, self.path, error)
            remove_if_there(self.files, join(self.path, JOURNAL_FILE))

    def _leave_clean_marker(self) -> None:
        try:
            self._empty_journal()
            leave_clean_marker(self.files, self.path)
        except OSError as error:
            raise StorageError(f"cannot write the marker of a clean stop in {self.path}", error) from error
