"""Finds the next trustworthy batch after corrupt bytes.

The trouble is that a record may hold the bytes of a whole batch, put there by somebody who means harm or by a tool
that copies logs. So nothing is believed because it looks like a batch; it must lead somewhere, or be led to.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tailrace.log.disk.interface import File
from tailrace.log.files.leader_epochs import LeaderEpochs
from tailrace.log.scan.scan import OFFSETS_AHEAD_MAX, Scan, header_at
from tailrace.records.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, LENGTH_MIN, MAGIC, BatchHeader
from tailrace.records.checksum import crc32c

PROOF_BYTES = 64 << 20  # how far a bad batch is summed to prove where it ends: more than any broker takes by default
_SEARCH_BYTES = 1 << 20


def find_next(
    file: File,
    position: int,
    end: int,
    expected: int,
    *,
    gaps: bool = False,
    epochs: LeaderEpochs | None = None,
    anchors: Sequence[int] = (),
    limit: int | None = None,
) -> tuple[int, int] | None:
    """Where the first batch behind the bad one at `position` begins, and its offset; None if no batch follows.

    A record may hold the bytes of a whole batch, so a valid batch alone proves nothing. It is believed if the bad
    batch's own header leads to it or its CRC proves that it ends there; or if the batches from there on lead to a
    place where one is known to begin (`anchors`) or to `end`; failing that, if at least two follow each other. None
    that is `limit` or beyond is believed.

    Two batches that follow each other, or one that leads to `end` and `limit`, may also have the offset `expected`:
    then the bad bytes are surplus, and no offset is lost. Or they stand just here, with later offsets: then no bytes
    are bad, but records are missing.
    """
    claim = Claim(file, position, end, expected)
    if claim.follower is not None and any(
        True for _ in Scan(file, claim.follower[0], end, claim.follower[1], epochs=epochs, limit=limit)
    ):
        return claim.follower
    search = Search(file, position, end, gaps, epochs, {*anchors, end})
    for candidate, offset in _candidates(file, position, end, expected):
        if limit is not None and offset >= limit:
            continue
        if candidate == position:
            if offset > expected and search.confirms(candidate, offset, limit):
                return candidate, offset
        elif claim.proven_end == end or search.is_over(candidate):
            break
        elif candidate >= (claim.proven_end or 0) and (offset > expected or search.confirms(candidate, offset, limit)):
            search.consider(candidate, offset, claim)
            if search.is_proven:
                break
    return search.found


class Claim:
    """What the header of a bad batch can still tell of where the batch ends.

    Its length and offset lie outside of what its CRC covers. So where the CRC matches up to some place, the batch
    ends there, whatever the header says; and where the header is in its right place, what it claims as its own is
    believed unless that is disproved.
    """

    def __init__(self, file: File, position: int, end: int, expected: int) -> None:
        self._file = file
        self._position = position
        self._header = header_at(file, position)
        self._is_credible = False
        self._crc, self._summed_to = crc32c(b""), position + CRC_START
        self.follower: tuple[int, int] | None = None
        self.claimed_end = position
        self.proven_end: int | None = None
        header = self._header
        if header is not None and header.length >= LENGTH_MIN:
            self.claimed_end = position + header.size
            self._is_credible = header.magic == MAGIC and header.base_offset == expected
            if header.last_offset_delta >= 0 and self.claimed_end < end:
                self.follower = self.claimed_end, expected + header.last_offset_delta + 1
        for size in sorted({self.claimed_end - position, end - position}):
            if HEADER_SIZE <= size <= min(end - position, PROOF_BYTES) and self.ends_at(position + size):
                self.proven_end = position + size
                break

    def covers(self, candidate: int) -> bool:
        return self._is_credible and candidate < self.claimed_end

    def ends_at(self, candidate: int) -> bool:
        """Whether the CRC proves that the batch ends here."""
        if self._header is None or candidate - self._position > PROOF_BYTES:
            return False
        if candidate < self._summed_to:
            self._crc, self._summed_to = crc32c(b""), self._position + CRC_START
        while self._summed_to < candidate:
            size = min(_SEARCH_BYTES, candidate - self._summed_to)
            self._crc = crc32c(self._file.read_at(self._summed_to, size), self._crc)
            self._summed_to += size
        return self._crc == self._header.crc


class Followed(NamedTuple):
    batches: int
    reached: int


class Search:
    """The candidates for the batch behind a bad one, and the best of them so far."""

    def __init__(
        self, file: File, position: int, end: int, gaps: bool, epochs: LeaderEpochs | None, known: set[int]
    ) -> None:
        self._file = file
        self._end = end
        self._gaps = gaps
        self._epochs = epochs
        self._known = known
        self._passed: set[int] = set()
        self._likely: tuple[int, int] | None = None
        self._second_best: tuple[int, int] | None = None
        self.is_proven = False
        # Records full of false headers could make us read a file once for each of them.
        self._budget_bytes = PROOF_BYTES + 2 * (end - position)
        self._covered_budget_bytes = PROOF_BYTES

    @property
    def found(self) -> tuple[int, int] | None:
        return self._likely or self._second_best

    def is_over(self, candidate: int) -> bool:
        """Whether nothing better can be proved any more, or more was read than any honest file is worth."""
        is_beyond_proof = self._likely is not None and candidate - self._likely[0] > PROOF_BYTES
        return is_beyond_proof or self._budget_bytes < 0

    def consider(self, candidate: int, offset: int, claim: Claim) -> None:
        is_end = claim.ends_at(candidate)
        if not is_end and candidate in self._passed:
            return  # part of a chain that was followed before and leads nowhere else
        if not is_end and claim.covers(candidate) and not self._disproves(claim, candidate, offset):
            return  # part of the bad batch
        followed = self.follow(candidate, offset)
        if not followed.batches:
            return
        if is_end:
            self._likely, self.is_proven = (candidate, offset), True
        elif self._likely is None and (candidate in self._known or followed.reached in self._known):
            self._likely = candidate, offset
            self.is_proven = candidate == claim.claimed_end
        elif self._second_best is None and followed.batches >= 2:
            self._second_best = candidate, offset

    def confirms(self, position: int, offset: int, limit: int | None) -> bool:
        """Whether the batch here has the offset that it claims, which its CRC does not cover: another one follows, or
        it is the last one and ends at `limit`.
        """
        scan = Scan(self._file, position, self._end, offset, gaps=self._gaps, epochs=self._epochs)
        count = sum(1 for _ in islice(scan, 2))
        return count == 2 or (count == 1 and scan.position == self._end and scan.expected == limit)

    def _disproves(self, claim: Claim, position: int, offset: int) -> bool:
        """Whether batches lead from here, inside of what a bad batch claims, across the end that it claims: then bytes
        of it are missing. No record can hold such a chain, as its last batch has bytes that were written later.
        """
        if self._covered_budget_bytes < 0:
            return False
        header = header_at(self._file, position)
        self._covered_budget_bytes -= header.size if header else 0
        scan = Scan(self._file, position, self._end, offset, gaps=self._gaps, epochs=self._epochs)
        for found in scan:
            if scan.position == claim.claimed_end:
                break
            if found.position < claim.claimed_end < scan.position:
                return True
        self._covered_budget_bytes -= scan.position - position
        return False

    def follow(self, position: int, offset: int) -> Followed:
        """How many batches lead from here to a known place, or to where they break off, and that place."""
        scan = Scan(self._file, position, self._end, offset, gaps=self._gaps, epochs=self._epochs)
        claimed = header_at(self._file, position)
        count = 0
        for found in scan:
            count += 1
            self._passed.add(found.position)
            if scan.position in self._known:
                break
        self._budget_bytes -= max(scan.position - position, claimed.size if claimed else 0)
        return Followed(count, scan.position)


def _candidates(file: File, position: int, end: int, expected: int) -> Iterator[tuple[int, int]]:
    """Places where a batch with a later offset might begin: the upper half of its offset, and the magic byte, are
    known.
    """
    halves = {(expected >> 32).to_bytes(4), ((expected + OFFSETS_AHEAD_MAX) >> 32).to_bytes(4)}
    pattern = re.compile(b"(?=(?:" + b"|".join(map(re.escape, halves)) + b").{12}\x02)", re.DOTALL)
    while position + HEADER_SIZE <= end:
        window = file.read_at(position, min(_SEARCH_BYTES, end - position))
        if len(window) < HEADER_SIZE:
            return
        for match in pattern.finditer(window, 0, len(window) - HEADER_SIZE + 1 + 16):
            at = match.start()
            if at + HEADER_SIZE > len(window):
                break
            header = BatchHeader._make(HEADER.unpack_from(window, at))
            plausible = LENGTH_MIN <= header.length <= end - position - at - LENGTH_END
            if plausible and expected <= header.base_offset < expected + OFFSETS_AHEAD_MAX:
                yield position + at, header.base_offset
        position += len(window) - HEADER_SIZE + 1
