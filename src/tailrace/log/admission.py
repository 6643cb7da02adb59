"""Who may open a data directory: one process at a time, and no release older than the one that has written it."""

from tailrace.log.checkpoints import FORMAT_FILE
from tailrace.log.errors import DirectoryInUse, UnknownFormat
from tailrace.log.files import Files, Lock, join, read_whole

FORMAT_VERSION = 2
LOCK_FILE = ".lock"


def lock_directory(files: Files, path: str) -> Lock:
    """Afterwards no other process may open the directory. Raises DirectoryInUse."""
    lock = files.lock(join(path, LOCK_FILE))
    if lock is None:
        raise DirectoryInUse(f"{path} is in use by another process")
    return lock


def check_format(files: Files, path: str) -> None:
    """Raises UnknownFormat where a newer release has written the directory, or something else. Nothing is written."""
    found = read_whole(files, join(path, FORMAT_FILE))
    if found is not None and not (found.strip().isdigit() and 1 <= int(found) <= FORMAT_VERSION):
        raise UnknownFormat(
            f"{path} has format {found.decode(errors='replace').strip()!r}, and this release knows "
            f"{FORMAT_VERSION}: open it with the release that wrote it, or a newer one"
        )
