"""Removes logs, in two jobs (see `log/jobs.py` for the three steps of each).

    RemoveJob    the directory gets a name that ends in -delete: the log is gone, on disk, and its name is free
    DeleteJob    the files go, and the directory with them; nobody waits for it

A crash in between leaves a directory that no start takes for a log, and that the next one deletes. Readers that
have a piece of a log pinned read it to its end.
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
    name: str  # which its directory gets


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
            # Not before the new names are on disk: a log that is still there needs its offsets.
            offset_checkpoints.take_away(log for log, _ in self.removals.values())
            offset_checkpoints.save(self._noted)
        except OSError as error:
            self._error = without_frames(error)

    def _rename(self) -> None:
        files, path = self._directory.files, self._directory.path
        for log, name in self.removals.values():
            with suppress(FileNotFoundError):  # a job before this one, which failed after that, did it
                files.rename(log.directory, join(path, name))
        files.sync_directory(path)

    def finish(self) -> "DeleteJob | None":
        """What is to be deleted now; logs of the same names may be created. Raises StorageError where the disk
        refused: then they may not, and the removal may be begun again. What has its other name, on disk, is one of
        the leftovers all the same: to delete it may make the room that is missing.
        """
        self.is_under_way = False
        if self._is_renamed:
            names = (name for _, name in self.removals.values())
            self._directory.leftovers += [name for name in names if name not in self._directory.leftovers]
        if self._error is not None:
            partitions = ", ".join(map(str, self.removals))
            raise StorageError(
                f"{partitions} in {self._directory.path} could not be removed", self._error
            ) from self._error
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
            except OSError as error:  # the others may go
                self._left.append(name)
                self._error = without_frames(error)

    def _delete(self, path: str) -> None:
        files = self._directory.files
        with suppress(FileNotFoundError):  # a start deletes what the last process has not, or had begun to
            for name in files.files_in(path):
                remove_if_there(files, join(path, name))
            files.remove_directory(path)

    def finish(self) -> None:
        """Raises StorageError where something could not be deleted: it is one of the leftovers again."""
        self._directory.leftovers += self._left
        self._directory.put_away.difference_update(set(self._names) - set(self._left))
        if self._error is not None:
            message = f"{', '.join(self._left)} in {self._directory.path} could not be deleted"
            raise StorageError(message, self._error) from self._error
