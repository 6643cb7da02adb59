"""Opening a log: what a stop or a crash left behind, made into a log again.

    pass 1  sweep       what compaction had begun is carried out or undone; temporary files go, and derived files
                        whose log is gone
    pass 2  list        the segments by name; those wholly below the start offset are leftovers of a deletion
    pass 3  remember    topic id, leader epochs and the newest usable snapshot of the producers
    pass 4  restore     what only the journal has is written where it belongs (`log/restoring`)
            scan        every batch behind the recovery point: indexes, epochs and producers are built from it
    pass 5  cut         the log ends where a write never reached the disk; the bytes behind are kept aside
    pass 6  sync        what is kept is on disk before anyone counts on it
    start               a start offset behind the end is wrong: the log begins with its first segment
    pass 7  epoch       after an unclean stop it rises, so that clients can tell old records from new

After a clean stop passes 4 to 7 have nothing to do, and no data is read.

**Cut or damage.** Everything before the recovery point was flushed: bad bytes there are damage, and stay. Behind
it, a power cut may have kept any part of what was not flushed. A hole of zeros, missing bytes, or a bad batch that
no valid one follows ends the log: no flush can have covered it, since a flush covers all before it. Any other bad
batch, with valid ones after it, is damage too: named, never served, and everything around it is.

**Checkpoints are hints.** What the batches contradict is rebuilt from them: leader epochs that two of them do not have,
a start behind the end. A recovery point behind the end means that flushed records are gone: they are named, and their
offsets are not given again.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tailrace.log.blocks import give_back
from tailrace.log.checkpoints import START_OFFSETS, CorruptCheckpoint
from tailrace.log.compaction.swapping import finish_swaps
from tailrace.log.config import LogConfig
from tailrace.log.cutting import cut_off
from tailrace.log.damage import DamagedRange, missing_file, overlap
from tailrace.log.directory_state import Place
from tailrace.log.epoch_check import are_contradicted, epochs_of, sound_but_for_its_epoch
from tailrace.log.epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.epochs import LeaderEpochs
from tailrace.log.errors import SegmentsMissing
from tailrace.log.files import Files, join, read_whole, remove_if_there, replace_whole
from tailrace.log.jobs import NO_ROOM
from tailrace.log.log import Log
from tailrace.log.names import FLUSH_FAILED, INTERNAL_TOPICS, LOG, PARTITION_METADATA, is_leftover, parse_numbered
from tailrace.log.offsets import OffsetBounds
from tailrace.log.partition_metadata import read_topic_id
from tailrace.log.producer_state import ProducerState
from tailrace.log.recorded_gaps import FILE_NAME as GAPS_FILE
from tailrace.log.recorded_gaps import CorruptGaps, RecordedGap, read_gaps
from tailrace.log.replay import load_snapshot, remove_snapshots, replay_batch, replay_segments
from tailrace.log.restoring import Journaled, JournaledLog, restore
from tailrace.log.scan import FoundBatch
from tailrace.log.segment import DerivedCache, Segment, number_of_segment_at
from tailrace.log.segment_walk import SegmentWalk
from tailrace.log.tail import due_end, ends_the_log, may_be_unflushed
from tailrace.log.transaction_index import TransactionIndex
from tailrace.records.batch import LENGTH_END, NO_PRODUCER, BatchHeader

NO_SEGMENT = "its directory has no segment, and a checkpoint names it"

logger = logging.getLogger(__name__)


class Cut(NamedTuple):
    """Where a log was ended by recovery, and where the bytes that stood behind are kept."""

    file: str
    position: int
    length: int
    first_offset: int
    reason: str
    kept_as: tuple[str, ...]


class RecoveryReport:
    """What a start has found in a log, and done to it."""

    __slots__ = ("cut", "damage", "leader_epoch", "scanned_batches", "scanned_bytes", "was_clean")

    def __init__(self, was_clean: bool) -> None:
        self.was_clean = was_clean
        self.scanned_batches = 0
        self.scanned_bytes = 0
        self.cut: Cut | None = None
        self.damage: list[DamagedRange] = []
        self.leader_epoch = 0


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
    """The log in `directory`, which is made where there is none.

    `clean` says that the last stop was clean. `recovery_point` and `start_offset` are the last ones on disk, None
    where none is known: in a directory of somebody else's. `leader_epoch` is the least that the log may have from
    now on.
    """
    place = Place(directory, clean=clean, recovery_point=recovery_point, start_offset=start_offset)
    return recover(files, place, config, leader_epoch=leader_epoch, cache=cache)


def recover(
    files: Files,
    place: Place,
    config: LogConfig,
    *,
    leader_epoch: int = 0,
    cache: DerivedCache | None = None,
    journaled: Journaled | None = None,
) -> tuple[Log, RecoveryReport]:
    """The same for a log whose data directory says what `place` says, and whose journal has what is `journaled`. Raises
    SegmentsMissing where a checkpoint names the log and it has no segment, or one of the broker's own lacks flushed
    records, and OSError where it cannot be read.
    """
    recovery = Recovery(files, place, config, cache or DerivedCache(), journaled or {})
    try:
        return recovery.run(leader_epoch), recovery.report
    except BaseException:
        recovery.let_go()
        raise


class Recovery:
    def __init__(
        self, files: Files, place: Place, config: LogConfig, cache: DerivedCache, journaled: Journaled
    ) -> None:
        self._journaled = journaled
        self._topic_id: bytes | None = None
        self.files = files
        self.place = place
        self.directory = place.directory
        self.config = config
        self.report = RecoveryReport(was_clean=place.clean)
        self._cache = cache
        self._start_offset = place.start_offset or 0
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._epochs_are_known = False
        self._epochs_are_due = False  # there was no room to save them
        self._cut_due: Callable[[], object] | None = None  # nor to keep aside what is to be cut off
        self._producers = ProducerState()
        self._end = self._start_offset
        self._is_new = False
        self._start_is_doubtful = False
        self._epochs_are_judged = False
        self._epochs_are_rebuilt = False
        self.recorded_gaps: tuple[RecordedGap, ...] = ()

    def run(self, leader_epoch: int) -> Log:
        if not self.files.exists(self.directory):
            self.files.make_directory(self.directory)
        names = self._pass_1_sweep()
        self._pass_2_list(names)
        self._topic_id = self._read_topic_id() if PARTITION_METADATA in names else None
        self.recorded_gaps = self._recorded_gaps() if GAPS_FILE in names else ()
        producers_from = self._pass_3_remember()
        is_known = self._is_known_without_reading(producers_from)
        if not is_known:
            self._pass_4_scan(producers_from)
        self._settle_start()
        if not is_known:
            self._pass_6_sync(producers_from)
        self._pass_7_epoch(leader_epoch)
        return self._log()

    def let_go(self) -> None:
        for segment in self._segments:
            segment.close()

    def _pass_1_sweep(self) -> dict[str, int]:
        """What was in the directory, with sizes; logs are never swept."""
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
            self._start_is_doubtful = True  # until it is known where the log ends: nothing is deleted before
        else:
            self._drop_leftovers()
        if self.place.start_offset is None:
            self._start_offset = max(self._start_offset, self._segments[0].base_offset)

    def _drop_leftovers(self) -> None:
        """Removes the segments that lie wholly before the start of the log."""
        while len(self._segments) > 1 and self._segments[1].base_offset <= self._start_offset:
            self._segments.pop(0).remove()

    def _settle_start(self) -> None:
        """A log cannot begin behind its end. Where the checkpoint says so, the log begins with its first segment. After
        a crash, the offsets up to there are not given again: they may have been, and be lost.
        """
        if not self._start_is_doubtful:
            return
        claimed, end = self._start_offset, max(self._end, self.place.recovery_point or 0)
        if claimed <= end:
            self._drop_leftovers()
            return
        self._start_offset = self._segments[0].base_offset
        logger.warning(
            "%s says that %s begins at offset %d, and it ends at %d: it begins at %d, with its first segment",
            START_OFFSETS,
            self.directory,
            claimed,
            end,
            self._start_offset,
        )
        if self.place.may_have_reached(claimed, end):
            self._go_on_at(claimed)

    def _first_segment(self) -> Segment:
        """There is no file: the log is new, or else everything in it is lost, and its offsets are not given again."""
        end = max(self._start_offset, self.place.recovery_point or 0)
        self._is_new = end == self._start_offset
        segment = self._segment(end, 0)
        segment.create()
        return segment

    def _segment(self, base_offset: int, size: int) -> Segment:
        return Segment(
            self.files,
            self.directory,
            base_offset,
            size,
            epochs=self._epochs,
            cache=self._cache,
            interval_bytes=self.config.index_interval_bytes,
        )

    def _read_topic_id(self) -> bytes | None:
        """Not worth a failed start: whoever knows the topics can tell the log again."""
        try:
            return read_topic_id(self.files, self.directory)
        except (CorruptCheckpoint, OSError) as error:
            logger.warning("%s in %s cannot be read: %s", PARTITION_METADATA, self.directory, error)
            return None

    def _recorded_gaps(self) -> tuple[RecordedGap, ...]:
        try:
            return read_gaps(self.files, self.directory)
        except (CorruptGaps, OSError) as error:
            logger.warning("%s in %s cannot be read: %s", GAPS_FILE, self.directory, error)
            return ()

    def _pass_3_remember(self) -> int:
        """Afterwards the epochs are known, or will be found by a scan of all; returns the offset the producers are
        known at.
        """
        try:
            data = read_whole(self.files, join(self.directory, EPOCHS_FILE))
            if data is not None:
                self._epochs.replace(LeaderEpochs.decode(data))
                self._epochs_are_known = True
        except (CorruptCheckpoint, OSError) as error:
            logger.warning("%s in %s cannot be read, and is rebuilt: %s", EPOCHS_FILE, self.directory, error)
        self._epochs_are_rebuilt = not self._epochs_are_known
        first = self._segments[0].base_offset
        at_most = self._cut_point if self._epochs_are_known else first
        producers_from, self._producers = load_snapshot(self.files, self.directory, at_most, first)
        return producers_from

    @property
    def _cut_point(self) -> float:
        return self.place.cut_point(0 if self._start_is_doubtful else self._start_offset)

    def _is_known_without_reading(self, producers_from: int) -> bool:
        """After a clean stop the sums of the active segment say all there is to know."""
        if self._is_new:
            self._end = self._segments[0].base_offset
            return True
        active = self._segments[-1]
        sums = active.derived_files.read_sums()
        if not self.place.clean or not self._epochs_are_known or sums is None or sums.log_size != active.size:
            return False
        self._end = sums.next_offset
        is_all_there = self._end >= (self.place.recovery_point or 0)  # else segments behind this one are lost
        return is_all_there and producers_from == self._end and active.transactions() is not None

    # Pass 4

    def _pass_4_scan(self, producers_from: int) -> None:
        self._forget_what_was_not_flushed()
        if self._lacks_its_first_segment():
            return
        self._end = producers_from
        first = max(0, number_of_segment_at(self._segments, producers_from))
        self._restore(first, producers_from)
        if not self._epochs_are_known:
            self._rebuild_epochs()
        if self._scan_segments(first, producers_from):
            self._go_on_behind_what_is_lost()
        self._go_on_with_the_journal(producers_from)

    def _scan_segments(self, first: int, producers_from: int) -> bool:
        """From this one on. False where the log was ended."""
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            if number > first and segment.base_offset != self._end and self._ends_before(segment, number):
                return False
            if not self._scan_segment(segment, number, producers_from):
                return False
        return True

    def _journaled_here(self) -> JournaledLog | None:
        return self._journaled.get((self.place.name.encode(), self._topic_id or b""))

    def _go_on_with_the_journal(self, producers_from: int) -> None:
        """Batches that the journal has behind the end of the log were acknowledged, and so was all before them: what is
        not there is lost, and they get a new segment.
        """
        journaled = self._journaled_here()
        for base_offset, data in journaled.runs_from(self._end) if journaled else ():
            if self._segments[-1].base_offset != base_offset:
                self._go_on_at(base_offset)
            segment = self._segments[-1] = self._segment(base_offset, len(data))
            segment.log.write_at(0, data)
            self._scan_segment(segment, len(self._segments) - 1, producers_from)

    def _restore(self, first: int, offset: int) -> None:
        """Afterwards the segments from this one on, and this offset, have what the journal has of them."""
        journaled = self._journaled_here()
        if journaled is None:
            return
        for number, segment in enumerate(self._segments[first:], first):
            derived, position = segment.derived_files.load_before(segment.size, max(offset, segment.base_offset))
            size = restore(
                journaled,
                segment.log,
                segment.size,
                segment=segment.base_offset,
                position=position,
                offset=derived.next_offset,
                gaps=derived.may_have_gaps,
                epochs=self.known_epochs,
            )
            if size != segment.size:
                self._segments[number] = self._segment(segment.base_offset, size)
                segment.close()

    def _forget_what_was_not_flushed(self) -> None:
        """After a flush that failed, the system may remember bytes that the disk does not have: they are read anew."""
        if self.files.exists(join(self.directory, FLUSH_FAILED)):
            for segment in self._segments:
                segment.log.forget_cached()

    def _lacks_its_first_segment(self) -> bool:
        """Says whether the log ends at its very start, because its first file never reached the disk."""
        first = self._segments[0]
        if first.base_offset <= self._start_offset:
            return False
        if self._start_offset < self._cut_point:
            self._missing(missing_file(self._start_offset, first.base_offset))
            return False
        self._end = self._start_offset
        self._segments.insert(0, self._segment(self._start_offset, 0))
        self._segments[0].create()
        self._producers = ProducerState()
        self._pass_5_cut(0, 0, "its first segment is missing")
        return True

    def _ends_before(self, segment: Segment, number: int) -> bool:
        """Between the last segment and this one something is missing. Says whether the log was ended there."""
        missing_from = self._end
        if missing_from > segment.base_offset:
            self._damaged(segment, overlap(segment.name, segment.base_offset, missing_from))
            return False
        last = self._segments[number - 1]
        due = due_end(last.derived(), segment.base_offset, self.recorded_gaps)
        if missing_from >= due:
            return False
        if may_be_unflushed(missing_from, last, self._cut_point):
            self._pass_5_cut(number - 1, last.size, "bytes are missing between two segments")
            return True
        self._missing(missing_file(missing_from, due))
        return False

    def _scan_segment(self, segment: Segment, number: int, producers_from: int) -> bool:
        """Walks one segment from where its files know nothing. False where the log ends in it."""
        walked = SegmentWalk(self, segment, number, producers_from)
        items = iter(walked)
        while (item := next(items, None)) is not None:
            if isinstance(item, FoundBatch):
                walked.found(item)
                continue
            sound = self._of_another_epoch(segment, item)
            if sound is not None and self._epochs_are_wrong(number):
                items = walked.again_from(item.position, item.first_offset)
                continue
            if sound is not None:  # and the only one, so that its epoch may be rotten: but it was written whole
                item = item._replace(last_offset=max(item.last_offset, sound.last_offset))
            if sound is None and self._ends_the_log(item, number):
                walked.adopt()
                self._end = item.first_offset
                self._pass_5_cut(number, item.position, item.reason)
                return False
            else:
                walked.damaged(item)
                self._damaged(segment, item)
        walked.adopt()
        self._end = walked.derived.next_offset
        return True

    def _of_another_epoch(self, segment: Segment, damage: DamagedRange) -> BatchHeader | None:
        """The header of the batch that stands where this damage is, if nothing but its leader epoch is wrong."""
        if self.known_epochs is None:
            return None
        return sound_but_for_its_epoch(segment, damage, self.base_offset_after(segment))

    def _epochs_are_wrong(self, number: int) -> bool:
        """Whether the checkpoint of the epochs, which a batch of this segment contradicts, is wrong rather than that
        batch. If so, on return it is rebuilt from all batches.
        """
        if self._epochs_are_judged:
            return False
        self._epochs_are_judged = True
        if not are_contradicted(self._epochs, [*self._segments[number:], *self._segments[:number]]):
            return False
        logger.warning("%s in %s contradicts the log, and is rebuilt from it", EPOCHS_FILE, self.directory)
        self._rebuild_epochs()
        return True

    def _rebuild_epochs(self) -> None:
        self._epochs.replace(epochs_of(self._segments))
        self._epochs_are_known = self._epochs_are_judged = self._epochs_are_rebuilt = True

    def base_offset_after(self, segment: Segment) -> int | None:
        return self.base_offset_of(self._segments.index(segment) + 1)

    def replay(self, item: FoundBatch, transactions: TransactionIndex) -> None:
        """A batch behind the last snapshot: producers are built from it."""
        header, report = item.header, self.report
        report.scanned_batches += 1
        report.scanned_bytes += LENGTH_END + header.length
        if header.producer_id != NO_PRODUCER:
            replay_batch(item, self._producers, transactions)

    def aborted_before(self, segment: Segment, offset: int) -> TransactionIndex:
        """What was aborted in a segment before the scan: from its file, or if that is not to be trusted, found anew."""
        known = segment.derived_files.load_transactions(segment.size, offset)
        if known is None:
            _, known = replay_segments(self.files, self.directory, self._segments, offset, segment)
        known.keep_before(offset)
        return known

    @property
    def known_epochs(self) -> LeaderEpochs | None:
        return self._epochs if self._epochs_are_known else None

    def base_offset_of(self, number: int) -> int | None:
        return self._segments[number].base_offset if number < len(self._segments) else None

    def end_offset_of(self, following: int | None) -> int | None:
        """Where a segment ends that is followed by this one, as far as that is known before it is read."""
        return self.place.recovery_point if following is None else following

    def _damaged(self, segment: Segment, damage: DamagedRange) -> None:
        segment.checks.report(damage)
        self.report.damage.append(damage)

    def _ends_the_log(self, damage: DamagedRange, number: int) -> bool:
        follower = self._segments[number + 1] if number + 1 < len(self._segments) else None
        return ends_the_log(damage, self._segments[number], follower, self._cut_point)

    def _go_on_behind_what_is_lost(self) -> None:
        """Flushed records that are gone keep their offsets, and bad bytes at the end stay: what comes gets a new
        segment.
        """
        last, end = self._segments[-1], max(self._end, self.place.recovery_point or 0)
        if not self._start_is_doubtful:
            end = max(end, self._start_offset)
        if self._end < end or any(known.length and known.end == last.size for known in last.checks.damage):
            self._go_on_at(end)

    def _missing(self, damage: DamagedRange) -> None:
        """Flushed records are gone. Of the broker's own logs that is not accepted, and nothing may change before: else
        the next start would take for whole what is left.
        """
        if self.place.partition is not None and self.place.partition.topic in INTERNAL_TOPICS:
            raise SegmentsMissing(str(damage))
        self.report.damage.append(damage)

    def _go_on_at(self, end: int) -> None:
        """What comes gets a new segment, there. What lies before it and is not in the log is missing."""
        if self._end < end:
            self._missing(missing_file(self._end, end))
        self._segments.append(self._segment(end, 0))
        self._segments[-1].create()
        self._end = end

    def _save_transactions(self, segment: Segment) -> None:
        """What was aborted behind the cut was not; and the file may name it."""
        transactions = segment.transactions()
        if transactions is not None:
            transactions.keep_before(self._end)
            segment.derived_files.save_transactions(transactions)

    # Pass 5

    def _pass_5_cut(self, number: int, position: int, reason: str) -> None:
        """Afterwards the log ends at `position` of a segment; what stood behind is kept beside it."""
        segment, later = self._segments[number], self._segments[number + 1 :]
        length = segment.size - position + sum(other.size for other in later)
        cut = partial(cut_off, self.files, self.directory, segment, position, segment.size, later)
        try:
            kept_as = cut()
        except OSError as error:
            if later or error.errno not in NO_ROOM:
                raise
            kept_as = ()
            self._cut_due = cut
            segment.forget_behind(position)
        self._segments = self._segments[: number + 1]
        self._save_transactions(segment)
        self.report.cut = Cut(segment.name, position, length, self._end, reason, kept_as)

    # Passes 6 and 7

    def _pass_6_sync(self, producers_from: int) -> None:
        """Afterwards what is kept is on disk, and of the snapshots only those that are of this log as it is now."""
        if not self.place.clean:
            for segment in self._segments:
                if not segment.is_saved:
                    give_back(segment.log)
                    segment.log.sync()
            if self._topic_id is not None:  # the process before may have been killed before it was
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
            # Beyond the end it is another log's.
            compacted_to=self.place.compacted_to if self.place.compacted_to <= self._end else 0,
            recorded_gaps=self.recorded_gaps,
        )
        for bad in self.report.damage:
            if not bad.length and bad not in log.damage:
                log.note_missing(bad)
        if self._cut_due is not None:
            log.before_append(self._cut_due)
        if self._epochs_are_due:
            log.save_epochs_before_append()
        if self._is_new:
            log.note_creation()
            log.unflushed.topic_id = self._topic_id is not None
        elif not self.place.clean:
            # It rises with the first checkpoint: what was found out by the scan is not saved before.
            log.recovery_point = log.recovery_point_on_disk = min(self._end, self.place.recovery_point or 0)
        return log
