"""The errors that a log raises. Disk trouble is a family of its own: it is never the caller's fault."""

from typing import TypeVar

from tailrace.log.layout.damage import DamagedRange
from tailrace.log.layout.names import INTERNAL_TOPICS, TopicPartition

Raised = TypeVar("Raised", bound=BaseException)


def without_frames(error: Raised) -> Raised:
    """The same error, for an attribute: its traceback would keep all that the frames below and above had at hand, such
    as a request's bytes, and most often the object that keeps it, in a cycle.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class LogError(Exception):
    """Base of everything the log raises on purpose."""


class OffsetOutOfRange(LogError):
    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of the log, which has {start} to {end}")
        self.offset, self.start, self.end = offset, start, end


class Damaged(LogError):
    """The bytes asked for lie in a damaged range. Everything before and after it can be read."""

    def __init__(self, damage: DamagedRange) -> None:
        super().__init__(str(damage))
        self.damage = damage


class InvalidAppend(LogError):
    """The batches cannot be appended as they are; nothing was written."""


class OutOfOrderSequence(InvalidAppend):
    """An idempotent producer skipped a sequence number: something it sent before is missing."""


class InvalidProducerEpoch(InvalidAppend):
    """A newer instance of this producer has written: this one is a zombie."""


class StorageError(LogError):
    """The disk refused. `cause` is what the operating system said; the message names the file it said it of."""

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
    """This log takes no more appends until it is opened anew: a write or fsync failed, so memory and disk may
    differ.
    """

    def again(self) -> "LogOffline":
        """One to be raised. The log keeps this one: it must not keep the frames of those who were refused."""
        return LogOffline(self.message, self.cause)


class LogUnavailable(StorageError):
    """A partition that the offset checkpoints name, or that has a directory, and whose log cannot be opened.

    `is_lost` says that there are no segments to open: the directory, or all of them, are gone.
    """

    def __init__(self, partition: TopicPartition, data_directory: str, reason: str, *, is_lost: bool) -> None:
        self.partition = partition
        self.data_directory = data_directory
        self.reason = reason
        self.is_lost = is_lost
        is_internal = partition.topic in INTERNAL_TOPICS
        if is_lost:
            flags = "--apply --accept-loss --internal" if is_internal else "--apply --accept-loss"
            remedy = f"Restore it from a backup, or give its records up: tailrace log repair {data_directory} {flags}"
        else:
            remedy = "Make it readable, or restore it from a backup, and start again"
        what = f"the broker's own log {partition}" if is_internal else str(partition)
        LogError.__init__(self, f"{what} in {data_directory} is offline: {reason}. {remedy}")
        self.cause = OSError(reason)

    def again(self) -> "LogUnavailable":
        """One to be raised. The partition keeps this one: it must not keep the frames of refused requests."""
        return LogUnavailable(self.partition, self.data_directory, self.reason, is_lost=self.is_lost)


class JournalUnreadable(StorageError):
    """The disk does not give the journal back, and it may have acknowledged records that no log has."""

    def __init__(self, path: str, cause: OSError) -> None:
        LogError.__init__(
            self,
            f"{path} cannot be read: {cause.strerror or cause}. It may have acknowledged records that no log has. "
            "Make it readable; or move it away, which gives these records up; and start again",
        )
        self.cause = cause


class SegmentsMissing(LogError):
    """A checkpoint names this log, and it has no segment. Or it is one of the broker's own, and lacks records that were
    flushed.
    """


class JobUnderWay(LogError):
    """Another flush or checkpoint of this log has not come back yet."""


class LogClosed(LogError):
    """The log was closed; the caller should have stopped using it."""


class LogRemoved(LogClosed):
    """The log was removed together with its topic."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory} was removed")


class DirectoryInUse(LogError):
    """Another process has this data directory open."""


class ForeignDirectory(LogError):
    """The directory is Apache Kafka's, or another program's. Nothing in it was changed."""


class UnknownFormat(LogError):
    """The directory was written by a newer release, or by something else."""
