"""The files that mark a data directory: the version of its format, and the marker of a clean stop."""

import logging

from tailrace.log.directory.admission import BASE_VERSION
from tailrace.log.disk.interface import Files, join, parent, read_whole, replace_whole
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN, FORMAT_FILE
from tailrace.log.files.journal_file import FILE_NAME as JOURNAL_FILE
from tailrace.log.files.journal_file import has_journal_writes

logger = logging.getLogger("tailrace.log.directory")

# Kafka reads the first two lines, and ignores others. Earlier releases left writes in the journal, without "emptied".
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1,"journal":"emptied"}'


def make_directory(files: Files, path: str) -> None:
    """Creates the directory, and those above it, durably."""
    missing, above = [], path
    while not files.exists(above):
        missing.append(above)
        above = parent(above)
    if missing:
        files.make_directory(path)
    for made in reversed(missing):
        files.sync_directory(parent(made))


def format_of(files: Files, path: str) -> int:
    """Returns the format that the directory is marked with; 0 if it has none."""
    found = (read_whole(files, join(path, FORMAT_FILE)) or b"").strip()
    return int(found) if found.isdigit() else 0


def raise_format(files: Files, path: str, version: int = BASE_VERSION) -> None:
    """Marks the directory with a format, durably, unless it has that or a newer one. Called before the first write that
    an older release could not read: at the start that is the journal.
    """
    if format_of(files, path) < version:
        replace_whole(files, join(path, FORMAT_FILE), f"{version}\n".encode())


def take_clean_marker(files: Files, path: str) -> bool:
    """Removes the marker of a clean stop, durably. Returns whether it can be trusted: a clean stop empties the journal,
    and notes that in the marker. If the journal has writes all the same, logs may lack them.
    """
    doubt = _doubt(files, path)
    if doubt is not None:
        logger.warning(
            "ignoring %s in %s: %s. All logs are recovered as after a crash",
            CLEAN_SHUTDOWN,
            path,
            doubt,
        )
    files.remove(join(path, CLEAN_SHUTDOWN))
    files.sync_directory(path)
    return doubt is None


def _doubt(files: Files, path: str) -> str | None:
    """Returns why the marker cannot be trusted, or None if it can."""
    try:
        is_ours = read_whole(files, join(path, CLEAN_SHUTDOWN)) == _CLEAN_SHUTDOWN_CONTENT
    except PermissionError:
        raise
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return f"{JOURNAL_FILE} has writes" if is_ours and has_journal_writes(files, path) else None


def leave_clean_marker(files: Files, path: str) -> None:
    """Marks the stop as clean, durably."""
    replace_whole(files, join(path, CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)
