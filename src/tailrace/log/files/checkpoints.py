"""Kafka's checkpoint files, which are small text files, and their names in a data directory.

    recovery-point-offset-checkpoint   topic partition offset: recovery scans from here after a crash
    log-start-offset-checkpoint        topic partition offset: records below it are deleted
    cleaner-offset-checkpoint          topic partition offset: below it the log is compacted

A file has a line with the version, one with the count, then one per entry. The count reveals a truncated file. Files
are replaced as a whole, so that a crash leaves the old one or the new one.
"""

from collections.abc import Iterable, Mapping

from tailrace.log.layout.names import TopicPartition, parse_partition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
FORMAT_FILE = "tailrace.format"
RESTORED_FILE = "tailrace.restored"  # left by a restore, for the first start

_VERSION = 0


class CorruptCheckpoint(ValueError):
    """A checkpoint file is truncated, damaged or of an unknown version."""


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(entries)), *entries]).encode()


def decode_lines(data: bytes, *, fields: int) -> list[list[str]]:
    """Returns the entries, split into fields. Raises CorruptCheckpoint unless the file is complete."""
    try:
        version, count, *lines = data.decode().splitlines()
        if int(version) != _VERSION or int(count) != len(lines) or not data.endswith(b"\n"):
            raise CorruptCheckpoint(f"version {version}, {count} entries expected, {len(lines)} found")
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    entries = [line.split(" ") for line in lines]
    if any(len(entry) != fields for entry in entries):
        raise CorruptCheckpoint(f"an entry does not have {fields} fields")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_lines(f"{where.topic} {where.partition} {offset}" for where, offset in sorted(offsets.items()))


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Decodes a checkpoint of offsets. Raises CorruptCheckpoint, also for invalid partition names and offsets."""
    found = {}
    for topic, partition, offset in decode_lines(data, fields=3):
        where = parse_partition(f"{topic}-{partition}")
        if where is None or not (offset.isascii() and offset.isdigit()):
            raise CorruptCheckpoint(f"invalid entry {topic!r} {partition!r} {offset!r}")
        found[where] = int(offset)
    return found
