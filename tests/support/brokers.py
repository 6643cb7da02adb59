"""A broker without a server, for tests of its decisions: requests go in and out as bytes, time and jobs are the test's.

    with LocalBroker(tmp_path) as broker:
        response = broker.ask(MetadataRequest(topics=None), version=12)

Every request is encoded and decoded on its way in, and every answer on its way out, in the version that is asked for.
Jobs run when the broker is asked something, or by `run_jobs`; with `hold_jobs` they wait for that.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.broker.apis.registry import APIS
from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.core.api import Call, Endpoint, Silence
from tailrace.broker.core.clients import ClientConnection
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.core.partition import Partition
from tailrace.broker.metadata.topic_changes import create_topic, delete_topic
from tailrace.broker.startup import open_broker
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Files
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.jobs import Job
from tailrace.log.log import Log
from tailrace.protocol import codec
from tailrace.protocol.message import specification_of
from tailrace.protocol.messages import RESPONSES
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records.batch import split
from tailrace.records.record import Record, decode_records, encode_batch

ENDPOINT = Endpoint("127.0.0.1", 9092)
NOW_MS = 1_800_000_000_000


Jobs = deque[tuple[Job, Callable[[], object]]]  # each with what follows it on the loop


class LocalBroker:
    def __init__(
        self, path: Path | str, configs: Mapping[str, str] | None = None, *, files: Files | None = None, seed: int = 0
    ) -> None:
        self.path = str(path)
        self.configs = dict(configs or {})
        self.now_ms = NOW_MS
        self._jumped_ms = 0
        self.hold_jobs = False
        self._files = files or OperatingSystemFiles()
        self._random = random.Random(seed)
        self._jobs: Jobs = deque()
        self._held: dict[type, Jobs] = {}
        self.open()

    def open(self) -> None:
        self.directory = DataDirectory(self._files, self.path)
        self.broker = open_broker(
            self.directory,
            BrokerConfigs(self.configs),
            self.now_ms,
            start_job=lambda job, finish: self._held.get(type(job), self._jobs).append((job, finish)),
            random_bytes=self._random.randbytes,
        )
        self.run_jobs()

    def close(self) -> None:
        self.run_jobs()
        self.directory.close(self.steady_ms)

    def restart(self) -> None:
        """A clean stop and a start; `kill` is the other kind."""
        self.close()
        self.open()

    def kill(self) -> None:
        """What a killed process leaves: everything written, nothing said. Another one is opened on the directory."""
        self._jobs.clear()
        self.directory.abandon()
        self.open()

    def __enter__(self) -> "LocalBroker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def begin(
        self, request: Any, version: int, *, client_id: str | None = "test", connection: ClientConnection | None = None
    ) -> Any:
        """The answer as the broker returned it: a response, a DelayedResponse, or Silence."""
        key = specification_of(type(request)).key
        assert key is not None
        api = APIS[key]
        # A bytearray, as it comes from a socket: offsets are stamped in place.
        frame = memoryview(bytearray(codec.encode(request, version)))
        decoded = codec.decode(type(request), version, frame, elements=api.elements_max)
        return self.broker.handle(
            api, decoded, Call(version, client_id, ENDPOINT, self.now_ms, self.steady_ms, "/127.0.0.1", connection)
        )

    def ask(
        self, request: Any, version: int, *, client_id: str | None = "test", connection: ClientConnection | None = None
    ) -> Any:
        """The answer as a client would read it; None where there is none. Fails if it would still have to wait."""
        answer = self.begin(request, version, client_id=client_id, connection=connection)
        if not self.hold_jobs:
            self.run_jobs()
        if isinstance(answer, DelayedResponse):
            resolved: list[Any] = []
            answer.when_resolved(resolved.append)
            assert resolved, f"the answer to {type(request).__name__} does not come"
            answer = resolved[0]
        if isinstance(answer, Silence):
            return None
        return self.decode(answer, type(request), version)

    def decode(self, answer: Any, request: type[Any], version: int) -> Any:
        """An answer after its way over the wire, slices read."""
        parts: list[Any] = codec.encode_parts(answer, version)
        data = b"".join(bytes(part.read()) if hasattr(part, "release") else bytes(part) for part in parts)
        for part in parts:
            if hasattr(part, "release"):
                part.release()
        return codec.decode(RESPONSES[specification_of(request).key or 0], version, data)

    # What tests ask for again and again, without saying what does not matter

    def create_topic(self, name: str = "orders", partitions: int = 1, **configs: str) -> bytes:
        """Its id. A config is written with underscores for its dots."""
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        changes = create_topic(self.broker.metadata, name, partitions, overrides, self._random.randbytes)
        self.broker.metadata_log.write(changes, self.now_ms)
        self.run_jobs()
        return self.broker.metadata.topics[name].topic_id

    def delete_topic(self, name: str = "orders") -> None:
        """As DeleteTopics does it: on disk first. The logs go with the next jobs, if those are held."""
        topic = self.broker.metadata.topics[name]
        self.broker.metadata_log.write([delete_topic(topic)], self.now_ms)
        self.run_flushes()
        self.broker.remove_logs([topic], self.now_ms)
        if not self.hold_jobs:
            self.run_jobs()

    def partition(self, topic: str = "orders", index: int = 0) -> Partition:
        partition = self.broker.partition(topic, index)
        assert partition is not None
        return partition

    def log(self, topic: str = "orders", index: int = 0) -> Log:
        log = self.partition(topic, index).log
        assert log is not None
        return log

    def produce(self, *values: bytes, topic: str = "orders", partition: int = 0, acks: int = -1, **fields: Any) -> Any:
        """The answer for one batch, of one partition."""
        request = produce_request(a_batch(*values, now_ms=self.now_ms, **fields), topic, partition, acks)
        return only_partition(self.ask(request, 12))

    def fetch(self, *partitions: FetchPartition, topic: str = "orders", version: int = 12, **fields: Any) -> Any:
        """The whole answer, at once: what there is now."""
        return self.ask(fetch_request(*partitions, topic=topic, **{"max_wait_ms": 0, **fields}), version)

    def values(self, topic: str = "orders", partition: int = 0, offset: int = 0, **fields: Any) -> list[bytes]:
        """What a reader finds from an offset on, in one answer."""
        response = self.fetch(from_offset(offset, partition), topic=topic, **fields)
        return [value for answer in response.responses[0].partitions for value in values_of(answer)]

    def run_flushes(self) -> None:
        """Puts on disk all that a request waits for; other jobs wait."""
        while (flush := self.broker.flushes.next_job()) is not None:
            self._run_flush(flush)

    def _run_flush(self, flush: Any) -> None:
        """Raises what a server would stop for."""
        flush.run()
        self.broker.flushed(flush)
        if self.broker.failure is not None:
            raise self.broker.failure

    def hold(self, *kinds: type) -> Jobs:
        """From now on jobs of these classes wait in the queue that is returned, and the test runs them."""
        held: Jobs = deque()
        self._held |= dict.fromkeys(kinds, held)
        return held

    def run_jobs(self) -> None:
        """Runs all jobs until none is left for a thread."""
        while True:
            if self._jobs:
                job, finish = self._jobs.popleft()
                job.run()
                finish()
            elif (flush := self.broker.flushes.next_job()) is not None:
                self._run_flush(flush)
            else:
                return

    def tick(self, ms: int = 1000) -> None:
        """Time passes."""
        self.now_ms += ms
        self.broker.tick(self.now_ms, self.steady_ms)
        if not self.hold_jobs:
            self.run_jobs()

    @property
    def steady_ms(self) -> int:
        """Passes as the wall clock does, and does not jump."""
        return self.now_ms - self._jumped_ms

    def jump(self, ms: int) -> None:
        """The wall clock jumps, and no time passes."""
        self.now_ms += ms
        self._jumped_ms += ms


def a_batch(*values: bytes, now_ms: int = NOW_MS, **fields: Any) -> bytearray:
    """A batch as a producer sends it, one record for each value."""
    return encode_batch([Record(n, now_ms, None, value) for n, value in enumerate(values)], **fields)


def produce_request(
    records: bytes | bytearray | None,
    topic: str | bytes = "orders",
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    data = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)])
    if isinstance(topic, bytes):
        data.topic_id = topic
    else:
        data.name = topic
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def from_offset(offset: int, partition: int = 0, max_bytes: int = 1 << 20, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)


def fetch_request(
    *partitions: FetchPartition,
    topic: str | bytes = "orders",
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    **fields: Any,
) -> FetchRequest:
    named = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    topics = [FetchTopic(partitions=list(partitions), **named)] if partitions else []
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=topics, **fields)


def only_partition(response: Any) -> Any:
    """The answer for the one partition that was asked for, of a Produce, a Fetch or a ListOffsets."""
    (topic,) = response.topics if hasattr(response, "topics") else response.responses
    (partition,) = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    return partition


def values_of(answer: Any) -> list[bytes]:
    """The records of one partition in an answer to a Fetch."""
    data = bytes(answer.records or b"")
    return [record.value or b"" for position, _ in split(data) for record in decode_records(data, position)]


def resolved(answer: Any) -> list[Any]:
    """A list that the answer comes into, when it comes."""
    answers: list[Any] = []
    answer.when_resolved(answers.append)
    return answers
