"""Damaged ranges: bytes of a log that cannot be trusted, by file, position and offsets.

Damaged bytes are reported. They are never served to clients, and never removed silently. `position` and `length` locate
the bad bytes in `file`; if a whole file is missing, the length is 0. The offsets, both inclusive, cannot be read. Where
the bytes are surplus (a batch that stands twice, bytes inserted between two batches), no offset is lost and the last
offset is one below the first.
"""

from typing import NamedTuple

from tailrace.log.layout.names import LOG, numbered


class DamagedRange(NamedTuple):
    file: str
    position: int
    length: int
    first_offset: int
    last_offset: int
    reason: str

    @property
    def end(self) -> int:
        return self.position + self.length

    @property
    def offsets(self) -> int:
        """The number of offsets that cannot be read."""
        return self.last_offset - self.first_offset + 1

    def __str__(self) -> str:
        if not self.offsets:
            return (
                f"{self.file} has {self.length} surplus bytes at byte {self.position}, before offset "
                f"{self.first_offset}: no offset is lost ({self.reason})"
            )
        if not self.length:
            return f"{self.file}: offsets {self.first_offset} to {self.last_offset} are gone ({self.reason})"
        return (
            f"{self.file} is damaged at byte {self.position} ({self.length} bytes): offsets {self.first_offset} to "
            f"{self.last_offset} cannot be read ({self.reason})"
        )

    def as_json(self) -> dict[str, str | int]:
        return self._asdict()


def overlap(file: str, first_offset: int, end: int) -> DamagedRange:
    """Returns the damage of a segment that begins with offsets which the one before it has, too."""
    return DamagedRange(file, 0, 0, first_offset, end - 1, "the segment before it has these offsets, too")


def missing_file(first_offset: int, following: int) -> DamagedRange:
    """Returns the damage where the records from `first_offset` to before `following` are in no file, or their file is
    too short.
    """
    return missing_records(numbered(first_offset, LOG), first_offset, following)


def missing_records(file: str, first_offset: int, following: int) -> DamagedRange:
    """Returns the damage where `file` lacks the records from `first_offset` to before `following`."""
    return DamagedRange(file, 0, 0, first_offset, following - 1, "the records that should be here are missing")
