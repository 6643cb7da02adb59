"""The errors that a log raises. Errors of the disk have their own base class, `StorageError`: they are never the
caller's fault.
"""

from typing import TypeVar

from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import INTERNAL_TOPICS, TopicPartition

Raised = TypeVar("Raised", bound=BaseException)


def without_frames(error: Raised) -> Raised:
    """Returns the error without traceback and causes, so that an object can keep it.

    A traceback keeps the local variables of all its frames alive, such as a request's bytes, and most often also the
    object that keeps the error, in a cycle.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class LogError(Exception):
    """Base class of the errors that a log raises on purpose."""


class OffsetOutOfRange(LogError):
    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is out of range: the log has offsets {start} to {end}")
        self.offset, self.start, self.end = offset, start, end


class Damaged(LogError):
    """The requested bytes lie in a damaged range. Everything before and after it can be read."""

    def __init__(self, damage: DamagedRange) -> None:
        super().__init__(str(damage))
        self.damage = damage


class InvalidAppend(LogError):
    """The batches cannot be appended as they are; nothing was written."""


class OutOfOrderSequence(InvalidAppend):
    """An idempotent producer skipped a sequence number: something it sent before is missing."""


class InvalidProducerEpoch(InvalidAppend):
    """A newer instance of this producer has written: this one is fenced."""


class InvalidTransactionState(InvalidAppend):
    """A producer with an open transaction sent a batch that is not part of it."""


class StorageError(LogError):
    """A disk operation failed. `cause` is the operating system's error; the message names the file."""

    def __init__(self, message: str, cause: OSError) -> None:
        reason = cause.strerror or str(cause)
        if isinstance(cause.filename, str) and cause.filename not in message.split():
            reason = f"{cause.filename}: {reason}"
        super().__init__(f"{message}: {reason}")
        self.message = message
        self.cause = cause


class OutOfSpace(StorageError):
    """The disk is full. Nothing was lost; the same append may be tried again once there is room."""


class LogOffline(StorageError):
    """A write or fsync failed, so memory and disk may differ. The log takes no more appends until it is reopened."""

    def again(self) -> "LogOffline":
        """Returns a copy to raise. The log keeps this one, which must not hold the frames of refused requests."""
        return LogOffline(self.message, self.cause)


class LogUnavailable(StorageError):
    """The log of a partition cannot be opened, although an offset checkpoint names it or its directory exists.

    `is_lost`: there are no segments to open, because all of them or the whole directory are gone.
    """

    def __init__(self, partition: TopicPartition, data_directory: str, reason: str, *, is_lost: bool) -> None:
        self.partition = partition
        self.data_directory = data_directory
        self.reason = reason
        self.is_lost = is_lost
        is_internal = partition.topic in INTERNAL_TOPICS
        if is_lost:
            flags = "--apply --accept-loss --internal" if is_internal else "--apply --accept-loss"
            remedy = f"Restore it from a backup, or give up its records: tailrace log repair {data_directory} {flags}"
        else:
            remedy = "Make it readable, or restore it from a backup, and start again"
        what = f"internal partition {partition}" if is_internal else str(partition)
        LogError.__init__(self, f"{what} in {data_directory} is offline: {reason}. {remedy}")
        self.cause = OSError(reason)

    def again(self) -> "LogUnavailable":
        """Returns a copy to raise. The partition keeps this one, which must not hold the frames of refused requests."""
        return LogUnavailable(self.partition, self.data_directory, self.reason, is_lost=self.is_lost)


class JournalUnreadable(StorageError):
    """The journal cannot be read, and it may hold acknowledged records that are in no log."""

    def __init__(self, path: str, cause: OSError) -> None:
        LogError.__init__(
            self,
            f"cannot read {path}: {cause.strerror or cause}. It may hold acknowledged records that are in no log. "
            "Make it readable, or move it away, which gives up these records; then start again",
        )
        self.cause = cause


class SegmentsMissing(LogError):
    """An offset checkpoint names this log, and it has no segment; or the log of an internal topic lacks flushed
    records.
    """


class JobUnderWay(LogError):
    """Another flush or checkpoint of this log is still running."""


class LogClosed(LogError):
    """The log was closed. The caller should have stopped using it."""


class LogRemoved(LogClosed):
    """The log was removed together with its topic."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory} was removed")


class DirectoryInUse(LogError):
    """Another process has this data directory open."""


class ForeignDirectory(LogError):
    """The directory belongs to Apache Kafka or another program. Nothing in it was changed."""


class UnknownFormat(LogError):
    """The directory was written by a newer release, or by something else."""
