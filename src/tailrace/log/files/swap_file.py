"""The swap file: compacted segments replace old ones at once, or not at all.

    1  the new files lie beside the old ones, `….cleaned`, on disk. Without the next step they mean nothing
    2  a small file, `….swap`, says which segments they replace. The moment it is on disk, they do
    3  the new files get their names, the old ones go
    4  the small file goes

After a crash a start finds what is left of it: with the small file it does 3 and 4, as often as need be; without it,
it removes the new files.
"""

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tailrace.log.disk.interface import Files, join, put_in_place, read_whole, remove_if_there
from tailrace.log.files.checkpoints import CorruptCheckpoint, decode_lines, encode_lines
from tailrace.log.layout.names import CLEANED, DERIVED, LOG, SWAP, numbered, parse_numbered
from tailrace.records.checksum import crc32c

logger = logging.getLogger("tailrace.log.files")


class Swap(NamedTuple):
    """The segment at `base_offset` takes the place of the one there, and of those at `others`."""

    base_offset: int
    others: tuple[int, ...]
    suffixes: tuple[str, ...]  # of the files that it has

    def encode(self) -> bytes:
        """In the manner of Kafka's checkpoints, and with a sum: it says what may be deleted."""
        lines = [f"file {suffix}" for suffix in self.suffixes] + [f"replaces {base}" for base in self.others]
        return encode_lines([*lines, f"crc32c {_sum(lines)}"])

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "Swap":
        """Raises CorruptCheckpoint."""
        *entries, last = decode_lines(data, fields=2) or [["", ""]]
        if last != ["crc32c", str(_sum([" ".join(entry) for entry in entries]))]:
            raise CorruptCheckpoint("its sum is not that of its lines")
        suffixes = tuple(value for word, value in entries if word == "file")
        return cls(base_offset, tuple(int(value) for word, value in entries if word == "replaces"), suffixes)


def _sum(lines: Iterable[str]) -> int:
    return crc32c("\n".join(lines).encode())


def announce(files: Files, directory: str, swap: Swap) -> None:
    """The new segment counts from the moment that the directory is synced."""
    put_in_place(files, join(directory, numbered(swap.base_offset, SWAP)), swap.encode())


def carry_out(files: Files, directory: str, swap: Swap) -> None:
    """Afterwards, on disk, the new files have their names, the old ones are gone, and nothing tells of the swap. May
    be done again after any part of it.
    """
    stem = join(directory, numbered(swap.base_offset, ""))
    if files.exists(stem + LOG + CLEANED):
        for suffix in DERIVED:  # first: sums of other bytes would make the new ones look damaged
            remove_if_there(files, stem + suffix)
        files.rename(stem + LOG + CLEANED, stem + LOG)
    for suffix in DERIVED:
        if suffix not in swap.suffixes:
            remove_if_there(files, stem + suffix)
        elif files.exists(stem + suffix + CLEANED):
            files.rename(stem + suffix + CLEANED, stem + suffix)
    for base in swap.others:
        for suffix in (LOG, *DERIVED):
            remove_if_there(files, join(directory, numbered(base, suffix)))
    files.sync_directory(directory)
    files.remove(stem + SWAP)
    # Before anything else is written: or the next pass's files might be taken for those that this one spoke of.
    files.sync_directory(directory)


def announced(files: Files, directory: str, names: Iterable[str]) -> list[Swap]:
    """The swaps that were not carried out to their end, of those that can be read."""
    found = []
    for name in names:
        parsed = parse_numbered(name)
        if parsed is not None and parsed[1] == SWAP:
            try:
                found.append(Swap.decode(parsed[0], read_whole(files, join(directory, name)) or b""))
            except (CorruptCheckpoint, ValueError) as error:
                logger.error("%s in %s is damaged, and what it speaks of is left as it is: %s", name, directory, error)
    return found


def replaced_segments(swaps: Iterable[Swap], names: Collection[str]) -> set[int]:
    """Of swaps that were cut short: segments that are still there although a new one has their place."""
    begun = [swap for swap in swaps if numbered(swap.base_offset, LOG) + CLEANED not in names]
    return {base for swap in begun for base in swap.others}


def finish_swaps(files: Files, directory: str, names: Iterable[str]) -> bool:
    """At a start: afterwards every swap that was announced is carried out, and nothing is left of others. Says whether
    there was any. One that cannot be read is left alone, with all of its files: they are somebody's data.
    """
    if not any(name.endswith((SWAP, CLEANED)) for name in names):
        return False
    for swap in announced(files, directory, names):
        carry_out(files, directory, swap)
    remove_unwanted(files, directory)
    return True


def remove_unwanted(files: Files, directory: str) -> None:
    """Afterwards no new segment is left that no swap speaks of."""
    names = files.files_in(directory)
    for name in names:
        if name.endswith(CLEANED) and name.split(".")[0] + SWAP not in names:
            files.remove(join(directory, name))
