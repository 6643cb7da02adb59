"""The journal's file: its format, and how it is read after a crash.

    block 0    the session id: a new one at each opening of the directory; writes of other sessions are ignored
    2 halves   journal writes, one behind the other, each from a block's start:
               head · for each log: its name, topic id, segment, position, length · the bytes of all of them

`log/flush/journal` writes it; `log/scan/restore` takes what a log lacks after a crash from it. docs/FORMAT.md specifies
the bytes.
"""

import logging
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tailrace.log.disk.interface import Data, File, Files, block_buffer, join
from tailrace.log.layout.errors import JournalUnreadable
from tailrace.records.checksum import crc32c

logger = logging.getLogger("tailrace.log.files")

FILE_NAME = "tailrace.journal"
BLOCK_BYTES = 4096
BYTES_MIN = 64 << 10

_SESSION = struct.Struct(">8sIQ")  # magic, CRC-32C of the session, the session
SESSION_BYTES = _SESSION.size
_MAGIC = b"tailrace"
_HEAD = struct.Struct(">4sIQQII")  # magic, CRC-32C of all behind it, session, sequence, logs, bytes behind the head
_WRITE_MAGIC = b"TRJ1"
_CRC_START = 8
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">16sQQIH")  # topic id, segment, position, length, length of the name, which follows


class JournalEntry(NamedTuple):
    """The part of a journal write that belongs to one log: whole batches at `position` of a segment."""

    name: bytes
    topic_id: bytes
    segment: int
    position: int
    data: Data


def half_size(size: int) -> int:
    return (size - BLOCK_BYTES) // 2 // BLOCK_BYTES * BLOCK_BYTES


def size_of_journal_write(logs: int, names: int, data: int) -> int:
    """Returns the size of a journal write of so many logs, with the bytes of their names and of their batches."""
    return _in_blocks(_HEAD.size + logs * _ENTRY.size + names + data)


def _in_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def encode_journal_write(buffer: memoryview, session: int, sequence: int, entries: Sequence[JournalEntry]) -> int:
    """Encodes a journal write at the start of `buffer`. Returns its size, a multiple of the block size."""
    at = _HEAD.size
    for name, topic_id, segment, position, data in entries:
        _ENTRY.pack_into(buffer, at, topic_id, segment, position, len(data), len(name))
        at += _ENTRY.size
        buffer[at : at + len(name)] = name
        at += len(name)
    for entry in entries:
        buffer[at : at + len(entry.data)] = entry.data
        at += len(entry.data)
    _HEAD.pack_into(buffer, 0, _WRITE_MAGIC, 0, session, sequence, len(entries), at - _HEAD.size)
    _CRC.pack_into(buffer, _CRC_START - _CRC.size, crc32c(buffer[_CRC_START:at]))
    end = _in_blocks(at)
    buffer[at:end] = bytes(end - at)
    return end


def decode_journal_write(data: memoryview, session: int) -> tuple[int, list[JournalEntry], int] | None:
    """Returns the sequence, the entries and the size of the write at the start of `data`; None if there is none, or it
    is of another session.
    """
    if len(data) < _HEAD.size:
        return None
    magic, crc, found, sequence, count, size = _HEAD.unpack_from(data)
    end = _HEAD.size + size
    if magic != _WRITE_MAGIC or found != session or end > len(data) or crc32c(data[_CRC_START:end]) != crc:
        return None
    heads, at = [], _HEAD.size
    for _ in range(count):
        *numbers, name_length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size + name_length
        heads.append((bytes(data[at - name_length : at]), *numbers))
    entries = []
    for name, topic_id, segment, position, length in heads:
        entries.append(JournalEntry(name, topic_id, segment, position, data[at : at + length]))
        at += length
    return sequence, entries, _in_blocks(end)


def write_session(file: File, session: int) -> None:
    block = block_buffer(BLOCK_BYTES)
    _SESSION.pack_into(block, 0, _MAGIC, crc32c(session.to_bytes(8)), session)
    file.write_synced_at(0, block)


def session_of(file: File) -> int | None:
    data = file.read_at(0, SESSION_BYTES)
    if len(data) < SESSION_BYTES:
        return None
    magic, crc, session = _SESSION.unpack(data)
    return int(session) if magic == _MAGIC and crc32c(session.to_bytes(8)) == crc else None


def read_journal(files: Files, directory: str) -> list[JournalEntry]:
    """Returns the entries of the last session that are still in the journal, in the order of writing. Before them stand
    those of earlier journals that are kept for an unavailable log. Raises JournalUnreadable.
    """
    paths = [*_kept(files, directory), join(directory, FILE_NAME)]
    return [entry for path in paths for entry in _entries_in(files, path)]


def keep_journal(files: Files, directory: str, needed: Collection[bytes]) -> None:
    """Renames the journal if it has entries of the `needed` logs. `read_journal` reads it under its new name, too. If
    no log is needed, removes the journals that were kept before.
    """
    kept, path = _kept(files, directory), join(directory, FILE_NAME)
    if not needed:
        for one in reversed(kept):
            files.remove(one)
    elif any(entry.name in needed for entry in _entries_in(files, path)):
        aside = f"{path}.{len(kept) + 1}"
        files.rename(path, aside)
        files.sync_directory(directory)
        logger.warning("%s has records of an offline log: kept as %s until that log is back", path, aside)


def _kept(files: Files, directory: str) -> list[str]:
    """Returns the paths of the kept journals, the oldest first."""
    paths: list[str] = []
    while files.exists(path := join(directory, f"{FILE_NAME}.{len(paths) + 1}")):
        paths.append(path)
    return paths


def _entries_in(files: Files, path: str) -> list[JournalEntry]:
    if not files.exists(path):
        return []
    file = files.open(path)
    try:
        session, half_bytes = session_of(file), half_size(file.size())
        if session is None:
            return []
        halves = [list(_read_half(file, BLOCK_BYTES + half * half_bytes, half_bytes, session)) for half in (0, 1)]
    except OSError as error:
        raise JournalUnreadable(path, error) from error
    finally:
        file.close()
    writes = sorted((write for half in halves for write in half), key=lambda write: write[0])
    return [entry for _, entries in writes for entry in entries]


def has_journal_writes(files: Files, directory: str) -> bool:
    """Returns whether the journal has writes of the last session. Reads a few bytes only."""
    if not files.exists(join(directory, FILE_NAME)):
        return False
    file = files.open(join(directory, FILE_NAME))
    try:
        session, half_bytes = session_of(file), half_size(file.size())
        heads = [file.read_at(BLOCK_BYTES + half * half_bytes, _HEAD.size) for half in (0, 1)]
    except OSError:
        return False
    finally:
        file.close()
    found = [_HEAD.unpack(head) for head in heads if len(head) == _HEAD.size]
    return session is not None and any((head[0], head[2]) == (_WRITE_MAGIC, session) for head in found)


def _read_half(file: File, start: int, size: int, session: int) -> Iterator[tuple[int, list[JournalEntry]]]:
    """Yields the writes of a half while their sequence is without gaps. Older writes may stand behind them."""
    data, at, expected = memoryview(file.read_at(start, size)), 0, None
    while (found := decode_journal_write(data[at:], session)) is not None:
        sequence, entries, length = found
        if expected not in (None, sequence):
            return
        yield sequence, entries
        at, expected = at + length, sequence + 1
