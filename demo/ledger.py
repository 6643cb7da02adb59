"""Who was promised what, and what came of it: every event is a number, and every number is counted.

The writer notes what was acknowledged and at which offset, the reader notes what it was given; `verdict` compares.
Each side has lists of its own, so that two threads need no lock.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Verdict:
    acknowledged: int
    read: int
    lost: int  # acknowledged, and never read
    duplicated: int  # read more than once
    unknown: int  # read, and never sent
    misplaced: int  # read at another offset than the acknowledgement said
    is_in_order: bool
    failed: int  # not acknowledged: the writer was told so

    @property
    def is_good(self) -> bool:
        nothing_wrong = not (self.lost or self.duplicated or self.unknown or self.misplaced or self.failed)
        return nothing_wrong and self.is_in_order and self.acknowledged > 0


class Ledger:
    def __init__(self) -> None:
        self.sent = 0
        self.failures: list[str] = []
        self.offsets: dict[int, int] = {}  # of the events that were acknowledged
        self.read: list[tuple[int, int]] = []  # event and offset, as they came

    @property
    def acknowledged(self) -> int:
        return len(self.offsets)

    def was_acknowledged(self, event: int, offset: int) -> None:
        self.offsets[event] = offset

    def has_failed(self, reason: str) -> None:
        self.failures.append(reason)

    def was_read(self, event: int, offset: int) -> None:
        self.read.append((event, offset))

    def verdict(self) -> Verdict:
        times = Counter(event for event, _ in self.read)
        events = [event for event, _ in self.read]
        return Verdict(
            acknowledged=self.acknowledged,
            read=len(self.read),
            lost=sum(event not in times for event in self.offsets),
            duplicated=sum(count - 1 for count in times.values()),
            unknown=sum(not 0 <= event < self.sent for event in times),
            misplaced=sum(self.offsets.get(event, offset) != offset for event, offset in self.read),
            is_in_order=all(earlier < later for earlier, later in pairwise(events)),
            failed=len(self.failures),
        )
