"""Recorded gaps: lost offsets that a repair has given up. They are recorded so that no jump over them is silent.

They are in a small file of the partition, `recorded-gaps`: a line with the version and the CRC-32C of everything that
follows, then one JSON object per line, in the order of offsets. Only a repair writes the file, and replaces it as a
whole. The broker reads it at startup, logs the gaps and counts them. Readers skip such a gap like one that compaction
has left.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.log.disk.interface import Files, join, read_whole, replace_whole
from tailrace.records.checksum import crc32c

FILE_NAME = "recorded-gaps"
_VERSION = 1


class CorruptGaps(ValueError):
    """The file of recorded gaps is damaged, or of an unknown version."""


class RecordedGap(NamedTuple):
    """A range of lost offsets, both inclusive: when and why it was given up, and where the bad bytes are kept."""

    first_offset: int
    last_offset: int
    reason: str
    repaired_at: str
    kept_as: str | None  # a file beside the segments; None where there were no bytes

    @property
    def offsets(self) -> int:
        return self.last_offset - self.first_offset + 1

    def __str__(self) -> str:
        kept = f"; the damaged bytes are kept in {self.kept_as}" if self.kept_as else ""
        offsets = f"offsets {self.first_offset} to {self.last_offset} are"
        if self.offsets == 1:
            offsets = f"offset {self.first_offset} is"
        return f"{offsets} lost, and given up by a repair at {self.repaired_at} ({self.reason}){kept}"

    def as_json(self) -> dict[str, str | int | None]:
        return self._asdict()


def read_gaps(files: Files, directory: str) -> tuple[RecordedGap, ...]:
    """Returns the recorded gaps of a partition; none if there is no file. Raises CorruptGaps."""
    data = read_whole(files, join(directory, FILE_NAME))
    return () if data is None else decode_gaps(data)


def has_gap(gaps: Iterable[RecordedGap], first: int, following: int | None) -> bool:
    """Returns whether a gap lies in the segment from `first` to before `following`; None is for the last segment."""
    return any(gap.last_offset >= first and (following is None or gap.first_offset < following) for gap in gaps)


def add_gaps(files: Files, directory: str, gaps: Iterable[RecordedGap]) -> None:
    """Adds these gaps to the file, durably. A gap that an earlier, interrupted repair has recorded stays unchanged."""
    new = {(gap.first_offset, gap.last_offset): gap for gap in gaps}
    known = {(gap.first_offset, gap.last_offset): gap for gap in read_gaps(files, directory)}
    replace_whole(files, join(directory, FILE_NAME), encode_gaps((new | known).values()))


def encode_gaps(gaps: Iterable[RecordedGap]) -> bytes:
    import json  # for logs that have gaps: no other start waits for it

    in_order = sorted(gaps, key=lambda gap: (gap.first_offset, gap.last_offset))
    lines = "".join(f"{json.dumps(gap.as_json())}\n" for gap in in_order).encode()
    return b"%d %08x\n" % (_VERSION, crc32c(lines)) + lines


def decode_gaps(data: bytes) -> tuple[RecordedGap, ...]:
    import json

    head, _, lines = data.partition(b"\n")
    if head != b"%d %08x" % (_VERSION, crc32c(lines)):
        raise CorruptGaps("the checksum in its first line does not match, or its version is unknown")
    try:
        return tuple(RecordedGap(**json.loads(line)) for line in lines.splitlines())
    except (ValueError, TypeError) as error:
        raise CorruptGaps(str(error)) from None
