"""Decides which directories may be opened as a data directory: ours and new ones, by one process at a time, in a format
that this release knows.

    ours       has tailrace.format, the metadata log or a journal
    new        is empty, or has only what a file system or an interrupted first start puts there
    Kafka's    has meta.properties or Kafka's metadata log, and no metadata log of ours. (Earlier releases left a
               tailrace.format in such a directory when they refused it.)

All others are refused, too: a home directory, partitions copied from elsewhere. The checks run before anything is
written, including the lock file.
"""

from tailrace.log.disk.interface import Files, Lock, join, read_whole
from tailrace.log.files.checkpoints import FORMAT_FILE, RECOVERY_POINTS, START_OFFSETS
from tailrace.log.files.journal_file import FILE_NAME as JOURNAL_FILE
from tailrace.log.layout.errors import DirectoryInUse, ForeignDirectory, UnknownFormat
from tailrace.log.layout.names import TEMPORARY

FORMAT_VERSION = 4  # the newest that this release knows
BASE_VERSION = 2  # of a directory in which nothing has been used that older releases cannot read
COORDINATED_VERSION = 3  # with transactions: an older release would leave them open for ever
QUEUES_VERSION = 4  # with share groups: an older release would take their state for a topic of a user's
LOCK_FILE = ".lock"

_METADATA_LOG = "__tailrace_metadata-0"
_OF_TAILRACE = {FORMAT_FILE, JOURNAL_FILE, _METADATA_LOG}
_OF_KAFKA = {"meta.properties", "__cluster_metadata-0"}
_OF_FILE_SYSTEMS = {"lost+found", ".snapshot", ".DS_Store"}
_OF_A_FIRST_START = {name + end for name in (FORMAT_FILE, RECOVERY_POINTS, START_OFFSETS) for end in ("", TEMPORARY)}
_EXAMPLES_MAX = 3


def lock_directory(files: Files, path: str) -> Lock:
    """Keeps every other process out of the directory until the lock is released. Raises DirectoryInUse."""
    lock = files.lock(join(path, LOCK_FILE))
    if lock is None:
        raise DirectoryInUse(f"{path} is in use by another process")
    return lock


def check_admission(files: Files, path: str) -> bool:
    """Returns whether the directory is new. Writes nothing. Raises ForeignDirectory for one that is not ours, and
    UnknownFormat for one that a newer release has written, or a restore that is not finished.
    """
    if not files.exists(path):
        return True
    names = {*files.files_in(path), *files.directories_in(path)}
    if names & _OF_KAFKA and _METADATA_LOG not in names:
        raise ForeignDirectory(
            f"{path} is Apache Kafka's data directory: it has {min(names & _OF_KAFKA)}. Nothing in it was changed. "
            "Choose another directory (--data), and copy topics from the running Kafka: "
            "tailrace tail TOPIC --json --no-follow -b KAFKA:9092 | tailrace produce TOPIC --json"
        )
    if names & _OF_TAILRACE:
        _check_format(files, path)
        return False
    if others := sorted(names - _OF_FILE_SYSTEMS - _OF_A_FIRST_START - {LOCK_FILE}):
        examples = ", ".join(others[:_EXAMPLES_MAX]) + (", …" if len(others) > _EXAMPLES_MAX else "")
        raise ForeignDirectory(
            f"{path} is not a data directory of tailrace, and not empty: it has {examples}, but no {FORMAT_FILE}. "
            "Nothing in it was changed. Choose a new or an empty directory (--data)"
        )
    return True


def _check_format(files: Files, path: str) -> None:
    found = read_whole(files, join(path, FORMAT_FILE))
    if found is not None and not (found.strip().isdigit() and 1 <= int(found) <= FORMAT_VERSION):
        raise UnknownFormat(
            f"{path} has format {found.decode(errors='replace').strip()!r}, and this release knows "
            f"{FORMAT_VERSION}: open it with the release that wrote it, or a newer one"
        )
