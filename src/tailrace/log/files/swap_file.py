"""The swap file: compacted segments replace old ones atomically.

    1  write the new files beside the old ones, as `….cleaned`, durably. They do not count yet
    2  write a small file, `….swap`, that lists the segments to replace. Once it is on disk, the new files count
    3  rename the new files, remove the old ones
    4  remove the swap file

After a crash, the next start completes or undoes this: if there is a swap file, it repeats 3 and 4; if not, it removes
the new files.
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
    """The new segment at `base_offset` replaces the old one with that base offset, and those at `others`."""

    base_offset: int
    others: tuple[int, ...]
    suffixes: tuple[str, ...]  # of the new segment's files

    def encode(self) -> bytes:
        """Encodes it like Kafka's checkpoints, with a checksum, as it decides what is deleted."""
        lines = [f"file {suffix}" for suffix in self.suffixes] + [f"replaces {base}" for base in self.others]
        return encode_lines([*lines, f"crc32c {_sum(lines)}"])

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "Swap":
        """Raises CorruptCheckpoint."""
        *entries, last = decode_lines(data, fields=2) or [["", ""]]
        if last != ["crc32c", str(_sum([" ".join(entry) for entry in entries]))]:
            raise CorruptCheckpoint("its checksum does not match")
        suffixes = tuple(value for word, value in entries if word == "file")
        return cls(base_offset, tuple(int(value) for word, value in entries if word == "replaces"), suffixes)


def _sum(lines: Iterable[str]) -> int:
    return crc32c("\n".join(lines).encode())


def announce(files: Files, directory: str, swap: Swap) -> None:
    """Writes the swap file. The new segment counts once the directory is synced."""
    put_in_place(files, join(directory, numbered(swap.base_offset, SWAP)), swap.encode())


def carry_out(files: Files, directory: str, swap: Swap) -> None:
    """Renames the new files, removes the old ones, then removes the swap file; all durably. Can be repeated after an
    interruption at any point.
    """
    stem = join(directory, numbered(swap.base_offset, ""))
    if files.exists(stem + LOG + CLEANED):
        for suffix in DERIVED:  # first: checksums of the old bytes would make the new ones look damaged
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
    # Before anything else is written: otherwise this swap file might be applied to the files of the next pass.
    files.sync_directory(directory)


def announced(files: Files, directory: str, names: Iterable[str]) -> list[Swap]:
    """Returns the unfinished swaps, except those whose file cannot be read."""
    found = []
    for name in names:
        parsed = parse_numbered(name)
        if parsed is not None and parsed[1] == SWAP:
            try:
                found.append(Swap.decode(parsed[0], read_whole(files, join(directory, name)) or b""))
            except (CorruptCheckpoint, ValueError) as error:
                logger.error("%s in %s is damaged: %s. Its segments are left as they are", name, directory, error)
    return found


def replaced_segments(swaps: Iterable[Swap], names: Collection[str]) -> set[int]:
    """Returns the base offsets of segments that unfinished swaps have replaced and not removed yet."""
    begun = [swap for swap in swaps if numbered(swap.base_offset, LOG) + CLEANED not in names]
    return {base for swap in begun for base in swap.others}


def finish_swaps(files: Files, directory: str, names: Iterable[str]) -> bool:
    """Completes announced swaps at startup, and removes the files of others. Returns whether there were any. A swap
    file that cannot be read is left alone with all of its segments: they may be the only copy of the data.
    """
    if not any(name.endswith((SWAP, CLEANED)) for name in names):
        return False
    for swap in announced(files, directory, names):
        carry_out(files, directory, swap)
    remove_unwanted(files, directory)
    return True


def remove_unwanted(files: Files, directory: str) -> None:
    """Removes compacted segments that no swap file lists."""
    names = files.files_in(directory)
    for name in names:
        if name.endswith(CLEANED) and name.split(".")[0] + SWAP not in names:
            files.remove(join(directory, name))
