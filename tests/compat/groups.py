"""Groups whose members are processes, and whether what was delivered to them is what should have been.

Members (`members/`, `members/talking.py`) tell what happens to them. `Group.check` goes through all of it in the order
in which it happened: a partition has one owner at a time, who is given its messages from the committed offset on, one
after the other. So nothing is skipped, and what is delivered again is exactly what had not been committed.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import parts
import pytest
from compat import sources
from compat.clients.confluent import ConfluentClient
from compat.contract import MARKS, Message
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

PROGRAMS = Path(__file__).parent / "members"
SECONDS = 30
HEARTBEAT_MS = 200
LONG_MS = 30_000  # a session that nobody lets expire: what moves partitions before that is something else
CONSUMER_SESSION_MS = 4_000  # of members of the consumer protocol (KIP-848), for which the broker sets it
SETTINGS = {  # of a broker for groups
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.assignment.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_MS),
    "group.consumer.min.session.timeout.ms": "100",
}
KINDS = ("confluent", "aiokafka", "kafka-python", "kafkajs", "java")
CONSUMER = "-848"  # at the end of a kind: the client speaks the consumer protocol
CONSUMER_KINDS = (f"confluent{CONSUMER}", f"java{CONSUMER}")

Place = tuple[str, int]  # topic, partition


def each_kind(*kinds: str) -> pytest.MarkDecorator:
    """Runs a test with each kind of member; all of them unless named."""
    return pytest.mark.parametrize(
        "kind", [pytest.param(kind, marks=MARKS.get(kind.removesuffix(CONSUMER), ())) for kind in kinds or KINDS]
    )


@functools.cache
def _java_command() -> list[str]:
    alone = {"bootstrap": "127.0.0.1:1", "group": "g", "topics": "t"} | _milliseconds()
    jars = ("kafka-clients-*", "slf4j-api-*")
    return sources.fast_command(PROGRAMS / "Member.java", jars, _arguments(alone), "go\ngo\nleave\n")


def _milliseconds(session: int = LONG_MS, poll: int = LONG_MS) -> dict[str, object]:
    return {"session_ms": session, "heartbeat_ms": HEARTBEAT_MS, "poll_ms": poll, "metadata_ms": 60_000}


def _arguments(settings: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def _command(kind: str) -> list[str]:
    match kind.removesuffix(CONSUMER):
        case "java":
            return _java_command()
        case "kafkajs":
            return ["node", str(PROGRAMS / "kafkajs.js")]
    return [sys.executable, "-W", "ignore", "-m", f"compat.members.{kind.removesuffix(CONSUMER).replace('-', '_')}"]


def _environment() -> dict[str, str]:
    modules = {"PYTHONPATH": str(PROGRAMS.parents[1]), "NODE_PATH": str(parts.kafkajs() / "node_modules")}
    return {**os.environ, **modules, "NODE_NO_WARNINGS": "1"}


class Event(NamedTuple):
    at: int  # nanoseconds
    member: "Member"
    name: str
    what: dict[str, Any]

    @property
    def partitions(self) -> set[Place]:
        return {(topic, partition) for topic, partition in self.what["partitions"]}


class Member:
    """`owned` and `positions` (what comes next, of what it was given since it owns it) are as it told last.

    One that `keeps` goes on where it was in partitions that are given to it again; others begin where the group is.
    """

    def __init__(self, kind: str, group: "Group", settings: Mapping[str, object], errors: Path) -> None:
        self.kind = kind
        self.name = errors.name.partition(".")[0]
        self.owned: set[Place] = set()
        self.positions: dict[Place, int] = {}
        self.told: Counter[str] = Counter()
        self.may_end = False
        is_incremental = settings.get("assignor") == "cooperative" or kind.endswith(CONSUMER)
        self.keeps = kind == "kafka-python" or is_incremental
        self._group = group
        self._errors = errors
        with errors.open("wb") as output:
            self._process = subprocess.Popen(
                [*_command(kind), *_arguments(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=_environment(),
            )
        self._reader = threading.Thread(target=self._read, name=self.name)
        self._reader.start()

    def __repr__(self) -> str:
        return self.name

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    told = json.loads(line)
                    self._group.note(Event(told.pop("at"), self, told.pop("event"), told))
        self._group.note(Event(time.monotonic_ns(), self, "ended", {}))

    def describe(self) -> str:
        told = f"{self.name}: {dict(self.told)}, owns {sorted(self.owned)}, is at {self.positions}"
        return f"{told}\n{self._errors.read_text(errors='replace')[-2000:]}".rstrip()

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"ended by itself: {self.describe()}") from None

    def commit(self) -> None:
        self._group.commit(self)

    def hold(self) -> None:
        """No more does it ask for messages; KafkaJS asks by itself, and holds the next one."""
        self.tell("hold")

    def go(self) -> None:
        self.tell("go")

    def leave(self) -> None:
        self.may_end = True
        self.tell("leave")
        self._group.wait(lambda: self.told["ended"], f"{self} leaves")
        assert self._process.wait(SECONDS) == 0, self.describe()
        assert self.told["left"], self.describe()

    def kill(self) -> None:
        self.may_end = True
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def close(self) -> None:
        self.kill()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


class Group:
    """Everything that is delivered to it, and all it has committed, is known here; nobody else may commit."""

    def __init__(self, bootstrap: str, name: str, topics: Mapping[str, int], directory: Path) -> None:
        """`topics`: how many partitions each has. Those that exist are to be empty."""
        self.name = name
        self.members: list[Member] = []
        self.events: list[Event] = []
        self.deliveries: Counter[tuple[Place, int]] = Counter()  # how often each message was delivered
        self.ends: dict[Place, int] = {}
        self.committed: dict[Place, int] = {}
        self._bootstrap = bootstrap
        self._reference = ConfluentClient(bootstrap)
        self._directory = directory
        self._changed = threading.Condition()
        self.extend(topics)

    def extend(self, topics: Mapping[str, int]) -> None:
        """There are more topics from now on."""
        self.ends |= {(topic, n): 0 for topic, count in topics.items() for n in range(count)}

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.ends})

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if not member.may_end]

    def start(self, kind: str, *, session: int = LONG_MS, poll: int = LONG_MS, **more: object) -> Member:
        """It joins while the test goes on. `session` and `poll` are timeouts, in milliseconds."""
        where = {"bootstrap": self._bootstrap, "group": self.name}
        what = {} if "pattern" in more else {"topics": ",".join(self.topics)}
        protocol = "consumer" if kind.endswith(CONSUMER) else "classic"
        settings = {**where, **what, **_milliseconds(session, poll), "protocol": protocol, **more}
        errors = self._directory / f"{len(self.members)}-{kind}.{self.name}.stderr"
        self.members.append(Member(kind, self, settings, errors))
        return self.members[-1]

    def close(self) -> None:
        for member in self.members:
            member.close()

    def note(self, event: Event) -> None:
        """Called by the threads that listen to the members."""
        member = event.member
        with self._changed:
            self.events.append(event)
            member.told[event.name] += 1
            match event.name:
                case "assigned":
                    member.owned |= event.partitions
                    kept = member.owned if member.keeps else member.owned - event.partitions
                    member.positions = {place: n for place, n in member.positions.items() if place in kept}
                case "revoked" | "lost":
                    member.owned -= event.partitions
                case "message":
                    place = (event.what["topic"], event.what["partition"])
                    member.positions[place] = event.what["offset"] + 1
                    self.deliveries[place, event.what["offset"]] += 1
                case "committed":
                    self.committed |= {(topic, n): offset for topic, n, offset in event.what["offsets"]}
                case "leaving" | "ended":
                    member.owned, member.positions = set(), {}
            self._changed.notify_all()

    def wait(self, done: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        with self._changed:
            while not done():
                ended = [member for member in self.running if member.told["ended"]]
                assert not ended, f"ended by itself: {ended[0].describe()}"
                assert self._changed.wait(deadline - time.monotonic()), f"not in time: {what}\n{self.describe()}"

    def describe(self) -> str:
        told = f"ends {self.ends}, committed {self.committed}"
        return "\n".join([told, *(member.describe() for member in self.members)])

    def settle(self, *members: Member, sizes: Iterable[int] | None = None) -> None:
        """Waits until these share all partitions; as evenly as may be, unless told how many each has."""
        counts = sorted(sizes or (len(range(n, len(self.ends), len(members))) for n in range(len(members))))

        def is_settled() -> bool:
            owned = Counter(place for member in members for place in member.owned)
            is_even = sorted(len(each.owned) for each in members) == counts
            return is_even and owned == Counter(self.ends.keys()) and all(each.told["assigned"] for each in members)

        self.wait(is_settled, f"{members} share all partitions")

    def produce(self, each: int = 5) -> None:
        """So many messages in each partition, that tell where they are."""
        for topic, partition in self.ends:
            self.produce_to((topic, partition), each)

    def produce_to(self, place: Place, count: int) -> None:
        topic, partition = place
        numbers = range(self.ends[place], self.ends[place] + count)
        self._reference.produce(topic, [Message(_value(place, n)) for n in numbers], partition=partition)
        self.ends[place] += count

    def catch_up(self, *members: Member) -> None:
        """Waits until each message was delivered to him of these who owns its partition, or is committed."""

        def has_caught_up() -> bool:
            positions = {
                place: member.positions.get(place, self.committed.get(place, 0))
                for member in members
                for place in member.owned
            }
            return positions == self.ends

        self.wait(has_caught_up, f"{members} catch up")

    def deliver(self, *members: Member, each: int = 5) -> None:
        self.produce(each)
        self.catch_up(*members)

    def commit(self, *members: Member) -> None:
        refused = self._commit(members)
        assert not refused, refused

    def commit_all(self, *members: Member) -> None:
        """Also if it takes several attempts, because the group is rebalanced meanwhile."""
        deadline = time.monotonic() + SECONDS
        while self.committed != self.ends:
            assert time.monotonic() < deadline, self.describe()
            self._commit(members)
            self.catch_up(*members)

    def _commit(self, members: Iterable[Member]) -> list[Event]:
        """Those that were refused."""
        mark = len(self.events)
        for member in members:
            member.tell("commit")

        def answers() -> list[Event]:
            return [event for event in self.events[mark:] if event.name in ("committed", "refused")]

        self.wait(lambda: {event.member for event in answers()} == set(members), "each has committed")
        return [event for event in answers() if event.name == "refused"]

    @contextlib.contextmanager
    def handing_over(self) -> Iterator[None]:
        """What is delivered meanwhile is exactly what was and is not committed, except where nothing changes hands."""
        owners = {place: member for member in self.members for place in member.owned}
        assignments = {member: member.told["assigned"] for member in self.members}
        uncommitted = {(at, n) for at, n in self.deliveries if n >= self.committed.get(at, 0)}
        before = Counter(self.deliveries)
        yield
        with self._changed:
            going_on = {each for each, count in assignments.items() if each.keeps or each.told["assigned"] == count}
            kept = {place for place, member in owners.items() if member in going_on and place in member.owned}
            assert set(self.deliveries - before) == {(at, n) for at, n in uncommitted if at not in kept}

    @contextlib.contextmanager
    def undisturbed(self, *members: Member) -> Iterator[None]:
        """They are given nothing and nothing is taken from them."""
        names = ("assigned", "revoked", "lost")
        before = [(member, name, member.told[name]) for member in members for name in names]
        yield
        assert [(member, name, member.told[name]) for member, name, _ in before] == before, self.describe()

    def suspect(self, *members: Member) -> None:
        """Until they are given partitions again, their sessions may be over without their knowing it."""
        for member in members:
            self.note(Event(time.monotonic_ns(), member, "suspected", {}))

    def check(self) -> None:
        """That all was delivered, to each owner from where the group was, and the broker knows what is committed."""
        self.catch_up(*self.running)
        with self._changed:
            history = _History()
            for event in sorted(self.events, key=lambda event: event.at):
                history.add(event)
        assert history.positions == self.ends, "not everything was delivered"
        assert self.committed == self.offsets()

    def offsets(self) -> dict[Place, int]:
        """Those that the broker has for the group."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        wanted = [ConsumerGroupTopicPartitions(self.name)]
        (answer,) = admin.list_consumer_group_offsets(wanted, request_timeout=SECONDS).values()
        return {(each.topic, each.partition): each.offset for each in answer.result(SECONDS).topic_partitions}

    def description(self) -> ConsumerGroupDescription:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        (answer,) = admin.describe_consumer_groups([self.name], request_timeout=SECONDS).values()
        return answer.result(SECONDS)


def _value(place: Place, offset: int) -> bytes:
    return f"{place[0]} {place[1]} {offset}".encode()


class _History:
    def __init__(self) -> None:
        self.positions: dict[Place, int] = {}  # of owners, the last one where nobody is
        self._committed: dict[Place, int] = {}
        self._owners: dict[Place, Member] = {}
        self._last_owners: dict[Place, Member] = {}
        self._silent: set[Member] = set()  # those who may not know that they have been replaced
        self._suspected: set[Member] = set()  # and may go on for a while, or begin again where the group is

    def add(self, event: Event) -> None:
        match event.name:
            case "assigned":
                self._give(event.member, event.partitions)
            case "revoked" | "lost":
                self._free(event.member, event.partitions)
            case "leaving" | "ended":
                self._free(event.member, set(self._owners))
            case "message":
                self._deliver(event.member, **event.what)
            case "committed":
                self._committed |= {(topic, n): offset for topic, n, offset in event.what["offsets"]}
            case "held":
                self._silent.add(event.member)
            case "suspected":
                self._silent.add(event.member)
                self._suspected.add(event.member)

    def _give(self, member: Member, places: set[Place]) -> None:
        self._silent.discard(member)
        self._suspected.discard(member)
        for place in places:
            owner = self._owners.get(place)
            assert owner in (None, *self._silent), f"{member} is given {place}, which is {owner}'s"
            self._owners[place] = member
            if not (member.keeps and self._last_owners.get(place) is member):
                self.positions[place] = self._committed.get(place, 0)
            self._last_owners[place] = member

    def _free(self, member: Member, places: set[Place]) -> None:
        for place in places:
            if self._owners.get(place) is member:
                del self._owners[place]

    def _deliver(self, member: Member, topic: str, partition: int, offset: int, value: str) -> None:
        place = (topic, partition)
        owner, position = self._owners.get(place), self.positions.get(place)
        if member in self._suspected:
            if owner is not member:
                return
            if offset == self._committed.get(place, 0):
                position = offset
        assert owner is member, f"{member} is delivered {place} {offset}, which is {owner}'s"
        assert offset == position, f"{member} is delivered {place} {offset}, and {position} is next"
        assert value.encode() == _value(place, offset)
        self.positions[place] = offset + 1
