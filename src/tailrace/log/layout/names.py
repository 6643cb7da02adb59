"""The names of partitions and their files on disk: Kafka's.

<topic>-<partition>/<20 digits of the base offset>.log   and beside it .index .timeindex .txnindex .sums
<topic>-<partition>/<20 digits of an offset>.snapshot    the producers as they stood at that offset
<topic>-<partition>/<20 digits>.log.cleaned              a compacted segment before its swap; likewise its derived files
<topic>-<partition>/<20 digits>.swap                     lists the segments that the compacted one replaces
<topic>-<partition>.<32 hexadecimal digits>-delete       removed: its files are being deleted
<topic>-<partition>.<32 hexadecimal digits>-stray        moved aside: its topic is not in the metadata log

Names of removed and stray directories end in letters, so they never parse as a partition, even if a topic is called
`x-delete`.
"""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
CHECKSUMS = ".sums"
SNAPSHOT = ".snapshot"
CUT = ".cut"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"
FLUSH_FAILED = "flush-failed"  # left by a log that went offline: the page cache cannot be trusted
PARTITION_METADATA = "partition.metadata"
REMOVED = "-delete"
STRAY = "-stray"

DERIVED = (INDEX, TIME_INDEX, TRANSACTION_INDEX, CHECKSUMS)

INTERNAL_TOPICS = frozenset({"__tailrace_metadata", "__consumer_offsets", "__transaction_state"})

_NUMBERED = re.compile(r"([0-9]{20})(\.[a-z]+)")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]*)")  # the names Kafka allows
_PUT_AWAY = re.compile(rf".*-(0|[1-9][0-9]*)\.[0-9a-f]{{32}}({REMOVED}|{STRAY})")
_NAME_MAX = 255  # bytes that a file system takes for a name


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


METADATA_PARTITION = TopicPartition("__tailrace_metadata", 0)


def numbered(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_numbered(name: str) -> tuple[int, str] | None:
    """Returns the offset and the suffix of a file's name, or None if it is not `<20 digits>.<suffix>`."""
    match = _NUMBERED.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def is_leftover(name: str, names: Collection[str]) -> bool:
    """Returns whether a file of `names` is of no use: temporary, or derived from a segment that is gone."""
    parsed = parse_numbered(name)
    is_orphan = parsed is not None and parsed[1] in DERIVED and numbered(parsed[0], LOG) not in names
    return is_orphan or name.endswith(TEMPORARY)


def parse_partition(directory: str) -> TopicPartition | None:
    match = _PARTITION.fullmatch(directory)
    return TopicPartition(match[1], int(match[2])) if match else None


def put_away_name(partition: TopicPartition, number: int, suffix: str) -> str:
    """Returns the name of a partition's directory after removal. The low 128 bits of `number` make it unique among
    those of the same partition. The topic is shortened if the name is too long for a file system.
    """
    ending = f"-{partition.partition}.{number % (1 << 128):032x}{suffix}"
    return partition.topic[: _NAME_MAX - len(ending)] + ending


def is_put_away(directory: str) -> bool:
    return _PUT_AWAY.fullmatch(directory) is not None


def without_remains(partitions: Iterable[TopicPartition], directories: Iterable[str]) -> set[TopicPartition]:
    """Returns the partitions that have no removed directory (`-delete`) among these."""
    ending = len(put_away_name(TopicPartition("", 0), 0, REMOVED)) - len("-0")
    removed = {name[:-ending] for name in directories if is_put_away(name) and name.endswith(REMOVED)}
    return {one for one in partitions if put_away_name(one, 0, REMOVED)[:-ending] not in removed}
