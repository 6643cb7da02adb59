"""Positions that groups have held, as a tailrace broker records them in `__tailrace_positions`."""

from datetime import datetime
from typing import TYPE_CHECKING

from tailrace.cli.common.client import ClusterMetadata
from tailrace.cli.common.connection import Connection
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics import published
from tailrace.cli.common.topics.offsets import Partition
from tailrace.cli.group.groups import Commits, CommittedOffset
from tailrace.facts import positions
from tailrace.facts.document import UnreadableFact
from tailrace.facts.positions import GroupPositions
from tailrace.util import times

if TYPE_CHECKING:
    from tailrace.facts.positions import Unmoved

TOPIC = "__tailrace_positions"


def moment(text: str) -> int:
    """The time given with --at, in milliseconds since 1970."""
    try:
        return times.milliseconds(times.parse(text, datetime.now().astimezone()))
    except times.NoTime as error:
        raise Failure(f"--at: {error}", ExitCode.USAGE) from None


class History:
    def __init__(self, connection: Connection, metadata: ClusterMetadata) -> None:
        self._connection = connection
        self.is_kept = TOPIC in metadata.topics

    def held(self, name: str, at: int) -> Commits:
        """Returns the offsets that a group held at a time. Raises Failure if they are not known."""
        if not self.is_kept:
            raise Failure(
                f"past positions of groups are not known: there is no topic {TOPIC} at {self._connection.bootstrap}\n"
                "  a tailrace broker has it from a minute after the first commit; other brokers do not record positions"
            )
        records = self._records(name)
        held = positions.held_at(records, at)
        if held is None:
            raise Failure(self._too_old(name, at, records), ExitCode.NOT_FOUND)
        return {
            Partition(topic, number): CommittedOffset(offset)
            for topic, partitions in sorted(held.items())
            for number, offset in sorted(partitions.items())
        }

    def unmoved(self, name: str, commits: Commits) -> "dict[Partition, Unmoved]":
        """Since when the committed offsets are what they are; without those of which that is not known."""
        if not self.is_kept:
            return {}
        found = positions.unmoved(self._records(name))
        return {
            partition: found[partition]
            for partition, commit in commits.items()
            if partition in found and found[partition].offset == commit.offset
        }

    def _records(self, name: str) -> list[GroupPositions]:
        key = name.encode()
        try:
            return [
                positions.decode(message.value() or b"")
                for message in published.all_of(self._connection, TOPIC)
                if message.key() == key
            ]
        except UnreadableFact as error:
            raise Failure(f"{TOPIC} cannot be read: {error}. Use a newer release of tailrace") from None

    def _too_old(self, name: str, at: int, records: list[GroupPositions]) -> str:
        oldest = next((record.at for record in records if record.complete), None)
        if oldest is None:
            return (
                f"no position of group {name} is recorded\n"
                "  positions are recorded a minute after a commit (tailrace.group.history.interval.ms)"
            )
        return (
            f"where group {name} was at {shown(at)} is not known: its oldest recorded position is of {shown(oldest)}\n"
            "  the broker keeps positions for tailrace.group.history.ms"
        )


def shown(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).astimezone().isoformat(" ", "seconds")
