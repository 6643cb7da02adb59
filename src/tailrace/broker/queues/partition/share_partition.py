"""One partition of one share group: what its members hold, and what is finished. Pure: no log, no clock, no broker.

A decision (`acknowledge`, `expire_locks`, …) returns what is to be appended to the state log. It changes nothing that
is persisted: only `replay` does, right after the append, and with the same records after a restart. What a member
holds is kept in memory only (`acquire`).

    Available     may be acquired; after the end of the partition, which is where it was acquired up to, all are
    Acquired      a member holds it until its deadline; on disk it is still what it was before
    Acknowledged  finished
    Archiving     given up, and not in the dead-letter topic yet
    Archived      finished, without having been accepted

    event                             from              to                                              persisted
    --------------------------------  ----------------  ----------------------------------------------  ---------
    acquire                           Available         Acquired; the next delivery                     no
    the read for it failed            Acquired          Available; that was no delivery                 no
    ACCEPT                            Acquired by it    Acknowledged                                    yes
    RELEASE                           Acquired by it    Available; at the limit of deliveries given up  yes
    REJECT                            Acquired by it    given up                                        yes
    gap                               Acquired by it    Archived                                        yes
    RENEW                             Acquired by it    Acquired, with a new deadline                   no
    its deadline, its member is gone  Acquired          as RELEASE                                      yes
    the log begins after it           Available         Archived: lost                                  yes
                                      Acquired          stays; when it is released: lost
    its transaction is aborted        Available         Archived                                        yes
    it expires                        Available         given up                                        yes
    its dead letter is written        Archiving         Archived                                        yes

Given up is Archiving where the group has a dead-letter topic, else Archived. A released record waits (is parked) for
the retry delay of its group, and a record may be parked until it is to be delivered. The start of the partition is its
first record that is not finished.

Acquired records count against `locks_max`; parked and finished ones do not, so a record that takes long at the start
of the partition holds up no other. Times are of a clock that never jumps.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from tailrace.broker.core.errors import Refused
from tailrace.broker.queues.partition.acquisition import Acquisition
from tailrace.broker.queues.partition.drafts import Draft
from tailrace.broker.queues.partition.pages import unpack
from tailrace.broker.queues.partition.partition_state import RANGES_MAX, SPAN_MAX, PartitionState
from tailrace.broker.queues.partition.states import (
    NO_DECISION,
    OFFSET_MAX,
    TERMINAL,
    AckBatch,
    AckType,
    Acquired,
    Decision,
    EndReason,
    OffsetRange,
    RecordState,
)
from tailrace.protocol.errors import ErrorCode

PAGES_MAX = 16  # that one read is for
_TYPES = tuple(AckType)
_NUMBERS = frozenset(AckType)
_ARCHIVING_MAX = 10_000  # dead letters that wait to be written: with more, nothing is delivered


class SharePartition(PartitionState):
    """The state, and what is decided on it."""

    # Acquiring

    def next_available(self, now_ms: int) -> OffsetRange | None:
        """Returns where records are that may be acquired; between the first and the last there may be others. It has
        no end (`OFFSET_MAX`) where they are the next ones of the log. None if there is nothing to acquire for now.
        """
        self.unpark(now_ms)
        if self.in_flight >= self.settings.locks_max or self.archiving >= _ARCHIVING_MAX:
            return None
        first, is_growing = self._pages.lowest_free(), self._may_grow > 0
        if first is None:
            return OffsetRange(self.end_offset, OFFSET_MAX) if is_growing else None
        last, is_to_end = self._pages.end_of_free(first, PAGES_MAX)
        return OffsetRange(first, OFFSET_MAX if is_growing and is_to_end else last)

    def available_in(self, first: int, last: int) -> int:
        """Returns how many records of a range may be acquired now, all from the end on included."""
        first, end = max(first, self.start_offset), self.end_offset
        between = self._pages.free_in(first, min(last, end - 1)) if first <= min(last, end - 1) else 0
        return between + max(0, last + 1 - max(first, end))

    def acquire(
        self,
        member_id: str,
        first: int,
        batches: Sequence[OffsetRange],
        *,
        records_max: int,
        now_ms: int,
        lock_ms: int,
        is_strict: bool = False,
        batch_size: int = 0,
    ) -> list[Acquired]:
        """Gives a member what is available from `first` on, which `next_available` has returned, in these batches of
        the log, and in the gaps between them. Takes whole batches, until there are `records_max` records; if
        `is_strict`, never more than that. A range of at least `batch_size` records ends at the end of a batch.

        A record that was delivered often already comes by itself: if it kills its members, it takes no others with it.
        """
        left = min(records_max, self.settings.locks_max - self.in_flight)
        taken = Acquisition(self._pages, left, self.settings.suspect_from)
        known_to = self.keys_known_to
        room = self._may_grow if known_to is None else 0  # `add_keys` has moved the end
        for batch in batches:
            if taken.is_over or taken.left <= 0:
                break
            taken.begin_batch(batch_size)
            end = self.end_offset
            last = min(batch.last, (end if known_to is None else known_to) - 1)
            if first <= last:
                taken.take(first, last, is_strict=is_strict)
            grown = min(batch.last + 1 - end, room)
            if is_strict:
                grown = min(grown, taken.left)
            if grown > 0 and not taken.is_over:
                room -= grown
                self._pages.extend(end + grown)
                taken.take(end, end + grown - 1, is_strict=is_strict)
            first = max(first, batch.last + 1)
        for one in taken.acquired:
            self._leases.grant(member_id, one.first, one.last, now_ms, now_ms + lock_ms)
        return taken.acquired

    def undo_acquire(self, member_id: str, acquired: Iterable[Acquired]) -> None:
        """Takes back what a member has acquired, and was not sent. It does not count as a delivery."""
        for one in acquired:
            for lease in list(self._leases.of(one.first, one.last)):
                if lease.grant.member_id == member_id:
                    self._leases.end(lease.first, lease.last)
                    self._free(lease.first, lease.last)

    # Decisions

    def _draft(self) -> Draft:
        return Draft(self._pages, self.settings, self._log_start)

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], now_ms: int, lock_ms: int) -> Decision:
        """What a member says of records that it has acquired: all of it counts, or nothing. Locks that it renews are
        extended at once. Raises Refused.
        """
        said = list(self._checked(member_id, batches))
        draft = self._draft()
        renewed = 0
        for first, last, kind in said:
            if kind is AckType.RENEW:
                self._leases.renew(first, last, now_ms, lock_ms, self.settings.lock_total_max_ms)
                renewed += last - first + 1
            else:
                draft.acknowledge(first, last, kind)
        return draft.decision(renewed)

    def _checked(self, member_id: str, batches: Sequence[AckBatch]) -> Iterator[tuple[int, int, AckType]]:
        """Yields runs of one type, without those before the start. Raises Refused."""
        before = -1
        for batch in batches:
            _check_form(batch, before)
            before = batch.last
            first = max(batch.first, self.start_offset)
            if first > batch.last:
                continue
            if batch.last >= self.end_offset > self.start_offset:
                raise Refused(ErrorCode.INVALID_REQUEST, f"offset {batch.last} was not acquired yet")
            if not self._leases.are_of(member_id, first, batch.last):
                raise _not_held(first, batch.last)
            for one, other, kind in _runs_of_types(batch, first):
                if kind is AckType.RENEW and not self.settings.is_renewable:
                    raise Refused(ErrorCode.INVALID_RECORD_STATE, "share.renew.acknowledge.enable is false")
                yield one, other, kind

    def release_member(self, member_id: str, ranges_max: int = RANGES_MAX) -> Decision:
        """The member, or its connection, is gone: releases what it holds, or some of it if that is much. To be
        repeated until nothing is left to write.
        """
        return self._release(islice(self._leases.of_member(member_id), ranges_max))

    def expire_locks(self, now_ms: int, ranges_max: int = RANGES_MAX) -> Decision:
        """Releases records whose deadline is over, as `release_member` does."""
        return self._release(islice(self._leases.overdue(now_ms), ranges_max))

    def _release(self, ranges: Iterable[OffsetRange]) -> Decision:
        draft = self._draft()
        for first, last in sorted(ranges):
            draft.acknowledge(first, last, AckType.RELEASE)
        return draft.decision()

    def archive_before(self, log_start: int, ranges_max: int = RANGES_MAX) -> Decision:
        """The log begins at `log_start` now: what members do not hold before it is lost. To be repeated until nothing
        is left to write.
        """
        self._log_start = max(self._log_start, log_start)
        if log_start <= self.start_offset:
            return NO_DECISION
        end = self.end_offset
        if log_start - self.start_offset <= SPAN_MAX:
            ranges = list(islice(self._unheld(self.start_offset, log_start - 1), ranges_max))
        else:  # too far to keep what is held
            ranges = list(islice(self._unfinished(self.start_offset, log_start - 1), ranges_max))
        if len(ranges) < ranges_max and end < log_start:
            ranges.append((end, log_start - 1, 0))
        draft = self._draft()
        for first, last, count in ranges:
            draft.archive(first, last, count, EndReason.LOST)
        return draft.decision()

    def _unfinished(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yields the records of a range that are not finished: first, last, count."""
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        for one, other, value in self._pages.runs(first, last) if first <= last else ():
            state, count = unpack(value)
            if state not in TERMINAL:
                yield one, other, count

    def archive(self, ranges: Iterable[OffsetRange], reason: EndReason) -> Decision:
        """Ends records that no member holds, whether or not they were acquired before. Those that expire are given
        up. The ranges are in order, and begin at the end at the latest.
        """
        draft = self._draft()
        end = self.end_offset
        for first, last in ranges:
            last = min(last, self.start_offset + SPAN_MAX - 1)
            found = list(self._unheld(first, last))
            if last >= end:
                found.append((max(first, end), last, 0))
                end = last + 1
            for one, other, count in found:
                if reason is EndReason.EXPIRED:
                    draft.give_up(one, other, count, reason)
                else:
                    draft.archive(one, other, count, reason)
        return draft.decision()

    def dead_letters_written(self, ranges: Iterable[OffsetRange]) -> Decision:
        """These records, which are Archiving, are in the dead-letter topic, and so is this on disk. The ranges are in
        order.
        """
        draft = self._draft()
        for first, last in ranges:
            for one, other, count in self.archiving_in(first, last):
                draft.finish(one, other, count)
        return draft.decision()

    def archiving_in(self, first: int = 0, last: int = OFFSET_MAX) -> Iterator[tuple[int, int, int]]:
        """Yields the records of a range that are to be written to the dead-letter topic: first, last, count."""
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        for one, other, value in self._pages.runs(first, last) if self.archiving and first <= last else ():
            state, count = unpack(value)
            if state is RecordState.ARCHIVING:
                yield one, other, count


def _check_form(batch: AckBatch, before: int) -> None:
    first, last, types = batch
    if not before < first <= last:
        raise Refused(ErrorCode.INVALID_REQUEST, f"a batch from {first} to {last} comes after offset {before}")
    if len(types) not in (1, last - first + 1):
        raise Refused(ErrorCode.INVALID_REQUEST, f"{len(types)} acknowledgements of {last - first + 1} offsets")
    if not _NUMBERS.issuperset(types):
        raise Refused(ErrorCode.INVALID_REQUEST, "an unknown type of acknowledgement")


def _runs_of_types(batch: AckBatch, first: int) -> Iterator[tuple[int, int, AckType]]:
    """Yields the runs of one type of a batch, from an offset in it on."""
    if len(batch.types) == 1:
        yield first, batch.last, _TYPES[batch.types[0]]
        return
    for kind, group in groupby(batch.types[first - batch.first :]):
        length = sum(1 for _ in group)
        yield first, first + length - 1, _TYPES[kind]
        first += length


def _not_held(first: int, last: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_RECORD_STATE, f"the member does not hold all of the records from {first} to {last}"
    )
