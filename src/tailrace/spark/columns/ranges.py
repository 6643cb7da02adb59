"""A range of whole numbers: offsets, or timestamps in milliseconds."""

from typing import NamedTuple


class NumberRange(NamedTuple):
    """From the first to the last, both included: so that there is one that leaves nothing out."""

    first: int = -(2**63)
    last: int = 2**63 - 1

    def within(self, other: "NumberRange") -> "NumberRange":
        return NumberRange(max(self.first, other.first), min(self.last, other.last))


ALL = NumberRange()
