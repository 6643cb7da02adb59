"""The plan of `tailrace topic delete-records`: where each partition begins, and where it is to begin."""

from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.cli.common import output
from tailrace.cli.common.client import AdminClient
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics.offsets import Offsets, Partition, partitions_of
from tailrace.cli.common.topics.partition_choice import Choice
from tailrace.cli.common.topics.positions import Offset, Position
from tailrace.cli.common.topics.ranges import firsts
from tailrace.cli.common.topics.selection import require

if TYPE_CHECKING:
    from rich.table import Table


class Deletion(NamedTuple):
    partition: Partition
    start: int
    before: int  # the first offset that stays
    end: int

    @property
    def messages(self) -> int:
        """Counted by offsets."""
        return self.before - self.start

    def row(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "start_offset": self.start,
            "new_start_offset": self.before,
            "end_offset": self.end,
            "messages": self.messages,
        }


def plan(brokers: Connection, admin: AdminClient, chosen: list[str], position: Position) -> list[Deletion]:
    """Raises Failure for topics and partitions that are not there, and for an offset behind the end of one."""
    choice = Choice(chosen, "delete-records")
    metadata = brokers.metadata(admin)
    require(choice.topics, metadata.topics, brokers.bootstrap)
    partitions = choice.of(partitions_of(metadata, sorted(choice.topics)), "there is no partition")
    offsets = Offsets(brokers, admin)
    low, high = offsets.earliest(partitions), offsets.latest(partitions)
    if isinstance(position, Offset):
        for partition in partitions:
            if position.offset > high[partition]:
                why = f"{partition} ends at offset {high[partition]}, before {position.offset}"
                raise Failure(f"nothing was deleted: {why}. `--before latest` is all of it", ExitCode.REFUSED)
    before = firsts(offsets, partitions, position, low, high)
    return [Deletion(one, low[one], before[one], high[one]) for one in partitions]


def table(deletions: list[Deletion]) -> "Table":
    drawn = output.table("TOPIC", "PARTITION", "START", "NEW START", "END", "DELETED")
    for one in deletions:
        numbers = (one.start, one.before, one.end, one.messages)
        drawn.add_row(one.partition.topic, str(one.partition.number), *map(output.number, numbers))
    return drawn
