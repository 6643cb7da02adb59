"""The journal, open for writing: one write brings to disk what was appended to many logs and is waited for.

To sync a file that has grown is a transaction of the file system, for each log its own. The journal does not grow: its
blocks were written when it was made, so that a write into them is that and nothing else, and what was appended to any
number of logs goes in together. It is read after a crash alone (`log/files/journal_file`).

One half is written to until it is full, then the other. By then all logs whose bytes are in that one have to be synced
past them; as long as they are not, the journal takes nothing (`make_room`), and logs are synced one by one.

Which log is written when is decided in `log/flush/queue`.
"""

import logging
import os
from collections.abc import Sequence
from errno import ENOSPC

from tailrace.log.disk.interface import File, Files, block_buffer, join, remove_if_there
from tailrace.log.files.journal_file import (
    BLOCK_BYTES,
    BYTES_MIN,
    FILE_NAME,
    SESSION_BYTES,
    JournalEntry,
    encode_journal_write,
    half_size,
    session_of,
    write_session,
)
from tailrace.log.layout.errors import without_frames
from tailrace.log.layout.names import CUT
from tailrace.log.log import Log

logger = logging.getLogger("tailrace.log.flush")

_ZEROS_AT_ONCE = 1 << 20


class Journal:
    """An open one, of this session. It takes one write at a time."""

    def __init__(self, file: File, size: int, session: int) -> None:
        self.size = size
        self.session = session
        self._file = file
        self._buffer = block_buffer(BLOCK_BYTES)
        self._write_bytes = 0  # of the next one, at most
        file.pin()  # for as long as it is open
        file.write_past_cache()  # nobody reads it: a copy there would only take time
        self._half_bytes = half_size(size)
        self._half = 0
        self._position = 0  # in it
        self._sequence = 0
        self._overdue: list[Log] = []
        self._held: tuple[dict[Log, int], dict[Log, int]] = ({}, {})  # up to which offset, in each half

    def make_room(self, size: int) -> bool:
        """Whether a write of so many bytes can be written now. Where the half at hand has no room, the other one's
        turn has come, if nobody needs what it holds.
        """
        self._write_bytes = size
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

    def take_overdue(self) -> list[Log]:
        """The logs that have to be synced before the half that has become full can be written to again; each is named
        once.
        """
        overdue, self._overdue = self._overdue, []
        return overdue

    def hold(self, log: Log, offset: int) -> None:
        """What is about to be written has the log's bytes up to `offset`."""
        self._held[self._half][log] = offset

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Afterwards these are on disk. There must be room for them."""
        if self._write_bytes > len(self._buffer):
            self._buffer = block_buffer(self._write_bytes)
        size = encode_journal_write(self._buffer, self.session, self._sequence, entries)
        position = BLOCK_BYTES + self._half * self._half_bytes + self._position
        self._file.write_synced_at(position, self._buffer[:size])
        self._sequence += 1
        self._position += size

    def begin_session(self) -> None:
        """Afterwards nothing that was written counts any more, on disk."""
        self.session += 1
        write_session(self._file, self.session)
        self._half = self._position = 0
        self._overdue, self._held = [], ({}, {})

    def close(self) -> None:
        self._file.unpin()
        self._file.close()


def _is_past(log: Log, offset: int) -> bool:
    return log.is_removed or log.synced >= offset


def _is_free(held: dict[Log, int]) -> bool:
    return all(_is_past(log, offset) for log, offset in held.items())


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
        write_session(file, 1)
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
        size, session = file.size(), session_of(file)
        if session is not None and size >= BYTES_MIN:
            write_session(file, session + 1)
            return Journal(file, size, session + 1)
        was_used = any(file.read_at(0, SESSION_BYTES))
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
