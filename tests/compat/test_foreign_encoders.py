"""Batches of other clients on their way through the log: what comes out is what they put in, to the byte."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import TopicPartition
from tailrace.log.time_search import FoundTime
from tailrace.records.batch import check, read_header, split
from tailrace.records.compression import Codec
from tailrace.records.record import Record, decode_records

NOW = 1_700_000_000_000
WORDS = TopicPartition("words", 0)


def some_records(count: int, seed: int) -> list[Record]:
    """Keys and values that are null, empty, small and large, headers with and without a value, times in any order."""
    values = [None, b"", b"small", bytes(range(256)), b"compressible " * 500]
    headers = [(), (("header", b"value"),), (("a", None), ("a", b""), ("ü", b"\xff"))]
    return [
        Record(
            number,
            NOW + (seed + 7 * number) % 50,
            None if number % 4 == 0 else b"key %d" % number,
            values[(number + seed) % len(values)],
            headers[(number + seed) % len(headers)],
        )
        for number in range(count)
    ]


def by_aiokafka(
    records: list[Record], codec: Codec, *, producer: tuple[int, int, int] = (-1, -1, -1), transactional: bool = False
) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, codec, int(transactional), *producer, 1 << 20)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytearray(builder.build())


def by_kafka_python(
    records: list[Record], codec: Codec, *, producer: tuple[int, int, int] = (-1, -1, -1), transactional: bool = False
) -> bytearray:
    producer_id, producer_epoch, base_sequence = producer
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=codec,
        batch_size=1 << 20,
        transactional=transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    for record in records:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    return bytearray(builder.buffer())


Encoder = Callable[..., bytearray]
all_codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
both_encoders = pytest.mark.parametrize("encode", [by_aiokafka, by_kafka_python])


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"), LogConfig(segment_bytes=40_000))
    yield directory
    directory.close(NOW)


def unstamped(data: bytes) -> bytes:
    """Without what the log writes over: the base offset and the leader epoch."""
    return data[8:12] + data[16:]


@all_codecs
@both_encoders
def test_batches_of_other_clients_are_read_back_as_they_were_sent(
    directory: DataDirectory, encode: Encoder, codec: Codec
) -> None:
    log = directory.create(WORDS)
    log.raise_leader_epoch(3)
    sent: list[tuple[int, bytes, list[Record]]] = []
    codecs = set()
    for number in range(30):
        records = some_records(1 + number * 3 % 20, number)
        data = encode(records, codec)
        original = bytes(data)
        codecs.add(check(data).codec)
        appended = log.append(data, NOW)
        sent.append((appended.base_offset, original, records))
    log.flush()
    offset = 0
    found: list[bytes] = []
    while (piece := log.read(offset, 1)) is not None:
        with piece:
            found.append(piece.read())
        offset = piece.next_offset
    assert len(found) == len(sent)
    for kept, (base_offset, original, records) in zip(found, sent, strict=True):
        header = read_header(kept)
        assert (header.base_offset, header.leader_epoch) == (base_offset, 3)
        assert unstamped(kept) == unstamped(original)
        assert decode_records(kept) == [record._replace(offset=base_offset + record.offset) for record in records]
    assert codec in codecs <= {codec, Codec.NONE}, "what compression makes no smaller is sent as it is"


@all_codecs
@both_encoders
def test_they_are_read_back_after_a_restart_too_and_found_by_time(
    directory: DataDirectory, tmp_path: Path, encode: Encoder, codec: Codec
) -> None:
    log = directory.create(WORDS)
    records = [Record(number, NOW + 10 * number, b"key", b"value %d" % number) for number in range(40)]
    for start in range(0, 40, 8):
        log.append(encode([r._replace(offset=r.offset - start) for r in records[start : start + 8]], codec), NOW)
    directory.close(NOW)
    again = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"), directory.config)
    log = again.logs[WORDS]
    piece = log.read(0, 1 << 20)
    assert piece is not None
    with piece:
        data = piece.read()
    assert [record for position, _ in split(data) for record in decode_records(data, position)] == records
    for record in records:
        assert log.find_time(record.timestamp - 9) == FoundTime(record.offset, record.timestamp)
    again.close(NOW)
    lock = directory.files.lock(str(tmp_path / "data" / ".lock"))
    assert lock is not None
    directory._lock = lock  # the fixture closes it once more


@both_encoders
def test_the_sequences_of_other_clients_are_understood(directory: DataDirectory, encode: Encoder) -> None:
    log = directory.create(WORDS)
    for number in range(4):
        log.append(encode(some_records(5, number), Codec.ZSTD, producer=(4000, 2, 5 * number)), NOW)
    again = log.append(encode(some_records(5, 2), Codec.ZSTD, producer=(4000, 2, 10)), NOW)
    assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, 10, 14)
    assert log.end_offset == 20


@both_encoders
def test_the_transactions_of_other_clients_are_understood(directory: DataDirectory, encode: Encoder) -> None:
    log = directory.create(WORDS)
    log.append(encode(some_records(3, 0), Codec.NONE), NOW)
    log.append(encode(some_records(3, 1), Codec.LZ4, producer=(4000, 0, 0), transactional=True), NOW)
    log.flush()
    assert (log.last_stable_offset, log.high_watermark) == (3, 6)


@all_codecs
@both_encoders
def test_several_of_their_batches_are_appended_one_after_the_other(
    directory: DataDirectory, encode: Encoder, codec: Codec
) -> None:
    log = directory.create(WORDS)
    several = [encode(some_records(1 + number, number), codec) for number in range(5)]
    originals = [bytes(data) for data in several]
    appended = [log.append(bytearray(data), NOW) for data in several]
    log.flush()
    assert (appended[0].base_offset, appended[-1].last_offset) == (0, 14)
    piece = log.read(0, 1 << 20)
    assert piece is not None
    with piece:
        data = piece.read()
    found = [data[position : position + header.size] for position, header in split(data)]
    assert [unstamped(batch) for batch in found] == [unstamped(original) for original in originals]
    assert [read_header(batch).base_offset for batch in found] == [0, 1, 3, 6, 10]
