"""Finds the next trustworthy batch after corrupt bytes.

A record may hold the bytes of a whole batch, put there by an attacker or by a tool that copies logs. So bytes that look
like a batch are not enough: other batches must follow them, or the corrupt batch's header must lead to them.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tailrace.log.scan.scan import OFFSETS_AHEAD_MAX, Boundary, Scan, ScanRange, header_at
from tailrace.records.batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, LENGTH_MIN, MAGIC, BatchHeader
from tailrace.records.checksum import crc32c

PROOF_BYTES = 64 << 20  # how far to compute a bad batch's CRC: larger than any broker's default batch limit
_SEARCH_BYTES = 1 << 20


def find_next(searched: ScanRange) -> Boundary | None:
    """Returns where the first batch behind the bad one at the beginning of the range begins; None if no batch follows.

    A record may hold the bytes of a whole batch, so a valid batch alone proves nothing. It is trusted if the bad
    batch's own header leads to it, or its CRC proves that it ends there; or if the batches from there on lead to a
    known position (`anchors`) or to `end`; failing that, if at least two batches follow each other. A batch at or
    beyond the offset `limit` is never trusted.

    Two batches that follow each other, or one that leads to `end` and `limit`, may also have the offset `expected`:
    then the bad bytes are surplus, and no offset is lost. If they begin at `position` itself, with later offsets, no
    bytes are bad, but records are missing.

    Leader epochs rule out false candidates. They are not covered by a batch's CRC, so a wrong one proves nothing about
    the batches around it: a batch with a wrong epoch still ends where it says, and still follows the one before it.
    """
    if searched.epochs is not None and (end := _end_but_for_its_epoch(searched)) is not None:
        return end if end.position < searched.end else None
    claim = Claim(searched)
    if claim.leads_to_a_batch(searched):
        return claim.follower
    search, expected, limit = Search(searched), searched.expected, searched.limit
    for candidate in _candidates(searched):
        position, offset = candidate
        if limit is not None and offset >= limit:
            continue
        if position == searched.position:
            if offset > expected and search.confirms(candidate):
                return candidate
        elif claim.proven_end == searched.end or search.is_over(position):
            break
        elif position >= (claim.proven_end or 0) and (offset > expected or search.confirms(candidate)):
            search.consider(candidate, claim)
            if search.is_proven:
                break
    return search.found


def _end_but_for_its_epoch(searched: ScanRange) -> Boundary | None:
    """Returns the end of the first batch of the range, if nothing but its leader epoch is wrong."""
    scan = Scan(searched._replace(epochs=None))
    return Boundary(scan.position, scan.expected) if next(iter(scan), None) is not None else None


class Claim:
    """What the header of a bad batch still tells about the end of the batch.

    Its length and offset are not covered by its CRC. So if the CRC matches up to some position, the batch ends there,
    whatever the header says. If the header has the expected offset, its length is trusted unless it is disproved.
    """

    def __init__(self, searched: ScanRange) -> None:
        file, position, end, expected, *_ = searched
        self._file = file
        self._position = position
        self._header = header_at(file, position)
        self._is_credible = False
        self._crc, self._summed_to = crc32c(b""), position + CRC_START
        self.follower: Boundary | None = None
        self.claimed_end = position
        self.proven_end: int | None = None
        header = self._header
        if header is not None and header.length >= LENGTH_MIN:
            self.claimed_end = position + header.size
            self._is_credible = header.magic == MAGIC and header.base_offset == expected
            if header.last_offset_delta >= 0 and self.claimed_end < end:
                self.follower = Boundary(self.claimed_end, expected + header.last_offset_delta + 1)
        for size in sorted({self.claimed_end - position, end - position}):
            if HEADER_SIZE <= size <= min(end - position, PROOF_BYTES) and self.ends_at(position + size):
                self.proven_end = position + size
                break

    def leads_to_a_batch(self, searched: ScanRange) -> bool:
        if self.follower is None:
            return False
        scan = Scan(searched.after(*self.follower)._replace(gaps=False, epochs=None))
        return any(True for _ in scan)

    def covers(self, candidate: int) -> bool:
        return self._is_credible and candidate < self.claimed_end

    def ends_at(self, candidate: int) -> bool:
        """Returns whether the CRC proves that the batch ends here."""
        if self._header is None or candidate - self._position > PROOF_BYTES:
            return False
        if candidate < self._summed_to:
            self._crc, self._summed_to = crc32c(b""), self._position + CRC_START
        while self._summed_to < candidate:
            size = min(_SEARCH_BYTES, candidate - self._summed_to)
            self._crc = crc32c(self._file.read_at(self._summed_to, size), self._crc)
            self._summed_to += size
        return self._crc == self._header.crc


class FollowedBatches(NamedTuple):
    batches: int
    reached: int


class Search:
    """The candidates for the batch behind a bad one, and the best of them so far."""

    def __init__(self, searched: ScanRange) -> None:
        self._file = searched.file
        self._limit = searched.limit
        self._searched = searched._replace(limit=None, epochs=None)
        self._known = {*searched.anchors, searched.end}
        self._passed: set[int] = set()
        self._likely: Boundary | None = None
        self._second_best: Boundary | None = None
        self.is_proven = False
        # Without a bound, records full of false headers would make us read the file once for each of them.
        self._budget_bytes = PROOF_BYTES + 2 * (searched.end - searched.position)
        self._covered_budget_bytes = PROOF_BYTES

    @property
    def found(self) -> Boundary | None:
        return self._likely or self._second_best

    def is_over(self, position: int) -> bool:
        """Returns whether no better candidate can be proved, or the search has used up its budget."""
        is_beyond_proof = self._likely is not None and position - self._likely.position > PROOF_BYTES
        return is_beyond_proof or self._budget_bytes < 0

    def consider(self, candidate: Boundary, claim: Claim) -> None:
        position = candidate.position
        is_end = claim.ends_at(position)
        if not is_end and position in self._passed:
            return  # part of a chain that was followed before
        if not is_end and claim.covers(position) and not self._disproves(claim, candidate):
            return  # part of the bad batch
        followed = self._follow(candidate)
        if not followed.batches:
            return
        if is_end:
            self._likely, self.is_proven = candidate, True
        elif self._likely is None and (position in self._known or followed.reached in self._known):
            self._likely = candidate
            self.is_proven = position == claim.claimed_end
        elif self._second_best is None and followed.batches >= 2:
            self._second_best = candidate

    def confirms(self, candidate: Boundary) -> bool:
        """Returns whether the batch here really has the offset in its header, which its CRC does not cover: another
        batch follows, or it is the last one and ends at the range's `limit`.
        """
        scan = Scan(self._searched.after(*candidate))
        count = sum(1 for _ in islice(scan, 2))
        return count == 2 or (count == 1 and scan.position == scan.end and scan.expected == self._limit)

    def _disproves(self, claim: Claim, candidate: Boundary) -> bool:
        """Returns whether batches lead from here, inside the claimed range of a bad batch, across its claimed end: then
        bytes of it are missing. No record can hold such a chain, as the last batch has bytes that were written later.
        """
        if self._covered_budget_bytes < 0:
            return False
        header = header_at(self._file, candidate.position)
        self._covered_budget_bytes -= header.size if header else 0
        scan = Scan(self._searched.after(*candidate))
        for found in scan:
            if scan.position == claim.claimed_end:
                break
            if found.position < claim.claimed_end < scan.position:
                return True
        self._covered_budget_bytes -= scan.position - candidate.position
        return False

    def _follow(self, candidate: Boundary) -> FollowedBatches:
        """Follows the batches from here. Returns how many there are up to a known position, or to where they break off,
        and that position.
        """
        scan = Scan(self._searched.after(*candidate))
        claimed = header_at(self._file, candidate.position)
        count = 0
        for found in scan:
            count += 1
            self._passed.add(found.position)
            if scan.position in self._known:
                break
        self._budget_bytes -= max(scan.position - candidate.position, claimed.size if claimed else 0)
        return FollowedBatches(count, scan.position)


def _candidates(searched: ScanRange) -> Iterator[Boundary]:
    """Yields positions where a batch with a later offset may begin, found by the upper half of its offset and its magic
    byte. Its leader epoch, or that of the batch behind it, must be the one of its offset.
    """
    file, position, end, expected, *_ = searched
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
            is_ahead = expected <= header.base_offset < expected + OFFSETS_AHEAD_MAX
            if plausible and is_ahead and _fits_the_epochs(searched, position + at, header):
                yield Boundary(position + at, header.base_offset)
        position += len(window) - HEADER_SIZE + 1


def _fits_the_epochs(searched: ScanRange, position: int, header: BatchHeader) -> bool:
    if _has_its_epoch(searched, header):
        return True
    following = header_at(searched.file, position + header.size)
    return following is not None and following.base_offset == header.next_offset and _has_its_epoch(searched, following)


def _has_its_epoch(searched: ScanRange, header: BatchHeader) -> bool:
    epochs = searched.epochs
    return epochs is None or epochs.range_at(header.base_offset)[0] in (None, header.leader_epoch)
