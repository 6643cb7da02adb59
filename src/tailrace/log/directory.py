"""A data directory: many logs, the small files that cover them all, and the lock that keeps others out.

    <topic>-<partition>/                 a log
    recovery-point-offset-checkpoint     from where each log is scanned after a crash
    log-start-offset-checkpoint          where each log begins
    .kafka_cleanshutdown                 there if, and only if, the last stop was clean
    .lock                                held by the process that has the directory open
    tailrace.format                      the version of what we write; a newer one is refused

The marker of a clean stop is taken away, on disk, before anything is opened: a crash at any later point is an
unclean stop.
"""

import logging

from tailrace.log import checkpoints
from tailrace.log.checkpoints import CLEAN_SHUTDOWN, FORMAT_FILE, RECOVERY_POINTS, START_OFFSETS
from tailrace.log.config import LogConfig
from tailrace.log.directory_state import DirectoryState, Place
from tailrace.log.errors import DirectoryInUse, JobUnderWay, LogOffline, StorageError, UnknownFormat
from tailrace.log.files import Files, join, parent, read_whole, replace_whole
from tailrace.log.log import Log
from tailrace.log.names import TopicPartition, parse_partition
from tailrace.log.recovery import RecoveryReport, recover
from tailrace.log.segment import DerivedCache, Segment

FORMAT_VERSION = 1
LOCK_FILE = ".lock"
CHECKPOINT_MS = 60_000
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'

logger = logging.getLogger(__name__)


class DataDirectory:
    def __init__(self, files: Files, path: str, config: LogConfig | None = None) -> None:
        """Opens every log in the directory, after recovery where that is needed. Raises DirectoryInUse,
        UnknownFormat.
        """
        self.files = files
        self.path = path
        self.config = config or LogConfig()
        self.logs: dict[TopicPartition, Log] = {}
        self.reports: dict[TopicPartition, RecoveryReport] = {}
        self._cache = DerivedCache()
        self._last_checkpoint_ms: int | None = None
        self.saving_offsets: OffsetsJob | None = None
        self._make_directory()
        lock = files.lock(join(path, LOCK_FILE))
        if lock is None:
            raise DirectoryInUse(f"{path} is in use by another process")
        self._lock = lock
        try:
            self._open()
        except BaseException as error:
            for log in self.logs.values():
                log.let_go()
            lock.release()
            if isinstance(error, OSError):
                raise StorageError(f"{path} cannot be opened", error) from error
            raise

    def _make_directory(self) -> None:
        """Afterwards the directory is there, and so are those above it, on disk."""
        missing, path = [], self.path
        while not self.files.exists(path):
            missing.append(path)
            path = parent(path)
        self.files.make_directory(self.path)
        for path in reversed(missing):
            self.files.sync_directory(parent(path))

    def _open(self) -> None:
        self._check_format()
        state = DirectoryState.read(self.files, self.path)
        for name in state.damaged:
            logger.warning("%s in %s is damaged: what it said is found out by reading the logs", name, self.path)
        self.was_clean = state.clean
        self._take_clean_marker()
        for name in self.files.directories_in(self.path):
            partition = parse_partition(name)
            if partition is not None:
                place = state.place(join(self.path, name), partition)
                self.logs[partition], self.reports[partition] = recover(
                    self.files, place, self.config, cache=self._cache
                )
        if not state.clean or not state.is_ours:
            self._save_what_recovery_found()
        if not state.is_ours:
            replace_whole(self.files, join(self.path, FORMAT_FILE), f"{FORMAT_VERSION}\n".encode())

    def _save_what_recovery_found(self) -> None:
        """So that what one start has looked at the next need not look at again."""
        for log in self.logs.values():
            if not log.is_saved:
                log.checkpoint(None)
        self._save_offsets()

    def _check_format(self) -> None:
        found = read_whole(self.files, join(self.path, FORMAT_FILE))
        if found is not None and (not found.strip().isdigit() or int(found) > FORMAT_VERSION):
            raise UnknownFormat(
                f"{self.path} has format {found.decode(errors='replace').strip()!r}, and this release knows "
                f"{FORMAT_VERSION}: open it with the release that wrote it, or a newer one"
            )

    def _take_clean_marker(self) -> None:
        if self.was_clean:
            self.files.remove(join(self.path, CLEAN_SHUTDOWN))
            self.files.sync_directory(self.path)

    def create(self, partition: TopicPartition, *, leader_epoch: int = 0) -> Log:
        """A new, empty log. Its directory is on disk with its first flush."""
        assert partition not in self.logs
        place = Place(join(self.path, str(partition)), partition, recovery_point=0, start_offset=0)
        try:
            log, _ = recover(self.files, place, self.config, leader_epoch=leader_epoch, cache=self._cache)
        except OSError as error:
            raise StorageError(f"{place.directory} cannot be made", error) from error
        self.logs[partition] = log
        return log

    def begin_save_offsets(self) -> "OffsetsJob":
        """A job that brings recovery points and start offsets to disk, and then removes what was deleted. Raises
        JobUnderWay while another one is out.
        """
        self._require_idle()
        self.saving_offsets = job = OffsetsJob(self)
        return job

    def _require_idle(self) -> None:
        if self.saving_offsets is not None:
            raise JobUnderWay(f"the checkpoints of {self.path} are being saved, which must come back first")

    def is_checkpoint_due(self, now_ms: int) -> bool:
        """Whether a log has rolled since the last checkpoint, or a minute has passed: so much may a crash cost to
        scan.
        """
        if self._last_checkpoint_ms is None:
            self._last_checkpoint_ms = now_ms
        return now_ms - self._last_checkpoint_ms >= CHECKPOINT_MS or any(
            log.wants_checkpoint for log in self.logs.values()
        )

    def checkpoint(self, now_ms: int) -> None:
        """Afterwards every log's recovery point is its end, all start offsets are on disk, and deleted segments are
        gone. Logs that have a job under way or are offline are left alone.
        """
        self._require_idle()
        for log in self.logs.values():
            if not log.is_saved and log.offline is None and log.is_idle:
                try:
                    log.checkpoint(now_ms)
                except LogOffline as error:  # it says so to whoever uses it; the others go on
                    logger.error("%s", error)
        self._save_offsets()
        self._last_checkpoint_ms = now_ms

    def _save_offsets(self) -> None:
        job = self.begin_save_offsets()
        job.run()
        job.finish()

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Afterwards the log ends at `end`, as `Log.truncate` says. The recovery point goes first, so that a
        crash in between does not take the missing end for a loss."""
        self._require_idle()
        log = self.logs[partition]
        log.require_idle()
        log.recovery_point = min(log.recovery_point, log.end_after_truncation(end))
        self._save_offsets()
        log.truncate(end)

    def close(self, now_ms: int) -> None:
        """Afterwards everything is on disk. If all went well the stop counts as clean, and the next start reads no
        data. Raises JobUnderWay, and does nothing, while a log has one.
        """
        self._require_idle()
        for log in self.logs.values():
            log.require_idle()
        try:
            for log in self.logs.values():
                log.close(now_ms)
            self._save_offsets()
            if all(log.is_cleanly_closed for log in self.logs.values()):
                self._leave_clean_marker()
        finally:
            self._lock.release()

    def _leave_clean_marker(self) -> None:
        try:
            replace_whole(self.files, join(self.path, CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)
        except OSError as error:
            raise StorageError(f"the clean stop of {self.path} could not be noted", error) from error


class OffsetsJob:
    """See `log/jobs.py` for the three steps. One at a time for a directory."""

    def __init__(self, directory: DataDirectory) -> None:
        logs = directory.logs.items()
        self._directory = directory
        self._points = [(log, log.recovery_point) for _, log in logs]
        self._files = directory.files
        self._path = directory.path
        self._recovery_points = checkpoints.encode_offsets({where: log.recovery_point for where, log in logs})
        self._start_offsets = checkpoints.encode_offsets({where: log.start_offset for where, log in logs})
        # A save under way would bring the files of a segment back: its log's turn comes with the next job.
        self._condemned: list[tuple[Log, Segment]] = [
            (log, segment) for _, log in logs if log.saving is None for segment in log.condemned
        ]
        self._error: OSError | None = None

    def run(self) -> None:
        try:
            replace_whole(self._files, join(self._path, RECOVERY_POINTS), self._recovery_points)
            replace_whole(self._files, join(self._path, START_OFFSETS), self._start_offsets)
            for _, segment in self._condemned:
                segment.remove()
        except OSError as error:
            self._error = error

    def finish(self) -> None:
        """Raises StorageError where the disk refused: the old offsets stand, and what was deleted is still there."""
        self._directory.saving_offsets = None
        if self._error is not None:
            raise StorageError(f"the checkpoints of {self._path} could not be saved", self._error) from self._error
        for log, recovery_point in self._points:
            log.recovery_point_on_disk = recovery_point
        for log, segment in self._condemned:
            log.condemned.remove(segment)
