"""Stream frameworks, each with the hello-world of its documentation (`frameworks/`), as a process of its own.

It reads one topic and writes another, is stopped, and goes on later where it stopped: nothing is skipped, and because
it was told to stop, nothing is repeated.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import parts
import pytest
from compat.brokers import BrokerProcess, new_broker
from compat.clients.confluent import ConfluentClient
from compat.conftest import running
from compat.contract import Consumer, Message, Received
from compat.groups import SETTINGS, Group
from confluent_kafka import Consumer as Member
from waits import until

pytestmark = [pytest.mark.needs("frameworks"), pytest.mark.slow]

PROGRAMS = Path(__file__).parent / "frameworks"
PARTITIONS = 3
COUNT = 20  # messages, for each run
SECONDS = 25

COMMANDS = {  # what follows `python -m`
    "faststream-confluent": ["faststream", "run", "hello_faststream_confluent:app"],
    "faststream-aiokafka": ["faststream", "run", "hello_faststream_aiokafka:app"],
    "faust": ["faust", "-A", "hello_faust", "worker", "--loglevel", "info", "--without-web"],
    "quixstreams": ["hello_quixstreams"],
    "bytewax": ["bytewax.run", "hello_bytewax:flow", "-r", "recovery", "-s", "0", "-b", "0"],
}


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(new_broker(tmp_path_factory.mktemp("frameworks") / "broker", settings=SETTINGS)) as broker:
        yield broker


@pytest.fixture
def broker(group_broker: BrokerProcess) -> BrokerProcess:
    return group_broker


class Program:
    """A framework's hello-world. Each run of it has the same directory and the same environment."""

    def __init__(self, kind: str, directory: Path, environment: Mapping[str, str]) -> None:
        self.ends = kind == "bytewax"  # by itself, at the end of the topic; the others go on
        self._python = str(parts.frameworks() / "bin" / "python")
        self._command = [self._python, "-m", *COMMANDS[kind]]
        self._directory = directory
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(PROGRAMS)}
        self._said = directory / "said"
        if kind == "bytewax":
            (directory / "recovery").mkdir()
            prepare = [self._python, "-m", "bytewax.recovery", "recovery", "1"]
            subprocess.run(prepare, cwd=directory, check=True, timeout=SECONDS)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While the test needs it; then it ends in good order."""
        with self._said.open("ab") as output:
            process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield
            if not self.ends:
                process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0, self.said
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")[-5000:]


def feed(reference: ConfluentClient, topic: str, names: range) -> None:
    for partition in range(PARTITIONS):
        messages = [Message(json.dumps({"name": f"guest {n}"}).encode()) for n in names if n % PARTITIONS == partition]
        reference.produce(topic, messages, partition=partition)


def texts(received: list[Received]) -> list[str]:
    return sorted(json.loads(each.value or b"{}")["text"] for each in received)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_hello_world_goes_on_where_it_was_stopped(
    kind: str, broker: BrokerProcess, reference: ConfluentClient, name: str, tmp_path: Path
) -> None:
    source, target = f"{name}-source", f"{name}-target"
    reference.create_topic(source, partitions=PARTITIONS)
    reference.create_topic(target)
    where = {"BROKER": broker.bootstrap, "GROUP": f"{name}-group", "SOURCE": source, "TARGET": target}
    program = Program(kind, tmp_path, where)
    group = Group(broker.bootstrap, where["GROUP"], {source: PARTITIONS}, tmp_path)
    with reference.consumer(target, 0) as consumer:
        for names in (range(COUNT), range(COUNT, 2 * COUNT)):
            feed(reference, source, names)
            with program.running():
                greetings = consumer.take(COUNT, within=SECONDS)
            assert texts(greetings) == sorted(f"Hello, guest {n}" for n in names), program.said
            if kind != "bytewax":  # which keeps its offsets to itself
                check_group(group, reference)
    assert reference.offset(target, "latest") == 2 * COUNT, program.said


def check_group(group: Group, reference: ConfluentClient) -> None:
    """It is there, without members, and has committed all that its topic has."""
    assert group.description().state.name == "EMPTY"
    ends = {(topic, n): reference.offset(topic, "latest", partition=n) for topic, n in group.ends}
    committed = {place: offset for place, offset in group.offsets().items() if place in ends}
    assert committed == ends


@pytest.mark.parametrize("kind", ["faststream-confluent", "faststream-aiokafka"])
def test_a_group_of_a_framework_changes_its_protocol_and_back_while_it_works(
    kind: str, broker: BrokerProcess, reference: ConfluentClient, name: str, tmp_path: Path
) -> None:
    """FastStream stays a classic member, whatever the others speak. Nothing is skipped."""
    source, target = f"{name}-source", f"{name}-target"
    reference.create_topic(source, partitions=PARTITIONS)
    reference.create_topic(target)
    where = {"BROKER": broker.bootstrap, "GROUP": f"{name}-group", "SOURCE": source, "TARGET": target}
    group = Group(broker.bootstrap, where["GROUP"], {source: PARTITIONS}, tmp_path)
    program = Program(kind, tmp_path, where)
    with program.running(), reference.consumer(target, 0) as greetings:
        shared = Shared(reference, source, greetings)
        shared.deliver(range(COUNT))
        assert group.description().type.name == "CLASSIC"
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": where["GROUP"], "group.protocol": "consumer"}
        with contextlib.closing(Member(settings | {"auto.offset.reset": "earliest"})) as member:
            member.subscribe([source])
            until(lambda: member.poll(0.1) is None and bool(member.assignment()), SECONDS)
            assert 0 < len(member.assignment()) < PARTITIONS, "the program has some, too"
            assert group.description().type.name == "CONSUMER"
            shared.deliver(range(COUNT, 2 * COUNT), member)
        shared.deliver(range(2 * COUNT, 3 * COUNT))
        assert group.description().type.name == "CLASSIC"


class Shared:
    """What a program and a member of its group are given together."""

    def __init__(self, reference: ConfluentClient, source: str, greetings: Consumer) -> None:
        self._reference = reference
        self._source = source
        self._greetings = greetings

    def deliver(self, names: range, member: Member | None = None) -> None:
        """Produces messages with these names, and waits until each of them has come to one of both."""
        feed(self._reference, self._source, names)
        missing = {f"guest {n}" for n in names}

        def has_all_come() -> bool:
            missing.difference_update(
                text.removeprefix("Hello, ") for text in texts(self._greetings.take(1, within=0.2))
            )
            message = member.poll(0) if member is not None else None
            if message is not None and message.error() is None:
                missing.discard(json.loads(message.value() or b"{}")["name"])
            return not missing

        until(has_all_come, SECONDS)
