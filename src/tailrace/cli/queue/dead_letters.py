"""Dead letters: messages that share groups gave up, with headers that say where they came from. Pure.

The names of the headers are Kafka's (KIP-1191); those for reason and time are ours.
"""

from typing import NamedTuple

from tailrace.cli.common.messages import Headers, Row

PREFIX = "__dlq.errors."
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"

_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_UINT32 = 0xFFFFFFFF
_INT31 = 0x7FFFFFFF


class DeadLetter(NamedTuple):
    """A message as it was, and where it came from, where that is known."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str | None
    partition: int | None

    @property
    def has_payload(self) -> bool:
        """False for one that was kept without (errors.deadletterqueue.copy.record.enable)."""
        return self.topic is None or self.key is not None or self.value is not None


def read(row: Row) -> DeadLetter:
    facts = {name: value.decode(errors="replace") for name, value in row.headers if name.startswith(PREFIX) and value}
    partition = facts.get(PARTITION, "")
    return DeadLetter(
        row.key,
        row.value,
        tuple((name, value) for name, value in row.headers if not name.startswith(PREFIX)),
        facts.get(TOPIC),
        int(partition) if partition.isdecimal() and len(partition) < 10 else None,
    )


def partition_in(letter: DeadLetter, topic: str, count: int, number: int) -> int:
    """Returns the partition of `topic`, which has `count`, for a dead letter: its own, or else that of its key, as
    Kafka's clients compute it, or else one after the other by `number`.
    """
    if topic == letter.topic and letter.partition is not None and letter.partition < count:
        return letter.partition
    return number % count if letter.key is None else (murmur2(letter.key) & _INT31) % count


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's clients find the partition of a key."""
    hashed = _MURMUR_SEED ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MURMUR_FACTOR & _UINT32
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _UINT32
        hashed = hashed * _MURMUR_FACTOR & _UINT32 ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MURMUR_FACTOR & _UINT32
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & _UINT32
    return hashed ^ hashed >> 15
