"""The plan of `tailrace group reset`: from which offset to which, and what that skips or repeats."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.cli.common import output
from tailrace.cli.common.topics import ranges as spans
from tailrace.cli.common.topics.offsets import Offsets, Partition
from tailrace.cli.common.topics.positions import Offset, Position
from tailrace.cli.group.groups import Commits, CommittedOffset, Standing

if TYPE_CHECKING:
    from rich.table import Table


class Move(NamedTuple):
    """`asked` is what was asked for; None where it cannot be said: nothing that was never committed can be shifted."""

    standing: Standing
    asked: int | None

    @property
    def target(self) -> int | None:
        """The requested offset, within the bounds of the log."""
        return None if self.asked is None else min(max(self.asked, self.standing.start), self.standing.end)

    @property
    def is_change(self) -> bool:
        return self.target is not None and self.target != self.standing.committed

    @property
    def skipped(self) -> int:
        """How many messages will not be read, that would be; negative, if some are read again."""
        if self.target is None or self.standing.position is None:
            return 0
        return self.target - self.standing.position


Plan = dict[Partition, Move]


def to_position(offsets: Offsets, where: dict[Partition, Standing], position: Position) -> Plan:
    low = {partition: standing.start for partition, standing in where.items()}
    high = {partition: standing.end for partition, standing in where.items()}
    if isinstance(position, Offset):
        asked = dict.fromkeys(where, position.offset)
    else:
        asked = spans.firsts(offsets, list(where), position, low, high)
    return {partition: Move(standing, asked[partition]) for partition, standing in where.items()}


def to_offsets(where: dict[Partition, Standing], held: Commits) -> Plan:
    """To given offsets; partitions without one are left out."""
    return {partition: Move(where[partition], held[partition].offset) for partition in where if partition in held}


def shifted(where: dict[Partition, Standing], by: int) -> Plan:
    """From where members would go on, which is not what is committed if that is gone."""
    return {
        partition: Move(standing, None if standing.position is None else standing.position + by)
        for partition, standing in where.items()
    }


def commits_of(plan: Plan) -> Commits:
    return {
        partition: CommittedOffset(move.target)
        for partition, move in plan.items()
        if move.is_change and move.target is not None
    }


def table(plan: Plan) -> "Table":
    drawn = output.table("TOPIC", "PARTITION", "FROM", "TO", "EFFECT", texts=("EFFECT",))
    for partition, move in plan.items():
        before = "never" if move.standing.committed is None else output.number(move.standing.committed)
        after = "-" if move.target is None else output.number(move.target)
        drawn.add_row(partition.topic, str(partition.number), before, after, _effect(move))
    return drawn


def as_json(plan: Plan) -> list[dict[str, Any]]:
    """`skipped` is negative where messages are read again; `to` is null where nothing is committed that could shift."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.number,
            "from": move.standing.committed,
            "to": move.target,
            "asked": move.asked,
            "changed": move.is_change,
            "skipped": move.skipped,
        }
        for partition, move in plan.items()
    ]


def effect(moves: Iterable[Move]) -> str:
    """Returns a summary of all moves."""
    counts = [move.skipped for move in moves]
    repeated, skipped = -sum(filter(lambda count: count < 0, counts)), sum(filter(lambda count: count > 0, counts))
    said = [
        *([f"repeats {output.plural(repeated, 'message')}"] if repeated else []),
        *([f"skips {output.plural(skipped, 'message')}"] if skipped else []),
    ]
    return " and ".join(said) or "skips and repeats nothing"


def _effect(move: Move) -> str:
    if move.target is None:
        return "left out: it has no offset that could be shifted"
    standing = move.standing
    if standing.committed is None:
        said = f"begins here, with {output.plural(standing.end - move.target, 'message')} to read"
    elif not move.is_change:
        said = "is there already"
    else:
        said = effect([move])
    if move.asked is not None and move.asked < standing.start:
        said += f" (the log begins at {output.number(standing.start)}; asked for was {output.number(move.asked)})"
    elif move.asked is not None and move.asked > standing.end:
        said += f" (the log ends at {output.number(standing.end)}; asked for was {output.number(move.asked)})"
    return said
