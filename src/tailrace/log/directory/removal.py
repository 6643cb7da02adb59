"""Removes logs, in two jobs (see `log/jobs.py` for the three steps of each).

    RemoveJob    renames the directory to a name that ends in -delete: the log is removed, durably, and its name is free
    DeleteJob    deletes the files and the directory, in the background

A crash in between leaves a directory that no start opens as a log, and that the next start deletes. Pinned slices of a
removed log can be read to their end.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tailrace.log.disk.interface import join, remove_if_there
from tailrace.log.layout.errors import StorageError, without_frames
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log

if TYPE_CHECKING:
    from tailrace.log.directory.directory import DataDirectory


class Removal(NamedTuple):
    log: Log
    name: str  # the new name of its directory


class RemoveJob:
    def __init__(self, directory: "DataDirectory", removals: dict[TopicPartition, Removal]) -> None:
        self.removals = removals
        self.is_under_way = True
        self._directory = directory
        logs = [log for log, _ in removals.values()]
        self._jobs = [job for log in logs for job in (log.flushing, log.saving, log.replacing) if job is not None]
        self._saving_offsets = directory.saving_offsets
        self._noted = directory.note_offsets()
        self._is_renamed = False
        self._error: OSError | None = None

    def run(self) -> None:
        for job in self._jobs:
            job.wait_while_running()
        if self._saving_offsets is not None:
            self._saving_offsets.wait_while_running()
        offset_checkpoints = self._directory.offset_checkpoints
        try:
            self._rename()
            self._is_renamed = True
            # Not before the new names are on disk: a log that still exists needs its offsets.
            offset_checkpoints.take_away(log for log, _ in self.removals.values())
            offset_checkpoints.save(self._noted)
        except OSError as error:
            self._error = without_frames(error)

    def _rename(self) -> None:
        files, path = self._directory.files, self._directory.path
        for log, name in self.removals.values():
            with suppress(FileNotFoundError):  # renamed by an earlier job, which failed after that
                files.rename(log.directory, join(path, name))
        files.sync_directory(path)

    def finish(self) -> "DeleteJob | None":
        """Returns the job that deletes the files; logs of the same names may be created from now on. Raises
        StorageError if the disk refused: then they may not, and the removal may be begun again. Directories that were
        renamed, durably, are among the leftovers in either case: deleting them may free the space that is missing.
        """
        self.is_under_way = False
        if self._is_renamed:
            names = (name for _, name in self.removals.values())
            self._directory.leftovers += [name for name in names if name not in self._directory.leftovers]
        if self._error is not None:
            partitions = ", ".join(map(str, self.removals))
            raise StorageError(f"cannot remove {partitions} in {self._directory.path}", self._error) from self._error
        for partition in self.removals:
            del self._directory.removing[partition]
        return self._directory.begin_delete_leftovers()


class DeleteJob:
    def __init__(self, directory: "DataDirectory", names: list[str]) -> None:
        self._directory = directory
        self._names = names
        self._left: list[str] = []
        self._error: OSError | None = None

    def run(self) -> None:
        for name in self._names:
            try:
                self._delete(join(self._directory.path, name))
            except OSError as error:  # delete the others all the same
                self._left.append(name)
                self._error = without_frames(error)

    def _delete(self, path: str) -> None:
        files = self._directory.files
        with suppress(FileNotFoundError):  # a start repeats a deletion that was interrupted
            for name in files.files_in(path):
                remove_if_there(files, join(path, name))
            files.remove_directory(path)

    def finish(self) -> None:
        """Raises StorageError if something could not be deleted: it is among the leftovers again."""
        self._directory.leftovers += self._left
        self._directory.put_away.difference_update(set(self._names) - set(self._left))
        if self._error is not None:
            message = f"cannot delete {', '.join(self._left)} in {self._directory.path}"
            raise StorageError(message, self._error) from self._error
