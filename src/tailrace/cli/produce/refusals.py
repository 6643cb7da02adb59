"""Why a message is not acknowledged, as the broker or the client said it, and what to do."""

from collections.abc import Mapping

from tailrace.cli.common.client import KafkaError
from tailrace.cli.common.connection import reason_of
from tailrace.cli.common.messages import Row

MAX_MESSAGE_BYTES = "max.message.bytes"
_POLICY = "cleanup.policy"
_BATCH_HEADER_BYTES = 61


def is_silence(error: KafkaError) -> bool:
    """Whether no broker responded."""
    return error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT)


def in_words(error: KafkaError, *, bootstrap: str, topic: str, message: Row, settings: Mapping[str, str]) -> str:
    """`settings` are the configs of the topic, none where they are unknown."""
    if is_silence(error):
        return f"no answer from {bootstrap}"
    if error.code() == KafkaError.KAFKA_STORAGE_ERROR:
        return (
            "the broker cannot store it, because its disk is full or has failed (KAFKA_STORAGE_ERROR).\n"
            "  The broker's log has the cause; where the disk is full, make room on it"
        )
    size, limit = message.size, int(settings.get(MAX_MESSAGE_BYTES, 0))
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and limit and size + _BATCH_HEADER_BYTES > limit:
        return (
            f"it is too large: the message has {size:,} bytes, and {MAX_MESSAGE_BYTES} of {topic} is {limit:,} "
            "for a batch with its header.\n"
            f"  `tailrace topic alter {topic} --set {MAX_MESSAGE_BYTES}=N` allows more"
        )
    if error.code() == KafkaError.INVALID_RECORD and message.key is None and "compact" in settings.get(_POLICY, ""):
        return (
            f"it has no key, and {topic} is compacted ({_POLICY}={settings[_POLICY]}): it keeps the newest message of "
            "each key.\n  --key KEY gives all messages one, --key-separator SEP takes it from each line"
        )
    return reason_of(error)
