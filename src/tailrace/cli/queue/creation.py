"""The plan of `tailrace queue create`: what there is to make, checked before anything is made."""

from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.cli.common import output, units
from tailrace.cli.common.output import ExitCode, Failure
from tailrace.cli.common.topics import positions
from tailrace.cli.common.topics.offsets import Offsets, Partition, partitions_of
from tailrace.cli.common.topics.positions import Earliest, Latest, Time
from tailrace.cli.common.topics.ranges import firsts
from tailrace.cli.common.topics.selection import require, require_legal
from tailrace.cli.queue.here import Here, members_of, require_no_members
from tailrace.cli.queue.requests import TopicPartition

if TYPE_CHECKING:
    from tailrace.cli.common.topics.positions import Position

DEAD_LETTER = "errors.deadletterqueue.topic.name"
TAKES_DEAD_LETTERS = "errors.deadletterqueue.group.enable"  # of a topic
RETRY_DELAY = "tailrace.share.retry.delay.ms"
RESET = "share.auto.offset.reset"
ATTEMPTS = "share.delivery.count.limit"
LOCK = "share.record.lock.duration.ms"


class Asked(NamedTuple):
    """What the options say; None where an option was not given."""

    group: str
    topic: str
    start: str
    dead_letter: str | None
    attempts: int
    lock: str
    retry_delay: str | None

    @property
    def configs(self) -> dict[str, str]:
        """Group configs; partitions that are added later are read from their first message."""
        delay = self.retry_delay or "1s"
        return {
            RESET: "earliest",
            ATTEMPTS: str(self.attempts),
            LOCK: str(units.milliseconds("--lock", self.lock)),
            RETRY_DELAY: str(0 if delay == "0" else units.milliseconds("--retry-delay", delay)),
            **({} if self.dead_letter is None else {DEAD_LETTER: self.dead_letter}),
        }


class Plan(NamedTuple):
    """`missing` are configs that the broker does not have, and that were not asked for."""

    asked: Asked
    configs: dict[str, str]
    missing: list[str]
    starts: dict[Partition, int]
    waiting: int
    makes_dead_letter: bool

    def as_json(self, *, dry_run: bool) -> dict[str, Any]:
        return {
            "name": self.asked.group,
            "topic": self.asked.topic,
            "dry_run": dry_run,
            "starts": [{"partition": at.number, "offset": offset} for at, offset in self.starts.items()],
            "messages": self.waiting,
            "dead_letter": self.asked.dead_letter,
            "dead_letter_created": self.makes_dead_letter,
            "configs": self.configs,
        }


def plan(here: Here, asked: Asked) -> Plan:
    """Raises Failure where it cannot be done."""
    position = _position(asked.start)
    configs = asked.configs
    require([asked.topic], here.metadata.topics, here.brokers.bootstrap, makes=True)
    _require_free(here, asked)
    known = here.requests.group_configs(asked.group)
    missing = [name for name in configs if name not in known]
    if asked.dead_letter is not None and DEAD_LETTER in missing:
        raise Failure("the broker has no dead letter queues (share.version 2, Kafka 4.4)", ExitCode.REFUSED)
    if asked.retry_delay not in (None, "0") and RETRY_DELAY in missing:
        raise Failure(f"the broker has no retry delays ({RETRY_DELAY})", ExitCode.REFUSED)
    makes_dead_letter = asked.dead_letter is not None and _is_to_be_made(here, asked, asked.dead_letter)
    configs = {name: value for name, value in configs.items() if name not in missing}
    here.requests.alter_group_configs(asked.group, configs, validate_only=True)
    offsets = Offsets(here.brokers, here.admin)
    partitions = partitions_of(here.metadata, [asked.topic])
    low, high = offsets.earliest(partitions), offsets.latest(partitions)
    starts = firsts(offsets, partitions, position, low, high)
    waiting = sum(high[at] - start for at, start in starts.items())
    return Plan(asked, configs, missing, starts, waiting, makes_dead_letter)


def carry_out(here: Here, made: Plan) -> None:
    """The group comes last: a queue that exists has all that it needs."""
    asked = made.asked
    if made.makes_dead_letter:
        _make_topic(here, str(asked.dead_letter))
    here.requests.alter_group_configs(asked.group, made.configs, validate_only=False)
    starts = {TopicPartition(*at): offset for at, offset in made.starts.items()}
    here.requests.move(asked.group, starts)


def show(made: Plan, *, dry_run: bool) -> None:
    asked = made.asked
    verb = "would create" if dry_run else "created"
    print(f"{verb} queue {asked.group} on {asked.topic}, with {output.plural(made.waiting, 'message')} to work on")
    if asked.dead_letter is not None:
        new = f" ({'would be created' if dry_run else 'created'})" if made.makes_dead_letter else ""
        print(f"  dead letters go to {asked.dead_letter}{new}")
    for name, value in made.configs.items():
        print(f"  {name}: {units.explained(name, value)}")
    for name in made.missing:
        output.warn(f"this broker has no {name}; the queue goes without")
    if asked.dead_letter is None:
        output.warn(f"no dead letters: a message that fails {asked.attempts} times is given up; --dead-letter keeps it")


def _position(text: str) -> "Position":
    found = positions.given(text, "--from")
    if not isinstance(found, Earliest | Latest | Time):
        raise Failure(f"--from takes earliest, latest or a time, not {text!r}", ExitCode.USAGE)
    return found


def _require_free(here: Here, asked: Asked) -> None:
    group = here.requests.share_group(asked.group)
    if group is None:
        return
    if any(at.topic == asked.topic for at in here.requests.offsets(asked.group)):
        raise Failure(
            f"queue {asked.group} on {asked.topic} exists\n"
            f"  `tailrace queue show {asked.group}` shows it, and `tailrace queue set` changes it",
            ExitCode.REFUSED,
        )
    require_no_members(asked.group, members_of(group), "nothing was created")


def _is_to_be_made(here: Here, asked: Asked, dead_letter: str) -> bool:
    require_legal(dead_letter)
    if dead_letter == asked.topic:
        raise Failure("--dead-letter cannot be the topic itself: its dead letters would be work again", ExitCode.USAGE)
    if dead_letter not in here.metadata.topics:
        return True
    if here.topic_config(dead_letter, TAKES_DEAD_LETTERS) != "true":
        raise Failure(
            f"topic {dead_letter} exists, and takes no dead letters\n"
            f"  `tailrace topic alter {dead_letter} --set {TAKES_DEAD_LETTERS}=true` allows them",
            ExitCode.REFUSED,
        )
    return False


def _make_topic(here: Here, name: str) -> None:
    from tailrace.cli.common.client import NewTopic
    from tailrace.cli.common.connection import REQUEST_SECONDS

    topic = NewTopic(name, 1, -1, config={TAKES_DEAD_LETTERS: "true"})
    future = here.admin.create_topics([topic], request_timeout=REQUEST_SECONDS)[name]
    here.brokers.result(future, f"topic {name} is not created")
