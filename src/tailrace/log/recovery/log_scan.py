"""Recovery's pass 4: restores what only the journal has, and scans every batch behind the recovery point."""

import logging

from tailrace.log.disk.interface import join
from tailrace.log.files.index import TransactionIndex
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.layout.damage import DamagedRange, missing_file, overlap
from tailrace.log.layout.names import FLUSH_FAILED
from tailrace.log.recovery.epoch_check import corrected_epochs, epochs_of, sound_but_for_its_epoch
from tailrace.log.recovery.segment_walk import SegmentWalk
from tailrace.log.recovery.state import LostTail, RecoveryState
from tailrace.log.scan.restore import JournaledLog, restore
from tailrace.log.scan.scan import FoundBatch, ScanRange
from tailrace.log.segment.segment import Segment, number_of_segment_at
from tailrace.log.segment.tail import due_end, ends_the_log, may_be_unflushed
from tailrace.log.state.producer_state import ProducerState
from tailrace.log.state.replay import replay_batch, replay_segments
from tailrace.records.batch import LENGTH_END, NO_PRODUCER, BatchHeader

logger = logging.getLogger("tailrace.log.recovery")


class LogScan(RecoveryState):
    """The scan, as a part of `Recovery`."""

    def _pass_4_scan(self, producers_from: int) -> LostTail | None:
        """Rebuilds indexes, epochs and producers up to the end of the log. Returns the bytes behind that end, which
        must be truncated, if there are any.
        """
        self._forget_what_was_not_flushed()
        if self._lacks_its_first_segment():
            return LostTail(0, 0, "its first segment is missing")
        self._end = producers_from
        first = max(0, number_of_segment_at(self._segments, producers_from))
        self._restore(first, producers_from)
        if not self._epochs_are_known:
            self._rebuild_epochs()
        tail = self._scan_segments(first, producers_from)
        if tail is None:
            self._go_on_behind_what_is_lost()
        return tail

    def _scan_segments(self, first: int, producers_from: int) -> LostTail | None:
        """Scans the segments from number `first` on."""
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            if number > first and segment.base_offset != self._end and self._ends_before(segment, number):
                last = self._segments[number - 1]
                return LostTail(number - 1, last.size, "bytes are missing between two segments")
            tail = self._scan_segment(segment, number, producers_from)
            if tail is not None:
                return tail
        return None

    def _journaled_here(self) -> JournaledLog | None:
        return self._journaled.get((self.place.name.encode(), self._topic_id or b""))

    def _go_on_with_the_journal(self, producers_from: int) -> None:
        """Appends to a new segment the batches that the journal has behind the end of the log. They were acknowledged,
        and so was everything before them: offsets in between are lost.
        """
        journaled = self._journaled_here()
        for base_offset, data in journaled.runs_from(self._end) if journaled else ():
            if self._segments[-1].base_offset != base_offset:
                self._go_on_at(base_offset)
            segment = self._segments[-1] = self._segment(base_offset, len(data))
            segment.log.write_at(0, data)
            self._scan_segment(segment, len(self._segments) - 1, producers_from)

    def _restore(self, first: int, offset: int) -> None:
        """Restores the segments from number `first` on, as far as the journal has batches that they lack."""
        journaled = self._journaled_here()
        if journaled is None:
            return
        for number, segment in enumerate(self._segments[first:], first):
            derived, position = segment.derived_files.load_before(segment.size, max(offset, segment.base_offset))
            restored = ScanRange(
                segment.log,
                position,
                segment.size,
                derived.next_offset,
                gaps=derived.may_have_gaps,
                epochs=self.known_epochs,
            )
            size = restore(journaled, restored, segment.base_offset)
            if size != segment.size:
                self._segments[number] = self._segment(segment.base_offset, size)
                segment.close()

    def _forget_what_was_not_flushed(self) -> None:
        """Drops the page cache of the log after a failed flush: it may hold bytes that the disk does not have."""
        if self.files.exists(join(self.directory, FLUSH_FAILED)):
            for segment in self._segments:
                segment.log.forget_cached()

    def _lacks_its_first_segment(self) -> bool:
        """Returns whether the log ends at its start, because its first file never reached the disk."""
        first = self._segments[0]
        if first.base_offset <= self._start_offset:
            return False
        if self._start_offset < self._unflushed_from:
            self._missing(missing_file(self._start_offset, first.base_offset))
            return False
        self._end = self._start_offset
        self._segments.insert(0, self._segment(self._start_offset, 0))
        self._segments[0].create()
        self._producers = ProducerState()
        return True

    def _ends_before(self, segment: Segment, number: int) -> bool:
        """Handles bytes that are missing before this segment. Returns whether the log ends there."""
        missing_from = self._end
        if missing_from > segment.base_offset:
            self._damaged(segment, overlap(segment.name, segment.base_offset, missing_from))
            return False
        last = self._segments[number - 1]
        due = due_end(last.derived(), segment.base_offset, self.recorded_gaps)
        if missing_from >= due:
            return False
        if may_be_unflushed(missing_from, last, self._unflushed_from):
            return True
        self._missing(missing_file(missing_from, due))
        return False

    def _scan_segment(self, segment: Segment, number: int, producers_from: int) -> LostTail | None:
        """Scans one segment, from where its files end. Returns what lies behind the end of the log, if that is in this
        segment.
        """
        walked = SegmentWalk(self, segment, number, producers_from)
        items = iter(walked)
        while (item := next(items, None)) is not None:
            if isinstance(item, FoundBatch):
                walked.found(item)
                continue
            sound = self._of_another_epoch(segment, item)
            if sound is not None and self._epochs_are_wrong():
                items = walked.again_from(item.position, item.first_offset)
                continue
            if sound is not None:  # the only such batch: its epoch may be corrupt, but it was written whole
                item = item._replace(last_offset=max(item.last_offset, sound.last_offset))
            if sound is None and self._ends_the_log(item, number):
                walked.adopt()
                self._end = item.first_offset
                return LostTail(number, item.position, item.reason)
            walked.damaged(item)
            self._damaged(segment, item)
        walked.adopt()
        self._end = walked.derived.next_offset
        return None

    def _of_another_epoch(self, segment: Segment, damage: DamagedRange) -> BatchHeader | None:
        """Returns the header of the batch at this damage, if nothing but its leader epoch is wrong."""
        if self.known_epochs is None:
            return None
        return sound_but_for_its_epoch(segment, damage, self.base_offset_after(segment))

    def _epochs_are_wrong(self) -> bool:
        """Returns whether the checkpoint of the epochs is wrong, rather than a batch that contradicts it. If so, on
        return it is rebuilt from all batches.
        """
        if self._epochs_are_judged:
            return False
        self._epochs_are_judged = True
        corrected = corrected_epochs(self._epochs, self._segments)
        if corrected is None:
            return False
        logger.warning("%s in %s contradicts the log: it is rebuilt from the log", EPOCHS_FILE, self.directory)
        self._replace_epochs(corrected)
        return True

    def _rebuild_epochs(self) -> None:
        self._replace_epochs(epochs_of(self._segments))

    def _replace_epochs(self, epochs: LeaderEpochs) -> None:
        self._epochs.replace(epochs)
        self._epochs_are_known = self._epochs_are_judged = self._epochs_are_rebuilt = True

    def replay(self, item: FoundBatch, transactions: TransactionIndex) -> None:
        """Applies a batch behind the last snapshot to the producers."""
        header, report = item.header, self.report
        report.scanned_batches += 1
        report.scanned_bytes += LENGTH_END + header.length
        if header.producer_id != NO_PRODUCER:
            replay_batch(item, self._producers, transactions)

    def aborted_before(self, segment: Segment, offset: int) -> TransactionIndex:
        """Returns the transactions of a segment that were aborted before the scan: from its file or, if that cannot be
        trusted, from the batches.
        """
        known = segment.derived_files.load_transactions(segment.size, offset)
        if known is None:
            _, known = replay_segments(self.files, self.directory, self._segments, offset, segment)
        known.keep_before(offset)
        return known

    def base_offset_after(self, segment: Segment) -> int | None:
        return self.base_offset_of(self._segments.index(segment) + 1)

    def base_offset_of(self, number: int) -> int | None:
        return self._segments[number].base_offset if number < len(self._segments) else None

    def end_offset_of(self, following: int | None) -> int | None:
        """Returns the end offset of a segment that is followed by this one, if known before it is read."""
        return self.place.recovery_point if following is None else following

    def _ends_the_log(self, damage: DamagedRange, number: int) -> bool:
        follower = self._segments[number + 1] if number + 1 < len(self._segments) else None
        return ends_the_log(damage, self._segments[number], follower, self._unflushed_from)

    def _go_on_behind_what_is_lost(self) -> None:
        """Begins a new segment behind flushed records that are lost, and behind bad bytes at the end: the offsets of
        those are not reused.
        """
        last, end = self._segments[-1], max(self._end, self.place.recovery_point or 0)
        if not self._start_is_doubtful:
            end = max(end, self._start_offset)
        if self._end < end or any(known.length and known.end == last.size for known in last.checks.damage):
            self._go_on_at(end)
