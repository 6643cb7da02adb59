"""The journal, open for writing: one write brings the batches that callers wait for, of many logs, to disk.

Syncing a file that has grown costs a transaction of the file system, for each log separately. The journal does not
grow: its blocks were written when it was created, so a write into it needs no such transaction, and holds batches of
any number of logs. It is read only after a crash (`log/files/journal_file`).

The journal has two halves. One is written until it is full, then the other. Before a half is reused, all logs with
batches in it must be synced past those. Until then the journal takes no writes (`make_room`), and logs are synced one
by one.

`log/flush/queue` decides which log is written when.
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
    """The open journal of this session. It takes one write at a time."""

    def __init__(self, file: File, size: int, session: int) -> None:
        self.size = size
        self.session = session
        self._file = file
        self._buffer = block_buffer(BLOCK_BYTES)
        self._write_bytes = 0  # upper bound of the next write
        file.pin()  # as long as the journal is open
        file.write_past_cache()  # it is not read again: caching it would only take time
        self._half_bytes = half_size(size)
        self._half = 0
        self._position = 0  # in that half
        self._sequence = 0
        self._overdue: list[Log] = []
        self._held: tuple[dict[Log, int], dict[Log, int]] = ({}, {})  # the end offset of each log, for each half

    def make_room(self, size: int) -> bool:
        """Returns whether a write of this size fits now. Switches to the other half if the current one is full and no
        log needs the contents of the other one.
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
        """Whether the other half cannot be reused for the rest of this session: a log that is offline
        needs it.
        """
        held = self._held[1 - self._half]
        return any(log.offline is not None and not _is_past(log, offset) for log, offset in held.items())

    def take_overdue(self) -> list[Log]:
        """Returns the logs that must be synced before the half that was filled last can be reused. Returns each log
        once.
        """
        overdue, self._overdue = self._overdue, []
        return overdue

    def hold(self, log: Log, offset: int) -> None:
        """Notes that the next write has the log's bytes up to `offset`."""
        self._held[self._half][log] = offset

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Writes these entries, durably. There must be room for them."""
        if self._write_bytes > len(self._buffer):
            self._buffer = block_buffer(self._write_bytes)
        size = encode_journal_write(self._buffer, self.session, self._sequence, entries)
        position = BLOCK_BYTES + self._half * self._half_bytes + self._position
        self._file.write_synced_at(position, self._buffer[:size])
        self._sequence += 1
        self._position += size

    def begin_session(self) -> None:
        """Begins a new session, durably: nothing that was written before counts any more."""
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
    """Creates the journal, durably, with all of its blocks written. Takes a while. Raises OSError, and leaves no file,
    if the disk does not have twice that much free space.
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
    """Opens the existing journal in a new session: its contents no longer count. Returns None if there is no usable
    journal. An unusable one is removed, or kept under another name if it may have contents.
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
        logger.warning("cannot read %s: %s", path, error)
        was_used = True  # perhaps: the part that could not be read may be needed
    file.close()
    if was_used:
        logger.warning("%s is not a usable journal: it is kept as %s", path, path + CUT)
        files.rename(path, path + CUT)
    else:
        files.remove(path)
    files.sync_directory(directory)
    return None


class MakeJournalJob:
    """Creates a journal. When it has run, either `journal` or `error` is set."""

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
