"""The files that mark a data directory: its format's version, and that the last stop was clean."""

import logging

from tailrace.log.directory.admission import FORMAT_VERSION
from tailrace.log.disk.interface import Files, join, parent, read_whole, replace_whole
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN, FORMAT_FILE
from tailrace.log.files.journal_file import FILE_NAME as JOURNAL_FILE
from tailrace.log.files.journal_file import has_journal_writes

logger = logging.getLogger("tailrace.log.directory")

# Kafka reads the first two, and ignores others. Releases before left writes in the journal, and did not say "emptied".
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1,"journal":"emptied"}'


def make_directory(files: Files, path: str) -> None:
    """On return, the directory is there, and so are those above it, on disk."""
    missing, above = [], path
    while not files.exists(above):
        missing.append(above)
        above = parent(above)
    if missing:
        files.make_directory(path)
    for made in reversed(missing):
        files.sync_directory(parent(made))


def raise_format(files: Files, path: str) -> None:
    """Marks the directory with the current format, before anything is written that an older release would not read: the
    journal.
    """
    file, current = join(path, FORMAT_FILE), f"{FORMAT_VERSION}\n".encode()
    if read_whole(files, file) != current:
        replace_whole(files, file, current)


def take_clean_marker(files: Files, path: str) -> bool:
    """Removes the marker of a clean shutdown, which is there, on disk. Returns whether it is to be believed: a clean
    stop leaves nothing in the journal, and its marker says so. Where there is something, the logs may lack it.
    """
    doubt = _doubt(files, path)
    if doubt is not None:
        logger.warning(
            "%s in %s says that the last stop was clean, and %s: logs are recovered as after a crash",
            CLEAN_SHUTDOWN,
            path,
            doubt,
        )
    files.remove(join(path, CLEAN_SHUTDOWN))
    files.sync_directory(path)
    return doubt is None


def _doubt(files: Files, path: str) -> str | None:
    """Why the marker is not to be believed; None where it is."""
    try:
        is_ours = read_whole(files, join(path, CLEAN_SHUTDOWN)) == _CLEAN_SHUTDOWN_CONTENT
    except PermissionError:
        raise
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return f"{JOURNAL_FILE} has writes" if is_ours and has_journal_writes(files, path) else None


def leave_clean_marker(files: Files, path: str) -> None:
    """Marks the stop as clean, on disk."""
    replace_whole(files, join(path, CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)
