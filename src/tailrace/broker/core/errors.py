"""Maps exceptions to Kafka's error codes. The only module that does."""

from tailrace.log.layout import errors as log_errors
from tailrace.protocol.errors import ErrorCode
from tailrace.records.errors import CorruptBatch, CorruptRecords, TooLarge

# of an error message: a string in a response has at most 32,767 bytes, and clients choose the names in it
_WORDS_MAX = 1_000


def in_short(message: str) -> str:
    """Shortens a message that is too long, so that any response with it can be encoded."""
    return message if len(message) <= _WORDS_MAX else f"{message[:_WORDS_MAX]}…"


class Refused(Exception):
    """A request, or a part of it, is refused, with an error code for the client and a message for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        self.message = in_short(message)
        super().__init__(self.message)


# The first match counts.
_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (TooLarge, ErrorCode.MESSAGE_TOO_LARGE),  # clients split a batch that is too large, and try again
    (CorruptRecords, ErrorCode.INVALID_RECORD),  # the client sent it like that: a retry brings the same
    (CorruptBatch, ErrorCode.CORRUPT_MESSAGE),  # may have been corrupted in transit: clients retry
    (log_errors.OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (log_errors.InvalidProducerEpoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    (log_errors.InvalidTransactionState, ErrorCode.INVALID_TXN_STATE),
    (log_errors.InvalidAppend, ErrorCode.INVALID_RECORD),
    (log_errors.OffsetOutOfRange, ErrorCode.OFFSET_OUT_OF_RANGE),
    (log_errors.Damaged, ErrorCode.CORRUPT_MESSAGE),
    (log_errors.StorageError, ErrorCode.KAFKA_STORAGE_ERROR),
    (log_errors.LogRemoved, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),  # its topic was deleted meanwhile
)


def code_of(error: Exception) -> ErrorCode:
    if isinstance(error, Refused):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
