"""A data directory: many logs, the small files that cover them all, and the lock that keeps other processes out.

    <topic>-<partition>/                 a log
    <topic>-<partition>.…-delete/       a log that was removed, until its files are deleted
    <topic>-<partition>.…-stray/        one that was set aside: never opened, never deleted
    recovery-point-offset-checkpoint     from where each log is scanned after a crash
    log-start-offset-checkpoint          where each log begins
    cleaner-offset-checkpoint            up to where each log is compacted
    tailrace.journal                     what was acknowledged and is perhaps not in its log yet: read after a crash
    tailrace.journal.<number>            a journal that has records of a log that is unavailable: read with it
    .kafka_cleanshutdown                 there if, and only if, the last stop was clean
    .lock                                held by the process that has the directory open
    tailrace.format                      the version of what we write; a newer one is refused

The marker of a clean stop is taken away, on disk, before anything is opened: a crash at any later point is an
unclean stop.

A partition that a checkpoint names and that has no log, or one that cannot be opened, is *unavailable*: it has no
`Log`, its name is not free, and what the checkpoints say of it stays there. A log of the broker's own that is
unavailable keeps the directory from being opened.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from errno import EDQUOT, EMFILE, ENFILE, ENOSPC, EROFS

from tailrace.log.directory.admission import check_admission, lock_directory
from tailrace.log.directory.markers import leave_clean_marker, make_directory, raise_format, take_clean_marker
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
from tailrace.log.scrub import Piece, ScrubJob
from tailrace.log.segment.segment import DerivedCache

_NOT_THE_LOGS_FAULT = (ENOSPC, EDQUOT, EMFILE, ENFILE, EROFS)  # it would be the same with any other log

logger = logging.getLogger("tailrace.log.directory")


class DataDirectory:
    def __init__(self, files: Files, path: str, config: LogConfig | None = None) -> None:
        """Opens every log in the directory, after recovery where that is needed. Raises DirectoryInUse,
        ForeignDirectory, UnknownFormat, and LogUnavailable where a log of the broker's own is lost or cannot be opened.
        """
        self.files = files
        self.path = path
        self.config = config or LogConfig()
        self.logs: dict[TopicPartition, Log] = {}
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        self.unavailable: dict[TopicPartition, LogUnavailable] = {}
        self.named: set[TopicPartition] = set()  # by the checkpoints, as they were found
        self._unclaimed: Journaled = {}  # what the journal has of logs that are not here by that topic id
        self.saving_offsets: OffsetsJob | None = None
        self.offset_checkpoints = OffsetCheckpoints(files, path)
        self.removing: dict[TopicPartition, RemoveJob] = {}  # their names are not free yet
        self.leftovers: list[str] = []  # directories of removed logs, to be deleted
        self.put_away: set[str] = set()  # and those, with what was set aside
        self.journal: Journal | None = None  # once it is begun; one can be made where there is none
        self._is_journal_begun = False
        self.record_start: Callable[[], None] | None = None  # what the broker had no room to write; until it is done
        self._cache = DerivedCache()
        self._offsets_noted = 0
        check_admission(files, path)  # before anything is written there, be it the lock's file
        make_directory(files, path)
        self._lock = lock_directory(files, path)
        try:
            self._open()
        except BaseException as error:
            self.abandon()
            if isinstance(error, OSError):
                raise StorageError(f"{path} cannot be opened", error) from error
            raise

    def _open(self) -> None:
        if check_admission(self.files, self.path):
            raise_format(self.files, self.path)  # first: from here on the directory is known as ours
        state = DirectoryState(self.files, self.path)
        for name in state.damaged:
            logger.warning("%s in %s is damaged: what it said is found out by reading the logs", name, self.path)
        directories = self.files.directories_in(self.path)
        self._directories = set(directories)  # of partitions that cannot be opened: they stay for the next start
        self._note_missing(state, directories)
        if state.clean:
            state.clean = take_clean_marker(self.files, self.path)
        self.was_clean, self.named = state.clean, state.named
        self._open_logs(state, directories)
        if not state.clean:
            self.files.sync_directory(self.path)  # first: what a checkpoint names must be there
        is_saved = self.offset_checkpoints.are_on_disk(self.note_offsets(), state)
        if not is_saved or not state.clean or not state.is_ours:
            self._save_what_recovery_found(state)
        raise_format(self.files, self.path)

    def _note_missing(self, state: DirectoryState, directories: Collection[str]) -> None:
        """Before anything is changed: without a log of its own the broker does not start."""
        for partition in sorted(state.missing(directories)):
            self._is_unavailable(partition, state, "its directory is missing, and a checkpoint names it", is_lost=True)
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
            reason = f"its log cannot be opened: {error.filename or place.directory}: {error.strerror or error}"
            self._is_unavailable(partition, state, reason, is_lost=False)
        else:
            self.logs[partition], self.reports[partition] = log, report
            if log.unflushed:  # it is new: its directory was made, and its first flush never came
                self._to_be_enrolled(log)

    def _to_be_enrolled(self, log: Log) -> None:
        log.is_enrolled = False
        log.enrol = self.offset_checkpoints.enrol

    def _save_what_recovery_found(self, state: DirectoryState) -> None:
        """So that what one start has looked at the next need not look at again. Where there is no room, a later
        checkpoint does it; and a log that has no name in the recovery points gets it with its next flush.
        """
        try:
            for log in self.logs.values():
                if not log.is_saved:
                    log.checkpoint(None)
            self._save_offsets()
        except OutOfSpace as error:
            logger.warning("%s: the next start has to look at the same again", error)
            known = self.named if state.recovery_points is None else state.recovery_points
            for partition in self.logs.keys() - known:
                log = self.logs[partition]
                log.unflushed.named(log.directory)  # so that a flush, which enrols it, comes before the journal has it
                self._to_be_enrolled(log)

    # Logs that come and go

    def create(
        self,
        partition: TopicPartition,
        *,
        topic_id: bytes | None = None,
        leader_epoch: int = 0,
        config: LogConfig | None = None,
    ) -> Log:
        """A new, empty log. Its directory, and what it says of its topic, is on disk with its first flush. Raises
        JobUnderWay while the log that had this name before is being removed, and LogUnavailable where there should be
        one.
        """
        assert partition not in self.logs
        if partition in self.unavailable:
            raise self.unavailable[partition].again()
        if partition in self.removing:
            raise JobUnderWay(f"{partition} in {self.path} is being removed, which must come back first")
        place = PartitionDirectory(join(self.path, str(partition)), partition, recovery_point=0, start_offset=0)
        try:
            log, _ = recover(self.files, place, config or self.config, leader_epoch=leader_epoch, cache=self._cache)
            log.note_creation()
            self._to_be_enrolled(log)
            if topic_id is not None:
                log.assign_topic_id(topic_id)
                # Written now, so that a killed process leaves no log that nobody knows; flushed with all else.
                metadata = join(place.directory, PARTITION_METADATA)
                write_whole(self.files, metadata, encode_topic_id(topic_id), sync=False)
        except OSError as error:
            raise StorageError(f"{place.directory} cannot be made", error) from error
        self.logs[partition] = log
        return log

    def begin_remove(self, partitions: Iterable[TopicPartition]) -> RemoveJob:
        """Afterwards the logs are none of this directory's: appends, flushes and reads raise LogRemoved, while
        pieces that readers have pinned can be read to their end. The job gives their directories other names, and
        hands over one that deletes them; until it is finished no log of the same name can be created. If it fails,
        the same may be begun again; raises JobUnderWay before that.
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
        """Those that may be begun again."""
        return [partition for partition, job in self.removing.items() if not job.is_under_way]

    def _removal_of(self, partition: TopicPartition) -> Removal:
        """As it was begun before, where that has failed."""
        if partition in self.removing:
            return self.removing[partition].removals[partition]
        name = self._name_for(partition, REMOVED)
        return Removal(self._let_go_of(partition), name)

    def begin_delete_leftovers(self) -> DeleteJob | None:
        """A job that deletes what is left of removed logs, also of those that an earlier process has removed, if
        anything is.
        """
        names, self.leftovers = self.leftovers, []
        return DeleteJob(self, names) if names else None

    def set_aside(self, partition: TopicPartition, *, is_lost: bool = False) -> str:
        """Afterwards the log is none of this directory's, on disk, and its files are kept under the name that is
        returned. Waits for the disk. Raises StorageError where it refuses, and JobUnderWay while the log has a job.

        With `is_lost` the partition then counts as lost: no other log gets its name.
        """
        self._require_idle()
        self.logs[partition].require_settled()
        name = self._name_for(partition, STRAY)
        try:
            self.files.rename(self.logs[partition].directory, join(self.path, name))
            self.files.sync_directory(self.path)
        except OSError as error:
            raise StorageError(f"{partition} in {self.path} could not be set aside", error) from error
        log = self._let_go_of(partition)
        self.offset_checkpoints.take_away([log])
        if is_lost:
            reason = f"nothing says which topic its log belongs to, and it was set aside as {name}"
            self.unavailable[partition] = LogUnavailable(partition, self.path, reason, is_lost=True)
            self._directories.discard(str(partition))
            self.offset_checkpoints.keep(partition, log.recovery_point, log.start_offset, None)
        with suppress(OutOfSpace):  # a later checkpoint does it
            self._save_offsets()
        return name

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """On return, these unavailable partitions are none any more, as they have no topic; that is on disk with the
        next save of the offsets. A directory that is left is the next start's to remove.
        """
        for partition in partitions:
            if str(partition) not in self._directories:
                del self.unavailable[partition]
            self.offset_checkpoints.give_up(partition)

    def adopt(self, partition: TopicPartition, topic_id: bytes) -> None:
        """On return, the log, whose `partition.metadata` was lost or wrong, belongs to this topic, on disk, and has
        what the journal has of it. At the start, before anything is appended. Waits for the disk. Raises StorageError.
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
            raise StorageError(f"{partition} in {self.path} could not be adopted", error) from error

    def _take_back_epoch(self, log: Log) -> None:
        """The one that recovery began at the log's end: what comes back from the journal was written before."""
        log.epochs.truncate(log.end_offset)
        replace_whole(self.files, join(log.directory, EPOCHS_FILE), log.epochs.encode())

    def _recover_again(self, partition: TopicPartition, log: Log) -> None:
        """With what the journal has of the log, which was opened without."""
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
        """One that no other directory has. What makes it so is the topic's id, if it has one, rather than chance."""
        number = int.from_bytes(self.logs[partition].topic_id or b"")
        while (name := put_away_name(partition, number, suffix)) in self.put_away:
            number += 1
        self.put_away.add(name)
        return name

    # Checkpoints

    def begin_save_offsets(self) -> OffsetsJob:
        """A job that brings recovery points and start offsets to disk, and then removes what was deleted. Raises
        JobUnderWay while another one is out.
        """
        self._require_idle()
        self.saving_offsets = job = OffsetsJob(self)
        return job

    def note_offsets(self) -> NotedOffsets:
        """The offsets of all logs as they are now. One that is being removed may still be there after a crash, and
        wants its own then.
        """
        self._offsets_noted += 1
        removing = {partition: job.removals[partition].log for partition, job in self.removing.items()}
        return NotedOffsets.of(self.logs | removing, self._offsets_noted)

    def _require_idle(self) -> None:
        if self.saving_offsets is not None:
            raise JobUnderWay(f"the checkpoints of {self.path} are being saved, which must come back first")

    def checkpoint(self, steady_ms: int) -> None:
        """Afterwards every log's recovery point is its end, all start offsets are on disk, and deleted segments are
        gone. Logs that have a job under way or are offline are left alone.
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
        """Afterwards the log ends at `end`, as `Log.truncate` says. The recovery point goes first, so that a
        crash in between does not take the missing end for a loss."""
        self._require_idle()
        log = self.logs[partition]
        log.require_settled()
        log.recovery_point = min(log.recovery_point, log.end_after_truncation(end))
        self._save_offsets()
        self._void_journal()  # it may have what is about to be cut off
        log.truncate(end)

    def _void_journal(self) -> None:
        """Afterwards nobody needs what is in it, and nothing in it counts."""
        self.begin_journal()
        if self.journal is not None:
            for log in self.logs.values():
                if log.offline is None:
                    log.flush()
            self.journal.begin_session()

    def begin_journal(self) -> None:
        """On return, nothing in the journal counts: the logs have it all. At the end of a start, when no log is left to
        be adopted; a start that fails before leaves the journal to the next one. A journal that has records of a log
        that is unavailable is kept under another name, until that log is back. Raises StorageError.
        """
        if self._is_journal_begun or self.journal is not None:
            return
        needed = {str(partition).encode() for partition in self.unavailable} & {name for name, _ in self._unclaimed}
        try:
            if not self.was_clean:
                keep_journal(self.files, self.path, needed)
            self.journal = open_journal(self.files, self.path)
        except OSError as error:
            raise StorageError(f"the journal in {self.path} cannot be begun", error) from error
        self._unclaimed = {}
        self._is_journal_begun = True

    def use_journal(self, size: int) -> Journal | None:
        """The journal, begun, if one of this size is there. Of another one nothing is left; and 0 is none. Right after
        the start: nobody may need yet what is in it.
        """
        self.begin_journal()
        if self.journal is not None and self.journal.size != size:
            self._close_journal()
            remove_if_there(self.files, join(self.path, JOURNAL_FILE))
        return self.journal

    # What only a data directory on the local disk has

    def begin_make_journal(self, size: int) -> MakeJournalJob:
        """A job that makes a journal of this size, where there is none. Its result is assigned to `journal`."""
        return MakeJournalJob(self.files, self.path, size)

    def begin_scrub(self, pieces: Sequence[Piece], note: tuple[str, bytes] | None = None) -> ScrubJob:
        return ScrubJob(self.files, pieces, note)

    def free_space(self) -> Space:
        """Of the disk. May take long. Raises OSError."""
        return self.files.space(self.path)

    def read_file(self, name: str) -> bytes | None:
        """A small file beside the logs, or None where there is none. Raises OSError."""
        return read_whole(self.files, join(self.path, name))

    def close(self, steady_ms: int) -> None:
        """Afterwards everything is on disk. If all went well the stop counts as clean, and the next start reads no
        data. Raises JobUnderWay, and does nothing, while a log has one.
        """
        self._require_idle()
        for log in self.logs.values():
            log.require_settled()
        if any(job.is_under_way for job in self.removing.values()):
            raise JobUnderWay(f"logs of {self.path} are being removed, which must come back first")
        try:
            is_start_recorded = self._do_what_is_due()
            for log in self.logs.values():
                log.close(steady_ms)
            self._save_offsets()
            is_clean = not self.removing and all(log.is_cleanly_closed for log in self.logs.values())
            # Of one that is unavailable since a crash, only the next start after it is back can say.
            if is_start_recorded and is_clean and (self.was_clean or not self.unavailable):
                self._leave_clean_marker()
        finally:
            self._close_journal()
            self._lock.release()

    def _do_what_is_due(self) -> bool:
        """Does what a start on a full disk had no room for. Returns False if there is still none."""
        try:
            if self.record_start is not None:
                self.record_start()
            for log in self.logs.values():
                log.do_what_is_due()
        except StorageError as error:
            logger.warning("this stop is not a clean one: %s", error)
            return False
        return True

    def abandon(self) -> None:
        """Afterwards another process may open the directory, and finds it as a crash would have left it."""
        for log in self.logs.values():
            log.let_go()
        self._close_journal()
        self._lock.release()

    def _close_journal(self) -> None:
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def _empty_journal(self) -> None:
        """On return, nothing in the journal counts: the logs have it all. One that cannot be written is removed."""
        self.begin_journal()
        try:
            if self.journal is not None:
                self.journal.begin_session()
        except OSError as error:
            logger.warning("%s in %s cannot be written, and is removed: %s", JOURNAL_FILE, self.path, error)
            remove_if_there(self.files, join(self.path, JOURNAL_FILE))

    def _leave_clean_marker(self) -> None:
        try:
            self._empty_journal()
            leave_clean_marker(self.files, self.path)
        except OSError as error:
            raise StorageError(f"the clean stop of {self.path} could not be noted", error) from error
