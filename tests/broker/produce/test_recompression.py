"""`compression.type`: what is kept is in the topic's codec, in the order of arrival, and nobody else waits for it."""

import weakref
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from batches import batch_of
from brokers import ENDPOINT, LocalBroker, a_batch, only_partition, produce_request, resolved

from tailrace.broker.apis.registry import APIS
from tailrace.broker.core.api import Call, Silence
from tailrace.broker.core.delayed import Pause
from tailrace.broker.metadata.records import ConfigChanged
from tailrace.broker.produce import recompression as recompressing
from tailrace.protocol import codec
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import ApiKey
from tailrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tailrace.records import codecs, compression
from tailrace.records.batch import split
from tailrace.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from tailrace.records.recompression import Target
from tailrace.records.record import Record, decode_records, encode_batch

CODECS = {
    "uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD,
}  # fmt: skip
BOMB = 17 << 20


def stored(broker: LocalBroker, topic: str = "orders", index: int = 0) -> list[tuple[Codec, list[bytes | None]]]:
    """Codec and values of every batch in the log."""
    broker.tick()
    broker.run_jobs()
    log = broker.log(topic, index)
    piece = log.read(log.start_offset, 64 << 20)
    assert piece is not None
    with piece:
        data = piece.read()
    return [
        (Codec(header.codec), [record.value for record in decode_records(data, position)])
        for position, header in split(data)
    ]


def begin(broker: LocalBroker, batch: bytes | bytearray, *, partition: int = 0, acks: int = -1) -> list[Any]:
    """A list that the partition's answer comes into."""
    answers: list[Any] = []
    answer = broker.begin(produce_request(batch, partition=partition, acks=acks), 12)
    if hasattr(answer, "when_resolved"):
        answer.when_resolved(answers.append)
    else:
        answers.append(answer)
    return answers


def offset_of(answers: list[Any]) -> int:
    answer = only_partition(answers[0])
    assert not answer.error_code, answer.error_message
    return int(answer.base_offset)


@pytest.mark.parametrize("kind", CODECS)
def test_a_batch_is_kept_in_the_codec_of_its_topic_whatever_it_came_in(tmp_path: Path, kind: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type=kind)
        for sent in Codec:
            for acks in (-1, 1, 0):
                begin(broker, a_batch(b"a", sent.name.encode(), codec=sent), acks=acks)
        broker.run_jobs()
        assert stored(broker) == [(CODECS[kind], [b"a", sent.name.encode()]) for sent in Codec for _ in range(3)]
        assert broker.values() == [value for sent in Codec for value in (b"a", sent.name.encode()) * 3]


def test_the_broker_says_it_for_topics_that_do_not_and_it_can_change(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"compression.type": "lz4"}) as broker:
        broker.create_topic()
        broker.create_topic("as-sent", compression_type="producer")
        for topic in ("orders", "as-sent"):
            broker.produce(b"a", topic=topic, codec=Codec.GZIP)
        assert [stored(broker, topic)[0][0] for topic in ("orders", "as-sent")] == [Codec.LZ4, Codec.GZIP]


def test_a_level_is_obeyed(tmp_path: Path) -> None:
    sizes = []
    values = [b"%d" % (n * n) for n in range(500)]
    for level in ("-1000", "15"):
        with LocalBroker(tmp_path / level) as broker:
            broker.create_topic(compression_type="zstd", compression_zstd_level=level)
            broker.produce(*values)
            sizes.append(broker.log().active.size)
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("kind", ["gzip", "lz4", "zstd"])
def test_a_changed_level_of_the_broker_applies_to_topics_with_their_own_type(tmp_path: Path, kind: str) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type=kind)
        level = ConfigChanged(resource_type=4, resource_name="", key=f"compression.{kind}.level", value="7")
        broker.broker.metadata_log.write([level], broker.now_ms)
        broker.run_jobs()
        assert broker.partition().topic.config.target == Target(CODECS[kind], 7)


def test_what_is_in_the_codec_already_is_appended_at_once_as_it_is(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="gzip")
        broker.produce(b"a")
        broker.hold_jobs = True
        batch = a_batch(b"b" * 100, codec=Codec.GZIP)
        assert offset_of(begin(broker, batch, acks=1)) == 1
        broker.tick()
        broker.run_jobs()
        piece = broker.log().read(1, 1 << 20)
        assert piece is not None
        with piece:
            assert piece.read()[21:] == batch[21:]


# Order


def test_what_comes_behind_waits_for_its_turn_and_other_partitions_do_not(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2, compression_type="zstd")
        broker.hold_jobs = True
        slow = begin(broker, a_batch(b"slow"), acks=1)
        behind = begin(broker, a_batch(b"behind", codec=Codec.ZSTD), acks=1)
        beside = begin(broker, a_batch(b"beside", codec=Codec.ZSTD), partition=1, acks=1)
        assert (slow, behind, offset_of(beside)) == ([], [], 0)
        broker.run_jobs()
        assert (offset_of(slow), offset_of(behind)) == (0, 1)
        assert not broker.partition().has_queue
        assert stored(broker) == [(Codec.ZSTD, [b"slow"]), (Codec.ZSTD, [b"behind"])]


def test_jobs_that_come_back_in_another_order_change_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        held = broker.hold(recompressing.Conversion, Pause)
        answers = [begin(broker, a_batch(b"%d" % n), acks=1) for n in range(6)]
        assert len(held) == recompressing.AT_ONCE, "the others wait until a thread is free"
        while held:
            job, finish = held.pop()
            job.run()
            finish()
        assert [offset_of(answer) for answer in answers] == list(range(6))
        assert broker.broker.recompressor.waiting_bytes == 0
        broker.run_jobs()
        assert [values for _, values in stored(broker)] == [[b"%d" % n] for n in range(6)]


def test_a_partition_with_many_batches_does_not_hold_up_another(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2, compression_type="zstd")
        held = broker.hold(recompressing.Conversion)
        many = [begin(broker, a_batch(b"%d" % n), acks=1) for n in range(20)]
        one = begin(broker, a_batch(b"one"), partition=1, acks=1)
        jobs = 0
        while not one:
            job, finish = held.popleft()
            job.run()
            finish()
            jobs += 1
        assert jobs <= 2 * recompressing.AT_ONCE
        while held:
            job, finish = held.popleft()
            job.run()
            finish()
        assert [offset_of(answer) for answer in many] == list(range(20))


def test_a_pipelined_idempotent_producer_keeps_its_sequence_despite_retries(tmp_path: Path) -> None:
    def a_part(number: int) -> bytearray:
        return a_batch(b"%d" % number, codec=Codec(number % 5), producer_id=7, producer_epoch=0, base_sequence=number)

    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="lz4")
        broker.hold_jobs = True
        answers = [begin(broker, a_part(number)) for number in range(5)]
        retries = [begin(broker, a_part(number)) for number in range(5)]
        broker.run_jobs()
        assert [offset_of(answer) for answer in (*answers, *retries)] == [0, 1, 2, 3, 4] * 2
        assert [values for _, values in stored(broker)] == [[b"%d" % number] for number in range(5)]


def test_a_topic_that_no_longer_wants_it_still_keeps_the_order(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        broker.hold_jobs = True
        begin(broker, a_batch(b"before"), acks=1)
        topic = broker.broker.metadata.topics["orders"]
        topic.overrides["compression.type"] = "producer"
        topic.configure(broker.broker.configs)
        begin(broker, a_batch(b"after"), acks=1)
        broker.run_jobs()
        assert stored(broker) == [(Codec.ZSTD, [b"before"]), (Codec.NONE, [b"after"])]


def turns(broker: LocalBroker) -> list[int]:
    """Runs one job after the other, and says where the log ended after each."""
    ends: list[int] = []
    while broker._jobs:
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        ends.append(broker.log().end_offset)
    return ends


def test_a_long_queue_is_appended_in_turns_and_new_batches_are_queued_behind_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        broker.hold_jobs = True
        length = 2 * recompressing.TURN_BATCHES_MAX + 10
        answers = [begin(broker, a_batch(b"0"), acks=1)]
        answers += [begin(broker, a_batch(b"%d" % n, codec=Codec.ZSTD), acks=1) for n in range(1, length)]
        assert broker.broker.recompressor.waiting_bytes > 1000 * length, "a small one costs more than its bytes"
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        assert broker.log().end_offset == recompressing.TURN_BATCHES_MAX
        answers.append(begin(broker, a_batch(b"%d" % length, codec=Codec.ZSTD), acks=1))
        answers.append(begin(broker, a_batch(b"%d" % (length + 1)), acks=1))
        assert max(b - a for a, b in pairwise(turns(broker))) <= recompressing.TURN_BATCHES_MAX
        assert [offset_of(answer) for answer in answers] == list(range(length + 2))
        assert not broker.partition().has_queue
        assert broker.broker.recompressor.waiting_bytes == 0
        assert [values for _, values in stored(broker)] == [[b"%d" % n] for n in range(length + 2)]


def test_a_line_of_large_batches_is_worked_off_in_turns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompressing, "TURN_BYTES_MAX", 10_000)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="uncompressed")
        broker.hold_jobs = True
        begin(broker, a_batch(bytes(6000), codec=Codec.ZSTD), acks=1)
        for _ in range(5):
            begin(broker, a_batch(bytes(6000)), acks=1)
        assert turns(broker) == [2, 4, 6]


def test_one_that_cannot_be_told_does_not_hold_up_those_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        broker.hold_jobs = True
        broker.begin(produce_request(a_batch(b"a"), acks=1), 12).when_resolved(fail)
        behind = begin(broker, a_batch(b"b", codec=Codec.ZSTD), acks=1)
        broker.run_jobs()
        assert offset_of(behind) == 1
        assert not broker.partition().has_queue
        assert broker.broker.recompressor.waiting_bytes == 0
    assert "ZeroDivisionError" in caplog.text


# Answers


def test_acks_mean_what_they_mean_elsewhere(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        broker.hold_jobs = True
        safe, written, silent = (begin(broker, a_batch(b"a"), acks=acks) for acks in (-1, 1, 0))
        for job, finish in list(broker._jobs):
            broker._jobs.popleft()
            job.run()
            finish()
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        assert (safe, offset_of(written)) == ([], 1), "one is appended, the other not on disk yet"
        assert isinstance(silent[0], Silence)
        assert not silent[0].close
        broker.run_jobs()
        assert offset_of(safe) == 0


def test_a_produce_to_many_partitions_is_answered_when_all_have_their_batch(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3, compression_type="zstd")
        batches = [a_batch(b"a"), a_batch(b"b", codec=Codec.ZSTD), a_batch(b"c")]
        data = [PartitionProduceData(index=n, records=records) for n, records in enumerate(batches)]
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=data)]
        )
        answers = broker.ask(request, 12).responses[0].partition_responses
        assert [(answer.index, answer.error_code, answer.base_offset) for answer in answers] == [
            (0, 0, 0), (1, 0, 0), (2, 0, 0),
        ]  # fmt: skip
        assert broker.partition(index=2).high_watermark == 1


def test_one_whose_time_is_up_has_its_turn_and_is_told_that_the_disk_was_slow(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        broker.hold_jobs = True
        answer = broker.begin(produce_request(a_batch(b"a")), 12)
        assert answer.wait_ms == 1000
        answers = resolved(answer)
        answer.expire()
        assert answers == []
        job, finish = broker._jobs.popleft()
        job.run()
        finish()
        assert only_partition(answers[0]).error_code == ErrorCode.REQUEST_TIMED_OUT
        broker.run_jobs()
        assert broker.values() == [b"a"]


def test_while_it_waits_nothing_holds_the_frame_it_came_in(tmp_path: Path) -> None:
    class Frame(bytearray):
        """One that can be watched."""

    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        broker.hold_jobs = True
        frame = Frame(codec.encode(produce_request(a_batch(b"a")), 12))
        gone = weakref.ref(frame)
        request = codec.decode(ProduceRequest, 12, memoryview(frame), elements=10)
        call = Call(12, "test", ENDPOINT, broker.now_ms, broker.now_ms, "/127.0.0.1")
        answers = resolved(broker.broker.handle(APIS[ApiKey.PRODUCE], request, call))
        del request, frame
        assert gone() is None
        broker.run_jobs()
        assert offset_of(answers) == 0


# What is wrong with it


def refusal(broker: LocalBroker, batch: bytes | bytearray, acks: int = -1) -> Any:
    return only_partition(broker.ask(produce_request(batch, acks=acks), 12))


def test_a_batch_that_is_refused_does_not_hold_up_those_behind_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd", max_message_bytes="2000")
        broker.hold_jobs = True
        damaged = a_batch(b"damaged")
        damaged[-1] ^= 1
        short = a_batch(b"short")[:-1]
        bad = [begin(broker, one) for one in (damaged, short, batch_of(b"no gzip at all", attributes=Codec.GZIP))]
        good = begin(broker, a_batch(b"good"))
        broker.run_jobs()
        assert [only_partition(answer[0]).error_code for answer in bad] == [
            ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD,
        ]  # fmt: skip
        assert offset_of(good) == 0
        assert broker.values() == [b"good"]


def test_a_codec_that_panics_is_an_error_of_that_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Panic(BaseException):
        """As a library that is not written in Python may raise it."""

    def panic(*_: object) -> None:
        raise Panic("index out of bounds")

    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="zstd")
        broker.hold_jobs = True
        bad = begin(broker, a_batch(b"bad"), acks=1)
        behind = begin(broker, a_batch(b"behind", codec=Codec.ZSTD), acks=1)
        monkeypatch.setattr(recompressing, "recompress", panic)
        broker.run_jobs()
        answer = only_partition(bad[0])
        assert (answer.error_code, answer.base_offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        assert offset_of(behind) == 0
    assert "Panic: index out of bounds" in caplog.text


def test_a_bomb_is_refused_as_too_large(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="lz4")
        bomb = batch_of(compress(Codec.ZSTD, bytes(BOMB)), attributes=Codec.ZSTD)
        answer = refusal(broker, bomb)
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert str(16 << 20) in answer.error_message
        assert broker.log().end_offset == 0


def a_request_of(batches: Sequence[bytes | bytearray], topic: str = "orders") -> ProduceRequest:
    """One batch for each partition."""
    data = [PartitionProduceData(index=n, records=records) for n, records in enumerate(batches)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


@pytest.mark.parametrize("config", [{"compression_type": "lz4"}, {"cleanup_policy": "compact"}])
def test_the_bombs_of_a_request_decompress_to_no_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, str]
) -> None:
    allowed = []

    def decompress(kind: int, data: Any, limit: int) -> Any:
        allowed.append(limit)
        return really(kind, data, limit)

    really = codecs.decompress
    monkeypatch.setattr(codecs, "decompress", decompress)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=20, **config)
        bomb = batch_of(compress(Codec.ZSTD, bytes(BOMB)), attributes=Codec.ZSTD)
        plain = encode_batch([Record(0, broker.now_ms, b"key", b"plain")])
        answers = broker.ask(a_request_of([bomb] * 19 + [plain]), 12).responses[0].partition_responses
        assert {answer.error_code for answer in answers[:19]} == {ErrorCode.MESSAGE_TOO_LARGE}
        assert "Send fewer of them in one request" in answers[18].error_message
        assert (answers[19].error_code, answers[19].base_offset) == (0, 0)
        assert sum(allowed) < DECOMPRESSED_BYTES_MAX + 19 * 16 * len(bomb)
        assert only_partition(broker.ask(a_request_of([bomb]), 12)).error_message.endswith(str(16 << 20)), "not theirs"


def test_a_request_of_batches_with_usual_records_may_be_as_large_as_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "DECOMPRESSED_BYTES_MAX", 10_000)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=30, compression_type="lz4")
        batch = a_batch(*(b"%d" % (n * n) for n in range(1000)), codec=Codec.GZIP)
        answers = broker.ask(a_request_of([batch] * 30), 12).responses[0].partition_responses
        assert {answer.error_code for answer in answers} == {0}


def test_what_may_be_sent_as_it_is_may_be_sent_compressed(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="lz4", max_message_bytes=str(18 << 20))
        assert refusal(broker, a_batch(bytes(BOMB), codec=Codec.ZSTD)).error_code == 0
        assert refusal(broker, a_batch(bytes(19 << 20), codec=Codec.ZSTD)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_max_message_bytes_holds_for_what_arrives_and_for_what_is_kept(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="uncompressed", max_message_bytes="500")
        assert refusal(broker, a_batch(bytes(1000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert refusal(broker, a_batch(bytes(1000), codec=Codec.GZIP)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert refusal(broker, a_batch(bytes(300), codec=Codec.GZIP)).error_code == 0


def test_without_acks_an_error_closes_the_connection(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="gzip")
        damaged = a_batch(b"damaged")
        damaged[-1] ^= 1
        answers = begin(broker, damaged, acks=0)
        broker.run_jobs()
        assert answers[0].close


def test_a_topic_that_is_deleted_meanwhile_is_unknown_and_nothing_comes_back_of_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="gzip")
        broker.hold_jobs = True
        answers = begin(broker, a_batch(b"a"))
        broker.delete_topic()
        broker.run_jobs()
        assert only_partition(answers[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.broker.partition("orders", 0) is None
        assert not list(tmp_path.glob("orders-*"))


def test_batches_that_grow_are_changed_one_at_a_time_once_there_are_too_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompressing, "WAITING_BYTES_MAX", 15_000)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="uncompressed")
        held = broker.hold(recompressing.Conversion, Pause)
        recompressor = broker.broker.recompressor
        answers = [begin(broker, a_batch(bytes(10_000), codec=Codec.ZSTD), acks=1) for _ in range(10)]
        first, second = held.popleft(), held.popleft()
        second[0].run()
        second[1]()
        assert recompressor.waiting_bytes > 15_000, "which wait for the first"
        assert not held, "so that no others join them"
        first[0].run()
        first[1]()
        while held:
            job, finish = held.popleft()
            job.run()
            finish()
        assert [offset_of(answer) for answer in answers] == list(range(10))
        assert recompressor.waiting_bytes == 0


def test_more_than_may_wait_is_refused_so_that_clients_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompressing, "WAITING_BYTES_MAX", 2 * (110 + recompressing.BATCH_OVERHEAD))
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(compression_type="gzip")
        broker.hold_jobs = True
        taken = [begin(broker, a_batch(bytes(40))) for _ in range(2)]  # of 110 bytes each
        assert only_partition(begin(broker, a_batch(bytes(40)))[0]).error_code == ErrorCode.REQUEST_TIMED_OUT
        broker.run_jobs()
        assert [offset_of(answer) for answer in taken] == [0, 1]
        again = begin(broker, a_batch(bytes(40)))
        broker.run_jobs()
        assert offset_of(again) == 2
