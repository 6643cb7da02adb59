"""The journal: what was appended to many logs and is waited for, brought to disk by one write.

To sync a file that has grown is a transaction of the file system, for each log its own. The journal does not grow: its
blocks were written when it was made, so that a write into them is that and nothing else, and what was appended to any
number of logs goes in together. It is read after a crash alone: what a log lacks then is taken from here
(`log/restoring`).

    block 0    the session: one for each opening of the directory; what other sessions wrote counts for nothing
    2 halves   commits, one behind the other, each from a block's start:
               head · for each log: its name, topic id, segment, position, length · the bytes of all of them

One half is written to until it is full, then the other. By then all logs whose bytes are in that one have to be synced
past them; as long as they are not, the journal takes nothing (`make_room`), and logs are synced one by one.

Nothing in here decides who waits for what: see `log/flush`. The bytes are said in docs/FORMAT.md.
"""

import logging
import os
import struct
from collections.abc import Collection, Iterator, Sequence
from errno import ENOSPC
from typing import TYPE_CHECKING, NamedTuple

from tailrace.log.errors import JournalUnreadable, without_frames
from tailrace.log.files import Data, File, Files, block_buffer, join, remove_if_there
from tailrace.log.names import CUT
from tailrace.records.checksum import crc32c

if TYPE_CHECKING:
    from tailrace.log.log import Log

logger = logging.getLogger(__name__)

FILE_NAME = "tailrace.journal"
BLOCK_BYTES = 4096
BYTES_MIN = 64 << 10

_SESSION = struct.Struct(">8sIQ")  # magic, CRC-32C of the session, the session
_MAGIC = b"tailrace"
_HEAD = struct.Struct(">4sIQQII")  # magic, CRC-32C of all behind it, session, sequence, logs, bytes behind the head
_COMMIT = b"TRJ1"
_CRC_START = 8
_CRC = struct.Struct(">I")
_PART = struct.Struct(">16sQQIH")  # topic id, segment, position, length, length of the name, which follows
_ZEROS_AT_ONCE = 1 << 20


class Part(NamedTuple):
    """What a commit has of one log: whole batches that stand at `position` of a segment."""

    name: bytes
    topic_id: bytes
    segment: int
    position: int
    data: Data


class Journal:
    """An open one, of this session. Whoever writes does so one commit at a time."""

    def __init__(self, file: File, size: int, session: int) -> None:
        self.size = size
        self.session = session
        self._file = file
        self._buffer = block_buffer(BLOCK_BYTES)
        self._commit_bytes = 0  # of the next one, at most
        file.pin()  # for as long as it is open
        file.write_past_cache()  # nobody reads it: a copy there would only take time
        self._half_bytes = _half_bytes(size)
        self._half = 0
        self._position = 0  # in it
        self._sequence = 0
        self._overdue: list[Log] = []
        self._held: tuple[dict[Log, int], dict[Log, int]] = ({}, {})  # up to which offset, in each half

    def make_room(self, size: int) -> bool:
        """Whether a commit of so many bytes can be written now. Where the half at hand has no room, the other one's
        turn has come, if nobody needs what it holds.
        """
        self._commit_bytes = size
        if self._position + size <= self._half_bytes:
            return True
        if size > self._half_bytes or not _is_free(self._held[1 - self._half]):
            return False
        self._overdue = [log for log, offset in self._held[self._half].items() if not _is_past(log, offset)]
        self._half, self._position = 1 - self._half, 0
        self._held[self._half].clear()
        return True

    @property
    def is_stuck(self) -> bool:
        """Whether the other half is needed for as long as this process lives: by a log that takes no flush."""
        held = self._held[1 - self._half]
        return any(log.offline is not None and not _is_past(log, offset) for log, offset in held.items())

    def take_overdue(self) -> list["Log"]:
        """The logs that have to be synced before the half that has become full can be written to again; each is named
        once.
        """
        overdue, self._overdue = self._overdue, []
        return overdue

    def hold(self, log: "Log", offset: int) -> None:
        """What is about to be written has the log's bytes up to `offset`."""
        self._held[self._half][log] = offset

    def write(self, parts: Sequence[Part]) -> None:
        """Afterwards these are on disk. There must be room for them."""
        if self._commit_bytes > len(self._buffer):
            self._buffer = block_buffer(self._commit_bytes)
        size = encode_commit(self._buffer, self.session, self._sequence, parts)
        position = BLOCK_BYTES + self._half * self._half_bytes + self._position
        self._file.write_synced_at(position, self._buffer[:size])
        self._sequence += 1
        self._position += size

    def begin_session(self) -> None:
        """Afterwards nothing that was written counts any more, on disk."""
        self.session += 1
        _write_session(self._file, self.session)
        self._half = self._position = 0
        self._overdue, self._held = [], ({}, {})

    def close(self) -> None:
        self._file.unpin()
        self._file.close()


def _is_past(log: "Log", offset: int) -> bool:
    return log.is_removed or log.synced >= offset


def _is_free(held: dict["Log", int]) -> bool:
    return all(_is_past(log, offset) for log, offset in held.items())


def _half_bytes(size: int) -> int:
    return (size - BLOCK_BYTES) // 2 // BLOCK_BYTES * BLOCK_BYTES


def size_of_commit(logs: int, names: int, data: int) -> int:
    """What a commit of so many logs takes, by the bytes of their names and what they have."""
    return _in_blocks(_HEAD.size + logs * _PART.size + names + data)


def _in_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def encode_commit(buffer: memoryview, session: int, sequence: int, parts: Sequence[Part]) -> int:
    """Afterwards `buffer` begins with it. Says how long it is: it ends where a block does."""
    at = _HEAD.size
    for name, topic_id, segment, position, data in parts:
        _PART.pack_into(buffer, at, topic_id, segment, position, len(data), len(name))
        at += _PART.size
        buffer[at : at + len(name)] = name
        at += len(name)
    for part in parts:
        buffer[at : at + len(part.data)] = part.data
        at += len(part.data)
    _HEAD.pack_into(buffer, 0, _COMMIT, 0, session, sequence, len(parts), at - _HEAD.size)
    _CRC.pack_into(buffer, _CRC_START - _CRC.size, crc32c(buffer[_CRC_START:at]))
    end = _in_blocks(at)
    buffer[at:end] = bytes(end - at)
    return end


def decode_commit(data: memoryview, session: int) -> tuple[int, list[Part], int] | None:
    """The sequence, the parts and the size of the commit that `data` begins with; None where there is none,
    or one of another session.
    """
    if len(data) < _HEAD.size:
        return None
    magic, crc, found, sequence, count, size = _HEAD.unpack_from(data)
    end = _HEAD.size + size
    if magic != _COMMIT or found != session or end > len(data) or crc32c(data[_CRC_START:end]) != crc:
        return None
    told, at = [], _HEAD.size
    for _ in range(count):
        *numbers, name_length = _PART.unpack_from(data, at)
        at += _PART.size + name_length
        told.append((bytes(data[at - name_length : at]), *numbers))
    parts = []
    for name, topic_id, segment, position, length in told:
        parts.append(Part(name, topic_id, segment, position, data[at : at + length]))
        at += length
    return sequence, parts, _in_blocks(end)


class MakeJournalJob:
    """Afterwards there is a journal, or an error that says why not."""

    def __init__(self, files: Files, directory: str, size: int) -> None:
        self._files = files
        self._directory = directory
        self._size = size
        self.journal: Journal | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self.journal = make_journal(self._files, self._directory, self._size)
        except OSError as error:
            self.error = without_frames(error)

    def finish(self) -> None:
        pass


# A journal's life: made, opened at each start, read after a crash


def make_journal(files: Files, directory: str, size: int) -> Journal:
    """Afterwards there is one, on disk, with blocks that were all written. Takes a while. Raises OSError, and leaves
    nothing, where there is no room for it and as much again.
    """
    path = join(directory, FILE_NAME)
    if files.space(directory).free < 2 * size:
        raise OSError(ENOSPC, os.strerror(ENOSPC), path)
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        for position in range(0, size, _ZEROS_AT_ONCE):
            file.write_at(position, bytes(min(_ZEROS_AT_ONCE, size - position)))
        file.sync()
        files.sync_directory(directory)
        _write_session(file, 1)
        return Journal(file, size, 1)
    except BaseException:
        file.close()
        remove_if_there(files, path)
        raise


def open_journal(files: Files, directory: str) -> Journal | None:
    """The one that is there, if there is one that can be used: afterwards what was in it counts for nothing. So it does
    where it cannot be used: then it is removed, or kept under another name where it may have had something.
    """
    path = join(directory, FILE_NAME)
    if not files.exists(path):
        return None
    file = files.open(path)
    try:
        size, session = file.size(), _session_of(file)
        if session is not None and size >= BYTES_MIN:
            _write_session(file, session + 1)
            return Journal(file, size, session + 1)
        was_used = any(file.read_at(0, _SESSION.size))
    except OSError as error:
        logger.warning("%s cannot be used: %s", path, error)
        was_used = True  # perhaps: what could not be read may be needed
    file.close()
    if was_used:
        logger.warning("%s cannot be read, and is kept as %s", path, path + CUT)
        files.rename(path, path + CUT)
    else:
        files.remove(path)
    files.sync_directory(directory)
    return None


def _write_session(file: File, session: int) -> None:
    block = block_buffer(BLOCK_BYTES)
    _SESSION.pack_into(block, 0, _MAGIC, crc32c(session.to_bytes(8)), session)
    file.write_synced_at(0, block)


def _session_of(file: File) -> int | None:
    data = file.read_at(0, _SESSION.size)
    if len(data) < _SESSION.size:
        return None
    magic, crc, session = _SESSION.unpack(data)
    return int(session) if magic == _MAGIC and crc32c(session.to_bytes(8)) == crc else None


def read_journal(files: Files, directory: str) -> list[Part]:
    """What the last session has written and is still there, in the order of writing; before that, what earlier ones
    have that are kept for a log that is unavailable. Raises JournalUnreadable.
    """
    paths = [*_kept(files, directory), join(directory, FILE_NAME)]
    return [part for path in paths for part in _parts_in(files, path)]


def keep_journal(files: Files, directory: str, needed: Collection[bytes]) -> None:
    """On return, a journal that has something of these logs has another name, under which it is read as well. Where
    there are no such logs, those that were kept before are gone.
    """
    kept, path = _kept(files, directory), join(directory, FILE_NAME)
    if not needed:
        for one in reversed(kept):
            files.remove(one)
    elif any(part.name in needed for part in _parts_in(files, path)):
        aside = f"{path}.{len(kept) + 1}"
        files.rename(path, aside)
        files.sync_directory(directory)
        logger.warning("%s has records of a log that is offline, and is kept as %s until that is back", path, aside)


def _kept(files: Files, directory: str) -> list[str]:
    """The paths of the journals that are kept, the oldest first."""
    paths: list[str] = []
    while files.exists(path := join(directory, f"{FILE_NAME}.{len(paths) + 1}")):
        paths.append(path)
    return paths


def _parts_in(files: Files, path: str) -> list[Part]:
    if not files.exists(path):
        return []
    file = files.open(path)
    try:
        session, half_bytes = _session_of(file), _half_bytes(file.size())
        if session is None:
            return []
        halves = [list(_read_half(file, BLOCK_BYTES + half * half_bytes, half_bytes, session)) for half in (0, 1)]
    except OSError as error:
        raise JournalUnreadable(path, error) from error
    finally:
        file.close()
    commits = sorted((commit for half in halves for commit in half), key=lambda commit: commit[0])
    return [part for _, parts in commits for part in parts]


def has_commits(files: Files, directory: str) -> bool:
    """Whether the last session has written something that is still there. Reads a few bytes."""
    if not files.exists(join(directory, FILE_NAME)):
        return False
    file = files.open(join(directory, FILE_NAME))
    try:
        session, half_bytes = _session_of(file), _half_bytes(file.size())
        heads = [file.read_at(BLOCK_BYTES + half * half_bytes, _HEAD.size) for half in (0, 1)]
    except OSError:
        return False
    finally:
        file.close()
    found = [_HEAD.unpack(head) for head in heads if len(head) == _HEAD.size]
    return session is not None and any((head[0], head[2]) == (_COMMIT, session) for head in found)


def _read_half(file: File, start: int, size: int, session: int) -> Iterator[tuple[int, list[Part]]]:
    """As far as each follows the one before it: behind them may stand what the half held before."""
    data, at, expected = memoryview(file.read_at(start, size)), 0, None
    while (found := decode_commit(data[at:], session)) is not None:
        sequence, parts, length = found
        if expected not in (None, sequence):
            return
        yield sequence, parts
        at, expected = at + length, sequence + 1
