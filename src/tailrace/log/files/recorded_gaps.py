"""Recorded gaps: offsets that were lost and that a repair has given up, so that no jump over them is silent.

They stand in a small file of the partition, `recorded-gaps`: a line with the version and the CRC-32C of all that
follows, then a JSON object a line, in the order of offsets. The file is replaced as a whole, and nothing but a repair
writes it. The broker reads it at the start, says what is in it and counts it; readers pass over such a gap as they do
over one that compaction has left.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.log.disk.interface import Files, join, read_whole, replace_whole
from tailrace.records.checksum import crc32c

FILE_NAME = "recorded-gaps"
_VERSION = 1


class CorruptGaps(ValueError):
    """The file is not what was written."""


class RecordedGap(NamedTuple):
    """Offsets, both inclusive, that nobody can read any more; since when, why, and where the bad bytes are kept."""

    first_offset: int
    last_offset: int
    reason: str
    repaired_at: str
    kept_as: str | None  # a file beside the log; None where there were no bytes

    @property
    def offsets(self) -> int:
        return self.last_offset - self.first_offset + 1

    def __str__(self) -> str:
        kept = f"; the bytes that were there are in {self.kept_as}" if self.kept_as else ""
        offsets = f"offsets {self.first_offset} to {self.last_offset} are"
        if self.offsets == 1:
            offsets = f"offset {self.first_offset} is"
        return f"{offsets} lost, and given up by a repair at {self.repaired_at} ({self.reason}){kept}"

    def as_json(self) -> dict[str, str | int | None]:
        return self._asdict()


def read_gaps(files: Files, directory: str) -> tuple[RecordedGap, ...]:
    """Those of a partition; none where there is no file. Raises CorruptGaps."""
    data = read_whole(files, join(directory, FILE_NAME))
    return () if data is None else decode_gaps(data)


def has_gap(gaps: Iterable[RecordedGap], first: int, following: int | None) -> bool:
    """Whether one of them lies in the segment that begins at `first` and ends at `following`, or is the last."""
    return any(gap.last_offset >= first and (following is None or gap.first_offset < following) for gap in gaps)


def add_gaps(files: Files, directory: str, gaps: Iterable[RecordedGap]) -> None:
    """Afterwards these are recorded, on disk, beside those that were. One that a repair before this one has recorded,
    and then not come to its end, stays as it is.
    """
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
        raise CorruptGaps("its first line does not belong to the others, or is of a version that is not known")
    try:
        return tuple(RecordedGap(**json.loads(line)) for line in lines.splitlines())
    except (ValueError, TypeError) as error:
        raise CorruptGaps(str(error)) from None
