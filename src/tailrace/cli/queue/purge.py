"""The plan of `tailrace queue purge`: a queue moves to the end of its topic."""

from typing import NamedTuple

from tailrace.cli.common.topics.offsets import Offsets, Partition, existing
from tailrace.cli.queue.here import Here
from tailrace.cli.queue.requests import TopicPartition


class Plan(NamedTuple):
    ends: dict[Partition, int]
    messages: int


def plan(here: Here, name: str, topic: str) -> Plan:
    offsets = {Partition(*at): one for at, one in here.offsets_of(name, topic).items()}
    ends = Offsets(here.brokers, here.admin).latest(existing(offsets, here.metadata))
    messages = 0
    for at, end in ends.items():
        start, unfinished = offsets[at].start, offsets[at].unfinished
        messages += end - (start or 0) if unfinished is None else unfinished
    return Plan(ends, messages)


def carry_out(here: Here, name: str, made: Plan) -> None:
    here.requests.move(name, {TopicPartition(*at): end for at, end in made.ends.items()}, is_purge=True)
