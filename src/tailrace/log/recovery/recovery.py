"""Recovery: opens a log after a stop or a crash.

    pass 1  sweep       completes or undoes a compaction; removes temporary files, and indexes without a log
    pass 2  list        finds the segments by name; removes those wholly below the start offset
    pass 3  load        topic id, leader epochs and the newest usable snapshot of the producers
    pass 4  restore     writes what only the journal has back to the log (`log/scan/restore`)
            scan        reads every batch behind the recovery point; rebuilds indexes, epochs and producers
    pass 5  truncate    ends the log where a write never reached the disk; keeps the bytes behind it aside
    pass 6  sync        syncs what is kept
            start       corrects a start offset behind the end: the log begins with its first segment
    pass 7  epoch       begins a new epoch after an unclean stop, so that clients can tell old records from new ones

After a clean stop passes 4 to 7 have nothing to do, and no data is read.

**Lost write or damage.** Everything before the recovery point was flushed: bad bytes there are damage, and stay. Behind
it, a power cut may have kept any part of what was not flushed. A hole of zeros, missing bytes, or a bad batch that is
followed by no valid one ends the log: no flush can have covered it, since a flush covers everything before it. Any
other bad batch, with valid ones after it, is damage, too: it is reported and never served, unlike the batches around
it.

**Checkpoints are hints.** Checkpoints that contradict the batches are rebuilt from them: leader epochs that two batches
contradict, a start offset behind the end. A recovery point behind the end means that flushed records are lost: they are
reported, and their offsets are not reused.
"""

import logging
from functools import partial

from tailrace.log.disk.interface import Files, join, read_whole, remove_if_there, replace_whole
from tailrace.log.files.checkpoints import START_OFFSETS, CorruptCheckpoint
from tailrace.log.files.directory_state import PartitionDirectory
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.files.partition_metadata import read_topic_id
from tailrace.log.files.recorded_gaps import FILE_NAME as GAPS_FILE
from tailrace.log.files.recorded_gaps import CorruptGaps, RecordedGap, read_gaps
from tailrace.log.files.swap_file import finish_swaps
from tailrace.log.jobs import NO_ROOM
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import SegmentsMissing
from tailrace.log.layout.names import FLUSH_FAILED, LOG, PARTITION_METADATA, is_leftover, parse_numbered
from tailrace.log.layout.offsets import OffsetBounds
from tailrace.log.log import Log
from tailrace.log.recovery.log_scan import LogScan
from tailrace.log.recovery.state import NO_SEGMENT, LostTail, RecoveryReport, Truncation
from tailrace.log.scan.restore import Journaled
from tailrace.log.segment.derived_cache import DerivedCache
from tailrace.log.segment.preallocation import give_back
from tailrace.log.segment.segment import Segment
from tailrace.log.segment.truncation import truncate_and_keep
from tailrace.log.state.replay import load_snapshot, remove_snapshots

logger = logging.getLogger("tailrace.log.recovery")


def open_log(
    files: Files,
    directory: str,
    config: LogConfig,
    *,
    clean: bool = False,
    recovery_point: int | None = None,
    start_offset: int | None = None,
    leader_epoch: int = 0,
    cache: DerivedCache | None = None,
) -> tuple[Log, RecoveryReport]:
    """Opens the log in `directory`, which is created if needed.

    `clean` says whether the last stop was clean. `recovery_point` and `start_offset` are the last ones on disk, None if
    unknown: in a directory that is not ours. `leader_epoch` is the minimum for later appends.
    """
    place = PartitionDirectory(directory, clean=clean, recovery_point=recovery_point, start_offset=start_offset)
    return recover(files, place, config, leader_epoch=leader_epoch, cache=cache)


def recover(
    files: Files,
    place: PartitionDirectory,
    config: LogConfig,
    *,
    leader_epoch: int = 0,
    cache: DerivedCache | None = None,
    journaled: Journaled | None = None,
) -> tuple[Log, RecoveryReport]:
    """Recovers the log at `place`, with the batches that the journal has of it (`journaled`). Raises SegmentsMissing if
    a checkpoint names the log but it has no segment, or if an internal topic's log lacks flushed records; and OSError
    if it cannot be read.
    """
    recovery = Recovery(files, place, config, cache or DerivedCache(), journaled or {})
    try:
        return recovery.run(leader_epoch), recovery.report
    except BaseException:
        recovery.let_go()
        raise


class Recovery(LogScan):
    """One recovery. `run` has the passes in order."""

    def run(self, leader_epoch: int) -> Log:
        if not self.files.exists(self.directory):
            self.files.make_directory(self.directory)
        names = self._pass_1_sweep()
        self._pass_2_list(names)
        self._topic_id = self._read_topic_id() if PARTITION_METADATA in names else None
        self.recorded_gaps = self._recorded_gaps() if GAPS_FILE in names else ()
        producers_from = self._pass_3_load()
        is_known = self._is_known_without_reading(producers_from)
        if not is_known:
            tail = self._pass_4_scan(producers_from)
            if tail is not None:
                self._pass_5_truncate(tail)
            self._go_on_with_the_journal(producers_from)
        self._settle_start()
        if not is_known:
            self._pass_6_sync(producers_from)
        self._pass_7_epoch(leader_epoch)
        return self._log()

    def _pass_1_sweep(self) -> dict[str, int]:
        """Cleans up the directory. Returns its files, with their sizes; log files are never removed here."""
        names = self.files.files_in(self.directory)
        if finish_swaps(self.files, self.directory, names):
            names = self.files.files_in(self.directory)
        for name in names:
            if is_leftover(name, names):
                self.files.remove(join(self.directory, name))
        return names

    def _pass_2_list(self, names: dict[str, int]) -> None:
        found = []
        for name, size in names.items():
            parsed = parse_numbered(name)
            if parsed is not None and parsed[1] == LOG:
                found.append((parsed[0], size))
        if not found and self.place.is_named:
            raise SegmentsMissing(NO_SEGMENT)
        self._segments = [self._segment(base_offset, size) for base_offset, size in sorted(found)]
        if not found:
            self._segments = [self._first_segment()]
        elif self._start_offset > max(self._segments[-1].base_offset, self.place.recovery_point or 0):
            self._start_is_doubtful = True  # until the end of the log is known: nothing is deleted before
        else:
            self._drop_leftovers()
        if self.place.start_offset is None:
            self._start_offset = max(self._start_offset, self._segments[0].base_offset)

    def _drop_leftovers(self) -> None:
        """Removes the segments that lie wholly before the start of the log."""
        while len(self._segments) > 1 and self._segments[1].base_offset <= self._start_offset:
            self._segments.pop(0).remove()

    def _settle_start(self) -> None:
        """Corrects a start offset behind the end: the log then begins with its first segment. After a crash, the
        offsets up to that start offset are not reused: their records may have existed, and be lost.
        """
        if not self._start_is_doubtful:
            return
        claimed, end = self._start_offset, max(self._end, self.place.recovery_point or 0)
        if claimed <= end:
            self._drop_leftovers()
            return
        self._start_offset = self._segments[0].base_offset
        logger.warning(
            "%s has a start offset for %s of %d, but it ends at %d: it begins at %d, with its first segment",
            START_OFFSETS,
            self.directory,
            claimed,
            end,
            self._start_offset,
        )
        if self.place.may_have_reached(claimed, end):
            self._go_on_at(claimed)

    def _first_segment(self) -> Segment:
        """Returns the first segment where there is no file: the log is new, or everything in it is lost, and its
        offsets are not reused.
        """
        end = max(self._start_offset, self.place.recovery_point or 0)
        self._is_new = end == self._start_offset
        segment = self._segment(end, 0)
        segment.create()
        return segment

    def _read_topic_id(self) -> bytes | None:
        """Returns the topic id. An unreadable file does not fail the start: the caller knows the topics, and can assign
        the id again.
        """
        try:
            return read_topic_id(self.files, self.directory)
        except (CorruptCheckpoint, OSError) as error:
            logger.warning("cannot read %s in %s: %s", PARTITION_METADATA, self.directory, error)
            return None

    def _recorded_gaps(self) -> tuple[RecordedGap, ...]:
        try:
            return read_gaps(self.files, self.directory)
        except (CorruptGaps, OSError) as error:
            logger.warning("cannot read %s in %s: %s", GAPS_FILE, self.directory, error)
            return ()

    def _pass_3_load(self) -> int:
        """Loads the leader epochs, unless they must be found by a full scan. Returns the offset at which the producers
        are known.
        """
        try:
            data = read_whole(self.files, join(self.directory, EPOCHS_FILE))
            if data is not None:
                self._epochs.replace(LeaderEpochs.decode(data))
                self._epochs_are_known = True
        except (CorruptCheckpoint, OSError) as error:
            logger.warning("cannot read %s in %s: %s. It is rebuilt from the log", EPOCHS_FILE, self.directory, error)
        self._epochs_are_rebuilt = not self._epochs_are_known
        first = self._segments[0].base_offset
        at_most = self._unflushed_from if self._epochs_are_known else first
        producers_from, self._producers = load_snapshot(self.files, self.directory, at_most, first)
        return producers_from

    def _is_known_without_reading(self, producers_from: int) -> bool:
        """Returns whether no scan is needed: after a clean stop, the checksum file of the active segment has
        everything.
        """
        if self._is_new:
            self._end = self._segments[0].base_offset
            return True
        active = self._segments[-1]
        checksums = active.derived_files.read_checksums()
        if not self.place.clean or not self._epochs_are_known or checksums is None or checksums.log_size != active.size:
            return False
        self._end = checksums.next_offset
        is_all_there = self._end >= (self.place.recovery_point or 0)  # else later segments are lost
        return is_all_there and producers_from == self._end and active.transactions() is not None

    def _save_transactions(self, segment: Segment) -> None:
        """Saves the aborted transactions again, without those behind the truncation point."""
        transactions = segment.transactions()
        if transactions is not None:
            transactions.keep_before(self._end)
            segment.derived_files.save_transactions(transactions)

    def _pass_5_truncate(self, tail: LostTail) -> None:
        """Ends the log where the tail begins, and keeps the bytes of the tail beside it."""
        number, position, reason = tail
        segment, later = self._segments[number], self._segments[number + 1 :]
        length = segment.size - position + sum(other.size for other in later)
        truncate = partial(truncate_and_keep, self.files, self.directory, segment, position, segment.size, later)
        try:
            kept_as = truncate()
        except OSError as error:
            if later or error.errno not in NO_ROOM:
                raise
            kept_as = ()
            self._truncation_due = truncate
            segment.forget_behind(position)
        self._segments = self._segments[: number + 1]
        self._save_transactions(segment)
        self.report.truncation = Truncation(segment.name, position, length, self._end, reason, kept_as)

    # Passes 6 and 7

    def _pass_6_sync(self, producers_from: int) -> None:
        """Syncs what is kept, and removes the snapshots that do not match this log."""
        if not self.place.clean:
            for segment in self._segments:
                if not segment.is_saved:
                    give_back(segment.log)
                    segment.log.sync()
            if self._topic_id is not None:  # the previous process may have been killed before it synced it
                self._sync_topic_id()
            remove_snapshots(self.files, self.directory, lambda offset: offset > producers_from)
        remove_if_there(self.files, join(self.directory, FLUSH_FAILED))
        self.files.sync_directory(self.directory)

    def _sync_topic_id(self) -> None:
        file = self.files.open(join(self.directory, PARTITION_METADATA))
        try:
            file.sync()
        finally:
            file.close()

    def _pass_7_epoch(self, leader_epoch: int) -> None:
        least = self._epochs.latest + (0 if self.place.clean or self._is_new else 1)
        self._epochs.truncate(self._end + 1)
        changed = self._epochs.assign(max(leader_epoch, least), self._end)
        if (changed or self._epochs_are_rebuilt) and not self._is_new:
            try:
                replace_whole(self.files, join(self.directory, EPOCHS_FILE), self._epochs.encode())
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._epochs_are_due = True
        self.report.leader_epoch = self._epochs.latest

    def _log(self) -> Log:
        self._segments[-1].open_for_append()
        log = Log(
            self.files,
            self.directory,
            self.config,
            segments=tuple(self._segments),
            bounds=OffsetBounds(self._start_offset, self._end, self._end),
            epochs=self._epochs,
            producers=self._producers,
            cache=self._cache,
            topic_id=self._topic_id,
            # An offset beyond the end belongs to another log.
            compacted_to=self.place.compacted_to if self.place.compacted_to <= self._end else 0,
            recorded_gaps=self.recorded_gaps,
        )
        for bad in self.report.damage:
            if not bad.length and bad not in log.damage:
                log.note_missing(bad)
        if self._truncation_due is not None:
            log.before_append(self._truncation_due)
        if self._epochs_are_due:
            log.save_epochs_before_append()
        if self._is_new:
            log.note_creation()
            log.unflushed.topic_id = self._topic_id is not None
        elif not self.place.clean:
            # It rises with the first checkpoint, which saves the results of the scan.
            log.recovery_point = log.recovery_point_on_disk = min(self._end, self.place.recovery_point or 0)
        return log
