"""Collects the changes of one decision on a share partition, and makes the update of them."""

from collections.abc import Sequence

from tailrace.broker.queues.partition.pages import Pages, unpack
from tailrace.broker.queues.partition.settings import PartitionSettings
from tailrace.broker.queues.partition.states import (
    NO_DECISION,
    TERMINAL,
    UNCHANGED,
    AckType,
    Decision,
    Ended,
    EndReason,
    RecordState,
    StateRange,
    StateUpdate,
    merged,
)


class Draft:
    """Changes are added in the order of offsets; nothing is changed by that."""

    def __init__(self, pages: Pages, settings: PartitionSettings, log_start: int) -> None:
        self._pages = pages
        self._settings = settings
        self._log_start = log_start
        self._ranges: list[StateRange] = []
        self._ended: list[Ended] = []
        self._accepted = 0
        self._released = 0

    def acknowledge(self, first: int, last: int, kind: AckType) -> None:
        """A member ends its hold on acquired records."""
        for one, other, value in self._pages.runs(first, last):
            count = unpack(value)[1] + 1
            if kind is AckType.ACCEPT:
                self._accepted += other - one + 1
                self._add(one, other, RecordState.ACKNOWLEDGED, count)
            elif kind is AckType.GAP:
                self._add(one, other, RecordState.ARCHIVED, count)
            elif kind is AckType.REJECT:
                self.give_up(one, other, count, EndReason.REJECTED)
            else:
                self._release(one, other, count)

    def _release(self, first: int, last: int, count: int) -> None:
        if first < self._log_start:
            self.archive(first, min(last, self._log_start - 1), count, EndReason.LOST)
            first = self._log_start
        if first > last:
            return
        if count >= self._settings.attempts_max:
            self.give_up(first, last, count, EndReason.ATTEMPTS)
        else:
            self._released += last - first + 1
            self._add(first, last, RecordState.AVAILABLE, count)

    def give_up(self, first: int, last: int, count: int, reason: EndReason) -> None:
        """The records go to the dead-letter topic, if there is one."""
        is_dead_letter = self._settings.has_dead_letters
        self._ended.append(Ended(first, last, count, reason, is_dead_letter))
        self._add(first, last, RecordState.ARCHIVING if is_dead_letter else RecordState.ARCHIVED, count)

    def archive(self, first: int, last: int, count: int, reason: EndReason) -> None:
        """The records end without having been accepted."""
        self._ended.append(Ended(first, last, count, reason))
        self._add(first, last, RecordState.ARCHIVED, count)

    def finish(self, first: int, last: int, count: int) -> None:
        """The records are in the dead-letter topic."""
        self._add(first, last, RecordState.ARCHIVED, count)

    def _add(self, first: int, last: int, state: RecordState, count: int) -> None:
        self._ranges.append(StateRange(first, last, state, count))

    def decision(self, renewed: int = 0) -> Decision:
        if not self._ranges:
            return Decision(None, renewed=renewed) if renewed else NO_DECISION
        ranges = merged(self._ranges)
        pages = self._pages
        start = self._start_after(ranges)
        end = max(pages.end, ranges[-1].last + 1)
        finished = sum(one.last - one.first + 1 for one in ranges if one.state in TERMINAL)
        unfinished = pages.open + end - pages.end - finished
        kept = [one if one.first >= start else one._replace(first=start) for one in ranges if one.last >= start]
        update = StateUpdate(start if start > pages.start else UNCHANGED, kept, end - start - unfinished)
        return Decision(update, self._ended, self._accepted, self._released, renewed)

    def _start_after(self, ranges: Sequence[StateRange]) -> int:
        """Returns the first record that is not finished once these are set."""
        start = self._pages.start
        for first, last, state, _ in ranges:
            if first > start:
                break
            if state in TERMINAL and last >= start:
                start = max(last + 1, self._pages.first_open(last + 1))
        return start
