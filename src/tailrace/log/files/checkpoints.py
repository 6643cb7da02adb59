"""Kafka's small text files: a version, a count, then a line an entry; and the names of those of a data directory.

    recovery-point-offset-checkpoint   topic partition offset: from where a crash makes us scan
    log-start-offset-checkpoint        topic partition offset: what was deleted below stays deleted
    cleaner-offset-checkpoint          topic partition offset: below it the log is compacted

The count makes a cut file show. They are replaced as a whole, so that a crash leaves the old one or the new one.
"""

from collections.abc import Iterable, Mapping

from tailrace.log.layout.names import TopicPartition, parse_partition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
FORMAT_FILE = "tailrace.format"

_VERSION = 0


class CorruptCheckpoint(ValueError):
    """The file is not what its first two lines promise."""


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(entries)), *entries]).encode()


def decode_lines(data: bytes, *, fields: int) -> list[list[str]]:
    """The entries, split into their fields. Raises CorruptCheckpoint unless all that the file announces is there."""
    try:
        version, count, *lines = data.decode().splitlines()
        if int(version) != _VERSION or int(count) != len(lines) or not data.endswith(b"\n"):
            raise CorruptCheckpoint(f"version {version}, {count} entries announced, {len(lines)} found")
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    entries = [line.split(" ") for line in lines]
    if any(len(entry) != fields for entry in entries):
        raise CorruptCheckpoint(f"an entry has other than {fields} fields")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_lines(f"{where.topic} {where.partition} {offset}" for where, offset in sorted(offsets.items()))


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Raises CorruptCheckpoint, also for names and offsets that no log can have."""
    found = {}
    for topic, partition, offset in decode_lines(data, fields=3):
        where = parse_partition(f"{topic}-{partition}")
        if where is None or not (offset.isascii() and offset.isdigit()):
            raise CorruptCheckpoint(f"{topic!r} {partition!r} {offset!r} is no entry")
        found[where] = int(offset)
    return found
