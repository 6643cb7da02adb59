"""How a partition and its files are called on disk: Kafka's names.

<topic>-<partition>/<20 digits of the base offset>.log   and beside it .index .timeindex .txnindex .sums
<topic>-<partition>/<20 digits of an offset>.snapshot    the producers as they stood at that offset
"""

import re
from typing import NamedTuple

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SUMS = ".sums"
SNAPSHOT = ".snapshot"
CUT = ".cut"
TEMPORARY = ".tmp"
FLUSH_FAILED = "flush-failed"  # left by a log that went offline: the page cache is not to be believed

DERIVED = (INDEX, TIME_INDEX, TRANSACTION_INDEX, SUMS)

_NUMBERED = re.compile(r"([0-9]{20})(\.[a-z]+)")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]*)")  # the names Kafka allows


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def numbered(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_numbered(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of a file's name, or None where it has another form."""
    match = _NUMBERED.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition(directory: str) -> TopicPartition | None:
    match = _PARTITION.fullmatch(directory)
    return TopicPartition(match[1], int(match[2])) if match else None
