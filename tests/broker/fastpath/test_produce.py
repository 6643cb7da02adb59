"""Produce the short way: the same bytes are answered, and the same log is left, as by the long way."""

import os
import struct
from collections.abc import Callable
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from brokers import ENDPOINT, NOW_MS, LocalBroker, a_batch, produce_request
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import DATA, memory_files
from transactions import TransactionalProducer, committed

from tailrace.broker.apis.registry import APIS
from tailrace.broker.core.api import Call
from tailrace.broker.core.delayed import DelayedResponse
from tailrace.broker.fastpath.produce import RUN_BYTES_MAX, RUN_REQUESTS_MAX, TOGETHER_MAX, ProduceFastPath
from tailrace.broker.fastpath.templates import FORGOTTEN_AFTER, TEMPLATE_BYTES_MAX, TEMPLATES_MAX
from tailrace.broker.metadata.topic_changes import create_topic
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.flush.journal import make_journal
from tailrace.log.view import Position
from tailrace.protocol import codec
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frame import decode_response, encode_request, read_request_header, response_header
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.protocol.primitives import write_varint
from tailrace.records import batch
from tailrace.records.compression import Codec
from tailrace.testing.faulty_files import FaultyFiles


class Producer:
    """Asks as a connection does, the short way where it can be; or never, with `short=False`."""

    def __init__(self, local: LocalBroker, *, short: bool = True) -> None:
        self.local = local
        self.repeated = ProduceFastPath(local.broker)
        self.short = short
        self.went_short = 0
        self.last_id = 0

    def frame(self, request: ProduceRequest, version: int = 12) -> memoryview:
        self.last_id += 1
        return memoryview(bytearray(encode_request(request, version, self.last_id, "client")))[4:]

    def begin(self, request: ProduceRequest, version: int = 12) -> Any:
        """The answer's bytes, or a DelayedResponse of them."""
        frame = self.frame(request, version)
        if self.short and (response := self.append_alone(frame)) is not None:
            self.went_short += 1
            return response
        header = read_request_header(frame)
        decoded = codec.decode(ProduceRequest, version, frame, header.body)
        call = Call(version, "client", ENDPOINT, self.local.now_ms)
        answer = self.local.broker.handle(APIS[0], decoded, call)
        self.repeated.learn(frame, header, decoded)
        return answer

    def append_alone(self, frame: memoryview) -> Any:
        """The response to a run of one; None where it must go the long way."""
        if not self.repeated.gather(frame, self.local.now_ms):
            return None
        run = self.repeated.take_gathered()
        assert run is not None
        return self.repeated.append_run(run, self.local.now_ms)

    def ask(self, request: ProduceRequest, version: int = 12) -> bytes:
        answer = self.begin(request, version)
        if isinstance(answer, DelayedResponse):
            self.local.run_jobs()
            found: list[Any] = []
            answer.when_resolved(found.append)
            (answer,) = found
        if isinstance(answer, bytes):
            return answer
        body = response_header(0, version, self.last_id) + codec.encode(answer, version)
        return struct.pack(">i", len(body)) + body

    def error(self, request: ProduceRequest, version: int = 12) -> int:
        _, response = decode_response(ProduceResponse, version, self.ask(request, version)[4:])
        return int(response.responses[0].partition_responses[0].error_code)


@pytest.fixture
def local(tmp_path: Path) -> Any:
    with LocalBroker(tmp_path) as local:
        local.create_topic()
        yield local


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(9, 14))
def test_the_second_request_goes_the_short_way_in_every_version_that_is_flexible(
    local: LocalBroker, version: int, acks: int
) -> None:
    topic: Any = local.broker.metadata.topics["orders"].topic_id if version >= 13 else "orders"
    short, long = Producer(local), Producer(local, short=False)
    for number in range(3):
        request = produce_request(a_batch(b"a", b"b"), topic, acks=acks)
        answers = short.ask(request, version), long.ask(request, version)
        offsets = [
            decode_response(ProduceResponse, version, answer[4:])[1].responses[0].partition_responses[0].base_offset
            for answer in answers
        ]
        assert offsets == [4 * number, 4 * number + 2]
        assert len(answers[0]) == len(answers[1])
    assert (short.went_short, long.went_short) == (2, 0)
    assert written(local) == [b"a", b"b"] * 6


def frame_of(request: ProduceRequest) -> memoryview:
    return memoryview(bytearray(encode_request(request, 12, 7, "client")))[4:]


def test_a_lone_request_is_refused_on_the_slow_path(local: LocalBroker) -> None:
    producer = Producer(local)
    producer.ask(produce_request(a_batch(b"a"), acks=1))
    damaged = bytearray(a_batch(b"d"))
    damaged[-1] ^= 1
    assert producer.append_alone(frame_of(produce_request(damaged, acks=1))) is None
    assert local.log().end_offset == 1


def written(local: LocalBroker, partition: int = 0) -> list[bytes]:
    """What readers see once all is on disk."""
    local.tick(2000)
    local.run_jobs()
    return local.values(partition=partition)


BATCHES = {
    "small": lambda: a_batch(b"x"),
    "large": lambda: a_batch(b"y" * 20_000),
    "lz4": lambda: a_batch(b"z" * 100, codec=Codec.LZ4),
    "zstd": lambda: a_batch(b"z" * 100, codec=Codec.ZSTD),
    "of a producer": lambda: a_batch(b"p", producer_id=7, producer_epoch=0, base_sequence=0),
    "out of sequence": lambda: a_batch(b"p", producer_id=7, producer_epoch=0, base_sequence=9),
    "no producer's epoch": lambda: a_batch(b"p", producer_id=7, producer_epoch=-1, base_sequence=0),
    "transactional": lambda: a_batch(b"t", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
    "of the future": lambda: a_batch(b"f", now_ms=NOW_MS + 10 * 24 * 3_600_000),
    "of no known codec": lambda: changed(a_batch(b"x"), 21, b"\0\7"),
    "of an old format": lambda: changed(a_batch(b"x"), 16, b"\1"),
    "rotten": lambda: a_batch(b"x")[:-1] + b"\xff",
    "cut": lambda: a_batch(b"x")[:-1],
    "a part of a header": lambda: a_batch(b"x")[:40],
    "two": lambda: a_batch(b"x") + a_batch(b"y"),
    "none": lambda: None,
    "empty": lambda: b"",
    "with too many records": lambda: changed(a_batch(b"x"), 57, struct.pack(">i", 5)),
}


def changed(data: bytearray, position: int, value: bytes) -> bytearray:
    data[position : position + len(value)] = value
    batch.seal(data)
    return data


@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(BATCHES)), st.sampled_from([0, 1, 5]), st.sampled_from([1, -1])))
)
def test_whatever_is_sent_both_ways_say_the_same_and_leave_the_same(steps: list[tuple[str, int, int]]) -> None:
    brokers = [LocalBroker(DATA, files=memory_files()) for _ in range(2)]
    for one in brokers:
        one.create_topic(partitions=2, **{"max_message_bytes": "10000"})
    producers = [Producer(brokers[0]), Producer(brokers[1], short=False)]
    for name, partition, acks in steps:
        said = [
            producer.ask(produce_request(BATCHES[name](), partition=partition, acks=acks)) for producer in producers
        ]
        assert said[0] == said[1], name
    for index in range(2):
        assert written(brokers[0], index) == written(brokers[1], index)
    counted = [one.broker.counters.topics for one in brokers]
    assert [(of.records_in, of.bytes_in) for of in counted[0].values()] == [
        (of.records_in, of.bytes_in) for of in counted[1].values()
    ]


def test_a_repetition_of_a_producer_is_not_appended_again(local: LocalBroker) -> None:
    producer = Producer(local)
    request = produce_request(a_batch(b"p", producer_id=7, producer_epoch=0, base_sequence=0))
    assert [producer.error(request) for _ in range(3)] == [0, 0, 0]
    assert producer.went_short == 2
    assert local.values() == [b"p"]


def test_many_partitions_are_remembered_and_not_without_end(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic(partitions=2 * TEMPLATES_MAX)
        producer = Producer(local)
        for _ in range(2):
            for partition in range(12):
                producer.ask(produce_request(a_batch(b"x"), partition=partition))
        assert producer.went_short == 12
        for partition in range(2 * TEMPLATES_MAX):
            producer.ask(produce_request(a_batch(b"x"), partition=partition))
        assert len(producer.repeated._templates) <= TEMPLATES_MAX


def test_topics_with_names_of_different_lengths_are_all_remembered(local: LocalBroker) -> None:
    names = ["orders", "views", "a-long-name", "payments"]
    for name in names[1:]:
        local.create_topic(name)
    producer = Producer(local)
    for _ in range(3):
        for name in names:
            producer.ask(produce_request(a_batch(b"x"), name))
    assert producer.went_short == 2 * len(names)


def test_one_partition_too_many_evicts_no_template_and_unused_templates_expire(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic(partitions=TEMPLATES_MAX + 1)
        producer = Producer(local)
        for _ in range(3):
            for partition in range(TEMPLATES_MAX + 1):
                producer.ask(produce_request(a_batch(b"x"), partition=partition, acks=1))
        assert producer.went_short == 2 * TEMPLATES_MAX
        for _ in range(FORGOTTEN_AFTER):
            producer.ask(produce_request(a_batch(b"x"), partition=TEMPLATES_MAX, acks=1))
        assert len(producer.repeated._templates) == 1


def test_a_form_takes_little_memory_whatever_its_request_holds(local: LocalBroker) -> None:
    producer = Producer(local)
    for name in ("client", "c" * 2 * TEMPLATE_BYTES_MAX):
        request = produce_request(a_batch(b"x"), acks=1)
        frame = memoryview(bytearray(encode_request(request, 12, 1, name)))[4:]
        header = read_request_header(frame)
        producer.repeated.learn(frame, header, codec.decode(ProduceRequest, 12, frame, header.body))
    assert [len(key) <= TEMPLATE_BYTES_MAX for key in producer.repeated._templates._by_bytes] == [True]


def test_bytes_behind_a_request_are_not_taken_for_its_batch(local: LocalBroker) -> None:
    """Clients may send some, which are passed over; here they are a batch, and what follows one."""
    producer = Producer(local)
    decoy = a_batch(b"decoy")
    frame = bytearray(encode_request(produce_request(a_batch(b"real"), acks=1), 12, 1, "client"))[4:]
    frame += write_varint(len(decoy) + 1) + decoy + bytes(3)
    for _ in range(3):
        view = memoryview(bytearray(frame))
        assert producer.append_alone(view) is None
        header = read_request_header(view)
        decoded = codec.decode(ProduceRequest, 12, view, header.body, more_may_follow=True)
        producer.repeated.learn(view, header, decoded)
    assert len(producer.repeated._templates) == 0


def test_requests_that_are_not_for_one_partition_go_the_long_way(local: LocalBroker) -> None:
    producer = Producer(local)
    for _ in range(3):
        twice = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=a_batch(b"x"))])]
        producer.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=twice * 2))
        producer.ask(produce_request(a_batch(b"x"), acks=1), version=8)
        assert producer.error(produce_request(a_batch(b"x"), "nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert producer.error(produce_request(a_batch(b"x"), acks=7)) == ErrorCode.INVALID_REQUIRED_ACKS
    assert producer.went_short == 0


def test_nobody_appends_to_an_internal_topic(local: LocalBroker) -> None:
    producer = Producer(local)
    for _ in range(3):
        error = producer.error(produce_request(a_batch(b"x"), "__tailrace_metadata"))
        assert error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert producer.went_short == 0


def sent(producer: Producer, version: int = 12) -> tuple[int, bool]:
    """The error of one more request, and whether it went the short way."""
    before = producer.went_short
    return producer.error(produce_request(a_batch(b"x" * 300), acks=1), version), producer.went_short > before


def test_a_topic_that_is_deleted_takes_nothing_and_one_of_its_name_is_another(local: LocalBroker) -> None:
    producer = Producer(local)
    assert [sent(producer) for _ in range(2)] == [(0, False), (0, True)]
    local.delete_topic()
    assert sent(producer) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)
    local.create_topic()
    assert [sent(producer) for _ in range(2)] == [(0, False), (0, True)]
    assert len(written(local)) == 2


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({"max.message.bytes": "100"}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"cleanup.policy": "compact"}, ErrorCode.INVALID_RECORD),
        ({"message.timestamp.before.max.ms": "5"}, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_config_counts_from_when_it_is_changed(
    local: LocalBroker, configs: dict[str, str], expected: ErrorCode
) -> None:
    producer = Producer(local)
    assert [sent(producer) for _ in range(2)] == [(0, False), (0, True)]
    topic = local.broker.metadata.topics["orders"]
    topic.overrides.update(configs)
    topic.configure(local.broker.configs)
    local.now_ms += 1000
    assert sent(producer) == (expected, False)


@pytest.mark.parametrize("configs", [{"compression_type": "zstd"}, {"message_timestamp_type": "LogAppendTime"}])
def test_what_has_to_be_changed_goes_the_long_way(tmp_path: Path, configs: dict[str, Any]) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic(**configs)
        producer = Producer(local)
        assert [sent(producer) for _ in range(3)] == [(0, False)] * 3


def test_a_disk_that_is_full_is_seen(local: LocalBroker) -> None:
    local.tick()
    producer = Producer(local)
    assert [sent(producer) for _ in range(2)] == [(0, False), (0, True)]
    local.broker.disk_reserve.is_low = True
    assert sent(producer) == (ErrorCode.KAFKA_STORAGE_ERROR, False)
    local.broker.disk_reserve.is_low = False
    assert sent(producer) == (0, True)


def sequence_request(sequence: int) -> ProduceRequest:
    return produce_request(a_batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence))


def refuse_first_batch(local: LocalBroker) -> Producer:
    """A producer whose requests go the short way, and whose batch with sequence 0 was refused."""
    local.tick()
    producer = Producer(local)
    assert [sent(producer) for _ in range(2)] == [(0, False), (0, True)]
    local.broker.disk_reserve.is_low = True
    assert producer.error(sequence_request(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    local.broker.disk_reserve.is_low = False
    return producer


def test_a_batch_does_not_overtake_a_refused_one(local: LocalBroker) -> None:
    producer = refuse_first_batch(local)
    assert producer.error(sequence_request(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.went_short == 1
    assert [producer.error(sequence_request(sequence)) for sequence in (0, 1)] == [0, 0]
    assert producer.went_short == 3
    assert written(local)[2:] == [b"0", b"1"]


def test_batches_that_came_together_do_not_overtake_a_refused_one(local: LocalBroker) -> None:
    producer = refuse_first_batch(local)
    frames = [producer.frame(sequence_request(sequence)) for sequence in range(3)]
    assert run_of(producer.repeated, frames[1:], local.now_ms) is None
    assert isinstance(run_of(producer.repeated, frames, local.now_ms), DelayedResponse)
    local.run_jobs()
    assert written(local)[2:] == [b"0", b"1", b"2"]


def test_no_answer_leaves_before_the_metadata_is_on_disk(local: LocalBroker) -> None:
    producer = Producer(local)
    assert [sent(producer) for _ in range(2)] == [(0, False), (0, True)]
    local.broker.metadata_log.write(create_topic(local.broker.metadata, "other", 1, {}, os.urandom), NOW_MS)
    answer = producer.begin(produce_request(a_batch(b"x"), acks=1))
    assert isinstance(answer, DelayedResponse)
    assert not answer.is_resolved
    local.run_jobs()
    assert producer.went_short == 1


def test_an_acknowledgement_waits_for_the_disk_and_says_when_that_takes_too_long(local: LocalBroker) -> None:
    producer = Producer(local)
    producer.ask(produce_request(a_batch(b"x")))
    answers: list[bytes] = []
    for _ in range(2):
        later = producer.begin(produce_request(a_batch(b"y")))
        assert isinstance(later, DelayedResponse)
        later.when_resolved(answers.append)
        assert later.wait_ms == 1000
    assert producer.went_short == 2
    assert answers == []
    later.expire()
    local.run_jobs()
    errors = [
        (found[0], found[1].responses[0].partition_responses[0].error_code)
        for found in (decode_response(ProduceResponse, 12, answer[4:]) for answer in answers)
    ]
    assert errors == [(3, ErrorCode.REQUEST_TIMED_OUT), (2, 0)]


def run_of(
    repeated: ProduceFastPath, frames: list[memoryview], now_ms: int, behind: DelayedResponse[Any] | None = None
) -> Any:
    """What is said to requests that came together."""
    for frame in frames:
        assert repeated.gather(frame, now_ms)
    run = repeated.take_gathered()
    assert run is not None
    return repeated.append_run(run, now_ms, behind)


class Line:
    """Requests that came one behind the other, where there is a journal; and all answers of the first of them."""

    def __init__(self, local: LocalBroker) -> None:
        self.local = local
        local.broker.flushes.journal = make_journal(local.directory.files, local.directory.path, 1 << 20)
        self.producer = Producer(local)
        self.producer.ask(produce_request(a_batch(b"before")))
        self.first: DelayedResponse[bytes] | None = None
        self.answers: list[tuple[int, int, int]] = []  # correlation id, error, offset

    def send(self, value: bytes) -> Any:
        return self.send_batch(a_batch(value))

    def send_batch(self, batch: bytearray) -> Any:
        self.producer.last_id += 1
        request = encode_request(produce_request(batch), 12, self.producer.last_id, "client")
        frame = memoryview(bytearray(request))[4:]
        answer = run_of(self.producer.repeated, [frame], self.local.now_ms, self.first)
        assert answer is not None
        if self.first is None:
            assert isinstance(answer, DelayedResponse)
            self.first = answer
            self.first.when_resolved(self._answered)
        return answer

    def _answered(self, data: bytes) -> None:
        while data:
            (length,) = struct.unpack_from(">i", data)
            correlation_id, response = decode_response(ProduceResponse, 12, data[4 : 4 + length])
            partition = response.responses[0].partition_responses[0]
            self.answers.append((correlation_id, partition.error_code, partition.base_offset))
            data = data[4 + length :]


def test_requests_that_came_together_are_answered_together_each_with_its_offset(local: LocalBroker) -> None:
    line = Line(local)
    laters = [line.send(b"%d" % number) for number in range(TOGETHER_MAX + 1)]
    assert all(later is line.first for later in laters[:-1])
    assert laters[-1] is not line.first, "they are not gathered without end"
    assert line.answers == []
    local.run_jobs()
    assert line.answers == [(2 + number, 0, 1 + number) for number in range(TOGETHER_MAX)]
    assert laters[-1].is_resolved
    assert len(local.values()) == TOGETHER_MAX + 2


def test_a_run_has_an_end(local: LocalBroker) -> None:
    producer = Producer(local)
    producer.ask(produce_request(a_batch(b"before"), acks=1))
    frame = frame_of(produce_request(a_batch(b"x"), acks=1))
    assert [producer.repeated.gather(frame, NOW_MS) for _ in range(RUN_REQUESTS_MAX + 1)][-2:] == [True, False]
    run = producer.repeated.take_gathered()
    assert run is not None
    assert len(run.requests) == RUN_REQUESTS_MAX
    large = frame_of(produce_request(a_batch(bytes(RUN_BYTES_MAX // 2)), acks=1))
    assert [producer.repeated.gather(large, NOW_MS) for _ in range(2)] == [True, False]


def test_requests_of_another_form_are_of_another_run(local: LocalBroker) -> None:
    producer = Producer(local)
    for acks in (1, -1):
        producer.ask(produce_request(a_batch(b"before"), acks=acks))
    frames = [frame_of(produce_request(a_batch(b"x"), acks=acks)) for acks in (1, -1)]
    assert [producer.repeated.gather(frame, NOW_MS) for frame in frames] == [True, False]


def test_a_run_for_a_disk_that_is_full_by_then_changes_nothing(local: LocalBroker) -> None:
    producer = Producer(local)
    producer.ask(produce_request(a_batch(b"before"), acks=1))
    assert producer.repeated.gather(frame_of(produce_request(a_batch(b"x"), acks=1)), NOW_MS)
    local.broker.disk_reserve.is_low = True
    run = producer.repeated.take_gathered()
    assert run is not None
    assert producer.repeated.append_run(run, NOW_MS) is None
    assert producer.repeated.take_gathered() is None


def test_one_that_comes_later_waits_by_itself(local: LocalBroker) -> None:
    line = Line(local)
    line.send(b"first")
    job = local.broker.flushes.next_journal_write()
    assert job is not None
    local.now_ms += 1
    assert line.send(b"second") is not line.first
    job.run()
    local.broker.flushed(job)
    assert [offset for _, _, offset in line.answers] == [1]


def flush_up_to_now(local: LocalBroker) -> Callable[[], None]:
    """As a flush does that is under way now: what is called when it comes back."""
    log, flushes = local.log(), local.broker.flushes
    end, place = log.end_offset, Position(log.view.segments[-1].base_offset, log.view.segments[-1].size)

    def come_back() -> None:
        log.flushed(end, place)
        flushes._answer(log, None)

    return come_back


def test_nothing_is_acknowledged_by_a_flush_that_has_only_some_of_it(local: LocalBroker) -> None:
    line = Line(local)
    line.send(b"first")
    come_back = flush_up_to_now(local)
    line.send(b"second")
    come_back()
    assert line.answers == []
    local.run_jobs()
    assert [offset for _, _, offset in line.answers] == [1, 2]


def test_nor_is_it_where_a_repetition_of_what_the_flush_has_comes_behind(local: LocalBroker) -> None:
    line = Line(local)
    first, second = (a_batch(b"x", producer_id=7, producer_epoch=0, base_sequence=number) for number in (0, 1))
    line.send_batch(bytearray(first))
    come_back = flush_up_to_now(local)
    line.send_batch(bytearray(second))
    line.send_batch(bytearray(first))
    come_back()
    assert line.answers == []
    local.run_jobs()
    assert [offset for _, _, offset in line.answers] == [1, 2, 1]


def test_only_requests_that_are_not_on_disk_time_out_of_those_that_came_together(local: LocalBroker) -> None:
    line = Line(local)
    line.send(b"on disk")
    come_back = flush_up_to_now(local)
    for value in (b"two", b"three"):
        line.send(value)
    come_back()
    assert line.first is not None
    line.first.expire()
    local.run_jobs()
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert [answer[:2] for answer in line.answers] == [(2, 0), (3, timed_out), (4, timed_out)]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_disk_that_fails_is_said_to_who_waits_for_it(tmp_path: Path, acks: int) -> None:
    files = FaultyFiles(OperatingSystemFiles())
    local = LocalBroker(tmp_path, files=files)
    local.create_topic()
    producer = Producer(local)
    assert producer.error(produce_request(a_batch(b"x"), acks=acks)) == 0
    files.fail("write_at" if acks == 1 else "sync", EIO, name=".log")
    assert producer.error(produce_request(a_batch(b"x"), acks=acks)) == ErrorCode.KAFKA_STORAGE_ERROR
    local.directory.abandon()


def test_frames_that_only_begin_like_one_that_is_known_are_not_taken_for_it(local: LocalBroker) -> None:
    producer = Producer(local)
    producer.ask(produce_request(a_batch(b"x"), acks=1))
    frame = bytearray(encode_request(produce_request(a_batch(b"x"), acks=1), 12, 5, "client"))[4:]
    (start,) = producer.repeated._templates._starts
    for end in range(start, len(frame)):
        assert producer.append_alone(memoryview(frame[:end])) is None
    for position in range(start):
        if not 4 <= position < 8:  # the correlation id may be any
            spoilt = bytearray(frame)
            spoilt[position] ^= 1
            assert producer.append_alone(memoryview(spoilt)) is None
    for tag in (-1, -2, -3):
        spoilt = bytearray(frame)
        spoilt[tag] = 1
        assert producer.append_alone(memoryview(spoilt)) is None
    assert len(written(local)) == 1
    assert producer.append_alone(memoryview(frame)) is not None


# Transactions


class TransactionalSteps:
    """The same steps of a transactional producer on two brokers, of which one has the fast path."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.producers: list[tuple[Producer, TransactionalProducer]] = []
        for short in (True, False):
            local = LocalBroker(DATA, files=memory_files())
            local.create_topic(partitions=2)
            client = TransactionalProducer(local, version={11: 0, 12: 2}[version])
            self.producers.append((Producer(local, short=short), client))

    def produce(self, partition: int, **fields: Any) -> None:
        """Sends a batch, after AddPartitionsToTxn if that has to be."""
        said = []
        for producer, client in self.producers:
            if self.version == 11:
                client.add(partition)
            said.append(producer.ask(client.produce_request(b"t", partition=partition, **fields), self.version))
        assert said[0] == said[1]

    def end(self, *, commit: bool) -> None:
        assert len({str(client.end(commit=commit)) for _, client in self.producers}) == 1

    def check(self) -> None:
        """The logs are the same, and so is what consumers of committed records find."""
        for index in range(2):
            fast, slow = (client.broker for _, client in self.producers)
            assert written(fast, index) == written(slow, index)
            assert committed(fast, index) == committed(slow, index)


@pytest.mark.parametrize("version", [11, 12])
@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(["batch", "batch", "batch", "other", "again", "plain", "late", "commit", "abort", "init"]),
        max_size=14,
    )
)
def test_transactional_batches_are_handled_alike_both_ways(version: int, steps: list[str]) -> None:
    both = TransactionalSteps(version)
    for step in steps:
        match step:
            case "batch" | "other":
                both.produce(int(step == "other"))
            case "again":
                both.produce(0, base_sequence=0)
            case "plain":
                both.produce(0, transactional=False)
            case "late":
                both.produce(0, producer_epoch=max(both.producers[0][1].identity[1] - 1, 0))
            case "init":
                assert len({str(client.init()) for _, client in both.producers}) == 1
            case _:
                both.end(commit=step == "commit")
    both.check()


def test_batches_of_an_open_transaction_go_the_short_way(local: LocalBroker) -> None:
    producer, client = Producer(local), TransactionalProducer(local)
    for number in range(3):
        for _ in range(4):
            assert producer.error(client.produce_request(b"t")) == 0
        assert producer.went_short == 3 * (number + 1), "the first of each transaction goes the long way"
        assert client.commit().error_code == 0
    assert committed(local) == [b"t"] * 12


def test_a_repeated_batch_of_a_transaction_goes_the_long_way(local: LocalBroker) -> None:
    """Its transaction may not be on disk yet, which the response has to wait for."""
    producer, client = Producer(local), TransactionalProducer(local)
    producer.begin(client.produce_request(b"t"))
    again = client.produce_request(b"t", base_sequence=0)
    assert producer.append_alone(producer.frame(again)) is None
    assert producer.error(again) == 0
    assert local.log().end_offset == 1


def test_no_batch_goes_the_short_way_before_the_transaction_log_is_read(tmp_path: Path) -> None:
    local = LocalBroker(tmp_path)
    local.create_topic()
    client = TransactionalProducer(local)
    client.produce(b"t")
    local._jobs.clear()
    local.directory.abandon()
    run_jobs, local.run_jobs = local.run_jobs, lambda: None  # type: ignore[method-assign]
    local.open()
    local.run_jobs = run_jobs  # type: ignore[method-assign]
    producer, request = Producer(local), client.produce_request(b"t")
    for _ in range(3):
        frame = producer.frame(request)
        assert producer.append_alone(frame) is None
        producer.begin(request)
    assert local.log().end_offset == 1
    local.run_jobs()
    assert [producer.error(request) for _ in range(2)] == [0, 0]
    assert client.commit().error_code == 0
    assert committed(local) == [b"t", b"t"]
    local.close()


def test_a_template_of_a_transaction_takes_no_other_batch(local: LocalBroker) -> None:
    """Of another producer whose transaction is not open here, or of none."""
    producer, client = Producer(local), TransactionalProducer(local)
    for _ in range(2):
        producer.error(client.produce_request(b"t"))
    assert producer.went_short == 1
    strange: list[dict[str, Any]] = [
        {"transactional": False},
        {"producer_id": 4711, "base_sequence": 0},
        {"producer_epoch": 1, "base_sequence": 0},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
    ]
    for fields in strange:
        assert producer.error(client.produce_request(b"t", **fields)) != 0
    assert (producer.went_short, local.log().end_offset) == (1, 2)
