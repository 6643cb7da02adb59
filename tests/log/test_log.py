"""One log and its owner: what is appended, refused, rolled, flushed and deleted, and what that changes."""

import struct
import weakref
from collections.abc import Callable
from contextlib import suppress
from errno import EIO
from pathlib import Path

import pytest
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, reopen, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.index import RELATIVE_OFFSET_MAX, AbortedTransaction
from tailrace.log.files.leader_epochs import EpochEnd
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import (
    InvalidAppend,
    InvalidProducerEpoch,
    JobUnderWay,
    LogClosed,
    LogOffline,
    OffsetOutOfRange,
    OutOfOrderSequence,
)
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.records import batch
from tailrace.records.batch import CONTROL, read_header, seal, split
from tailrace.records.compression import Codec
from tailrace.records.control import Marker, encode_marker
from tailrace.records.errors import CorruptBatch, CorruptRecords, TruncatedBatch
from tailrace.records.record import Record, decode_records, encode_batch
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

NOW = 5000
LARGE = LogConfig()


class Setup:
    """A directory in memory with one log."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        self.config = config
        self.directory = DataDirectory(self.files, DATA, config)
        self.log = self.directory.create(ORDERS)
        self.log.flush()

    def content(self, base_offset: int = 0) -> bytes:
        return bytes(self.memory.disk.file(f"{PARTITION}/{base_offset:020d}.log"))

    def log_files(self) -> list[int]:
        return sorted(int(name[:20]) for name in self.memory.files_in(PARTITION) if name.endswith(".log"))

    def writes(self) -> int:
        inodes = {inode for path, inode in self.memory.disk.names.items() if path.endswith(".log")}
        return sum(call.kind == "write" and call.inode in inodes for call in self.memory.calls)

    def restart(self, *, clean: bool) -> Log:
        if clean:
            self.directory.close(NOW)
        directory = DataDirectory(RecordingFiles(self.memory.disk.copy()), DATA, self.config)
        assert directory.was_clean is clean
        return directory.logs[ORDERS]


@pytest.fixture
def setup() -> Setup:
    return Setup()


def transactional(producer: int, count: int = 1, *, sequence: int = 0, epoch: int = 0, size: int = 50) -> bytearray:
    records = [Record(number, 1000 + number, b"key", b"t" * size) for number in range(count)]
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)


def marker(kind: Marker, producer: int) -> bytearray:
    return encode_marker(kind, producer, 0, 1, 1000)


CLAIM = 9_000_000


def claiming(count: int = CLAIM, *, size: int = 20) -> bytearray:
    """A batch whose header claims so many records, one for each of its offsets, and to be compressed: nobody on this
    path decodes them, and nobody can say that they are not there.
    """
    data = batch_of(1, size=size)
    struct.pack_into(">h", data, 21, Codec.ZSTD)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    seal(data)
    return data


def sizes_of(*batches: bytes | bytearray) -> int:
    return sum(map(len, batches))


# Appending


def test_an_append_is_one_write(setup: Setup) -> None:
    data = batch_of(2)
    before = setup.writes()
    appended = setup.log.append(data, NOW)
    assert setup.writes() == before + 1
    assert (appended.base_offset, appended.last_offset, appended.is_duplicate) == (0, 1, False)
    assert setup.content() == data


def test_batches_get_the_offsets_that_follow_and_the_epoch_of_the_log(setup: Setup) -> None:
    setup.log.append(batch_of(3), NOW)
    setup.log.raise_leader_epoch(6)
    appended = [setup.log.append(batch_of(count), NOW) for count in (2, 4, 1)]
    assert [(one.base_offset, one.last_offset) for one in appended] == [(3, 4), (5, 8), (9, 9)]
    headers = [header for _, header in split(setup.content())]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 0), (3, 6), (5, 6), (9, 6)]
    assert setup.log.end_offset == 10


def test_a_view_into_a_larger_buffer_is_appended_and_the_rest_of_it_left_alone(setup: Setup) -> None:
    data = batch_of(2)
    frame = bytearray(b"before") + data + b"after"
    setup.log.append(memoryview(frame)[6 : 6 + len(data)], NOW)
    assert (frame[:6], frame[6 + len(data) :]) == (b"before", b"after")
    assert setup.content() == bytes(frame[6 : 6 + len(data)])


def test_records_keep_their_own_time_unless_the_log_is_told_to_set_it(setup: Setup) -> None:
    assert setup.log.append(batch_of(2, time=1000), NOW).log_append_time == batch.NO_TIMESTAMP
    assert [record.timestamp for record in decode_records(setup.content())] == [1000, 1001]


def test_every_record_gets_the_time_of_the_append_where_the_log_sets_it() -> None:
    setup = Setup(LogConfig(log_append_time=True))
    for data in (batch_of(2, time=1000), batch_of(1, time=9000)):
        assert setup.log.append(data, NOW).log_append_time == NOW
    for position, header in split(setup.content()):  # which checks the CRC
        assert header.has_log_append_time
        assert header.max_timestamp == NOW
        assert {record.timestamp for record in decode_records(setup.content(), position)} == {NOW}


def test_a_batch_as_large_as_a_segment_is_appended() -> None:
    data = batch_of(3)
    setup = Setup(LogConfig(segment_bytes=len(data)))
    setup.log.append(data, NOW)
    setup.log.append(batch_of(3), NOW)
    assert setup.log_files() == [0, 3]


# Refusing


def with_field(position: int, layout: str, value: int, *, sealed: bool = True) -> bytearray:
    data = batch_of(3)
    struct.pack_into(layout, data, position, value)
    if sealed:
        seal(data)
    return data


def control(key: bytes | None, value: bytes | None = b"\0\0\0\0\0\0") -> bytearray:
    return encode_batch([Record(0, 1, key, value)], producer_id=9, producer_epoch=0, transactional=True, control=True)


def spoilt_payload() -> bytearray:
    """Intact by its CRC, but what should be a marker is compressed with nothing."""
    data = marker(Marker.COMMIT, 9)
    struct.pack_into(">h", data, 21, CONTROL | 4)
    seal(data)
    return data


REFUSED: dict[str, tuple[bytearray, type[Exception]]] = {
    "no bytes at all": (bytearray(), InvalidAppend),
    "less than a header": (batch_of(1)[:60], TruncatedBatch),
    "a batch that is cut": (batch_of(3)[:-1], TruncatedBatch),
    "bytes behind the batch": (batch_of(3) + b"\0", InvalidAppend),
    "an older format": (with_field(16, ">b", 1), CorruptBatch),
    "a length shorter than a header": (with_field(8, ">i", 48, sealed=False), CorruptBatch),
    "a negative length": (with_field(8, ">i", -1, sealed=False), CorruptBatch),
    "a negative offset": (with_field(0, ">q", -1), CorruptBatch),
    "a negative offset delta": (with_field(23, ">i", -1), CorruptBatch),
    "more records than offsets": (with_field(57, ">i", 4), CorruptBatch),
    "a negative count": (with_field(57, ">i", -1), CorruptBatch),
    "a CRC that does not match": (with_field(17, ">I", 7, sealed=False), CorruptBatch),
    "a flipped bit in a record": (with_field(70, ">b", 0, sealed=False), CorruptBatch),
    "two batches": (batch_of(1) + batch_of(1), InvalidAppend),
    "a batch and a part of one": (batch_of(1) + batch_of(1)[:30], InvalidAppend),
    "a marker without a key": (control(None), CorruptRecords),
    "a marker with a short value": (control(b"\0\0\0\1", b"\0"), CorruptRecords),
    "a marker that cannot be decompressed": (spoilt_payload(), CorruptRecords),
    "fewer records than offsets": (with_field(57, ">i", 2), InvalidAppend),
    "a batch that compaction emptied": (encode_batch([], last_offset_delta=2), InvalidAppend),
    "a batch larger than a segment": (batch_of(1, size=2000), InvalidAppend),
    "a sequence that skips one": (batch_of(1, producer=7, sequence=3), OutOfOrderSequence),
    "a sequence that overlaps": (batch_of(2, producer=7, sequence=1), OutOfOrderSequence),
    "an older instance of a producer": (transactional(8, epoch=0), InvalidProducerEpoch),
    "a marker of an older instance": (marker(Marker.ABORT, 8), InvalidProducerEpoch),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_appended_is_refused_and_changes_nothing(setup: Setup, name: str) -> None:
    setup.log.append(batch_of(2, producer=7, sequence=0), NOW)
    setup.log.append(transactional(8, epoch=3), NOW)
    setup.log.flush()
    data, error = REFUSED[name]
    before = state_of(setup)
    with pytest.raises(error):
        setup.log.append(bytearray(data), NOW + 1)
    assert state_of(setup) == before
    assert setup.log.append(batch_of(1, producer=7, sequence=2), NOW).base_offset == 3, "appends go on"


def state_of(setup: Setup) -> list[object]:
    log = setup.log
    return [
        repr(log.bounds),
        setup.memory.disk.fingerprint(),
        len(setup.memory.calls),
        repr(log.producers.producers),
        log.last_stable_offset,
        log.dirty_bytes,
        [segment.size for segment in log.segments],
    ]


def test_the_buffer_of_a_refused_append_is_not_stamped_either(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    data = bytearray(with_field(17, ">I", 7, sealed=False))
    copy = bytes(data)
    with pytest.raises(CorruptBatch):
        setup.log.append(data, NOW)
    assert data == copy


# Idempotent producers


def test_a_repetition_is_answered_with_the_original_s_offsets_and_not_written(setup: Setup) -> None:
    originals = [setup.log.append(batch_of(2, producer=7, sequence=2 * number), NOW) for number in range(5)]
    setup.log.append(batch_of(3), NOW)
    before = state_of(setup)
    for number, original in enumerate(originals):
        again = setup.log.append(batch_of(2, producer=7, sequence=2 * number), NOW + 9)
        assert again.is_duplicate
        assert (again.base_offset, again.last_offset) == (original.base_offset, original.last_offset)
    assert state_of(setup)[:4] == before[:4]


@pytest.mark.parametrize("clean", [True, False])
def test_a_repetition_is_recognised_after_a_restart(setup: Setup, clean: bool) -> None:
    for number in range(20):
        setup.log.append(batch_of(2, producer=7, sequence=2 * number), NOW)
    setup.log.flush()
    log = setup.restart(clean=clean)
    again = log.append(batch_of(2, producer=7, sequence=2 * 17), NOW)
    assert (again.base_offset, again.is_duplicate) == (34, True)
    with pytest.raises(OutOfOrderSequence):
        log.append(batch_of(2, producer=7, sequence=41), NOW)
    assert log.append(batch_of(2, producer=7, sequence=40), NOW).base_offset == 40


def test_markers_of_several_producers_count_for_theirs(setup: Setup) -> None:
    setup.log.append(transactional(7), NOW)
    setup.log.append(transactional(8), NOW)
    setup.log.append(marker(Marker.ABORT, 7), NOW)
    setup.log.append(marker(Marker.COMMIT, 8), NOW)
    setup.log.flush()
    assert setup.log.last_stable_offset == 4
    assert setup.log.aborted_transactions(0, 4) == [AbortedTransaction(7, 0, 2, 1)]


# Rolling


def test_a_segment_rolls_when_the_next_bytes_would_make_it_too_large() -> None:
    one = len(batch_of(3))
    setup = Setup(LogConfig(segment_bytes=3 * one))
    for _ in range(7):
        setup.log.append(batch_of(3), NOW)
    assert setup.log_files() == [0, 9, 18]
    assert [segment.size for segment in setup.log.segments] == [3 * one, 3 * one, one]


def test_a_segment_rolls_when_its_first_append_is_too_long_ago() -> None:
    setup = Setup(LogConfig(segment_ms=100))
    setup.log.append(batch_of(1), NOW)
    setup.log.append(batch_of(1), NOW + 100)
    assert setup.log_files() == [0]
    setup.log.append(batch_of(1), NOW + 101)
    assert setup.log_files() == [0, 2]
    setup.log.append(batch_of(1), NOW + 201)
    assert setup.log_files() == [0, 2]
    setup.log.append(batch_of(1), NOW + 202)
    assert setup.log_files() == [0, 2, 4]


def test_logs_that_began_together_roll_at_different_times_where_there_is_jitter() -> None:
    directory = DataDirectory(memory_files(), DATA, LogConfig(segment_ms=1000, segment_jitter_ms=400))
    logs = [directory.create(TopicPartition("orders", n)) for n in range(20)]
    rolled_at: dict[int, int] = {}
    for time in range(0, 1101, 50):
        for n, log in enumerate(logs):
            log.append(batch_of(1), NOW + time)
            if len(log.segments) > 1:
                rolled_at.setdefault(n, time)
    assert len(rolled_at) == 20
    assert all(600 < time <= 1050 for time in rolled_at.values())
    assert len(set(rolled_at.values())) > 4


def test_jitter_of_more_than_the_age_itself_is_as_much_as_that() -> None:
    setup = Setup(LogConfig(segment_ms=100, segment_jitter_ms=1 << 60))
    setup.log.append(batch_of(1), NOW)
    setup.log.append(batch_of(1), NOW)
    assert setup.log_files() == [0]
    setup.log.append(batch_of(1), NOW + 101)
    assert setup.log_files() == [0, 2]


def test_a_segment_rolls_when_one_of_its_indexes_is_full() -> None:
    setup = Setup(LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for n in range(20):
        setup.log.append(batch_of(1, time=n), NOW)
    setup.log.checkpoint(NOW)
    sizes = {
        name: len(setup.memory.disk.file(f"{PARTITION}/{name}"))
        for name in setup.memory.files_in(PARTITION)
        if name.endswith("index")
    }
    assert len(setup.log_files()) > 2
    assert 40 <= max(sizes.values()) <= 60


def test_an_index_without_room_for_an_entry_makes_every_append_a_segment() -> None:
    setup = Setup(LogConfig(segment_index_bytes=4))
    for _ in range(3):
        setup.log.append(batch_of(1), NOW)
    assert setup.log_files() == [0, 1, 2]


@pytest.mark.parametrize(("time", "rolls"), [(NOW, False), (NOW - 51, True), (NOW + 10_000_000, False), (-1, False)])
def test_a_segment_of_an_earlier_process_is_as_old_as_its_first_batch_says(time: int, rolls: bool) -> None:
    setup = Setup(LogConfig(segment_ms=100))
    setup.log.append(encode_batch([Record(0, time, b"", b"")]), NOW)
    setup.log.append(batch_of(1, time=NOW), NOW)
    log = setup.restart(clean=True)
    log.append(batch_of(1), NOW + 50)
    assert len(log.segments) == (2 if rolls else 1)


def test_a_segment_rolls_before_an_offset_is_too_far_from_its_base() -> None:
    setup = Setup(LARGE)
    while setup.log.end_offset + CLAIM <= RELATIVE_OFFSET_MAX:
        setup.log.append(claiming(), NOW)
    setup.log.append(claiming(RELATIVE_OFFSET_MAX + 1 - setup.log.end_offset), NOW)
    assert setup.log_files() == [0], "the last offset that an index can name"
    setup.log.append(batch_of(1), NOW)
    assert setup.log_files() == [0, RELATIVE_OFFSET_MAX + 1]
    setup.log.flush()
    last = setup.log.read(RELATIVE_OFFSET_MAX, 1)
    assert last is not None
    assert last.next_offset == RELATIVE_OFFSET_MAX + 1
    assert list(stored_batches(setup.log))[-1] == RELATIVE_OFFSET_MAX + 1


@pytest.mark.parametrize("batches", [300, 600])
def test_batches_with_too_many_offsets_for_a_segment_are_refused_or_found_again(batches: int) -> None:
    setup = Setup(LARGE)
    data = bytearray(b"".join(claiming(size=100) for _ in range(batches)))
    try:
        setup.log.append(data, NOW)
    except InvalidAppend:
        assert (setup.log.end_offset, setup.content()) == (0, b"")
        return
    setup.log.flush()
    assert list(stored_batches(setup.log)) == [number * CLAIM for number in range(batches)]
    for segment in setup.log.segments:
        last = segment.derived().index.last()
        assert last is None or last.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX, "Kafka cannot read that"


def test_a_roll_begins_a_segment_at_the_end_of_the_log(setup: Setup) -> None:
    setup.log.append(batch_of(3), NOW)
    setup.log.roll()
    assert setup.log_files() == [0, 3]
    setup.log.append(batch_of(2), NOW)
    assert [header.base_offset for _, header in split(setup.content(3))] == [3]
    setup.log.flush()
    assert list(stored_batches(setup.log)) == [0, 3]


def test_a_roll_of_an_empty_segment_does_nothing(setup: Setup) -> None:
    setup.log.roll()
    assert setup.log_files() == [0]
    setup.log.append(batch_of(1), NOW)
    setup.log.roll()
    calls = len(setup.memory.calls)
    setup.log.roll()
    assert setup.log_files() == [0, 1]
    assert len(setup.memory.calls) == calls


def test_a_roll_asks_for_a_checkpoint_that_saves_what_was_sealed(setup: Setup) -> None:
    setup.log.append(batch_of(3), NOW)
    assert not setup.log.wants_checkpoint
    setup.log.roll()
    assert setup.log.wants_checkpoint
    setup.directory.checkpoint(NOW)
    assert not setup.log.wants_checkpoint
    assert setup.log.recovery_point == 3
    assert {"0" * 20 + suffix for suffix in (".index", ".timeindex", ".sums")} <= setup.memory.files_in(
        PARTITION
    ).keys()
    assert f"{3:020d}.snapshot" in setup.memory.files_in(PARTITION)


def test_a_log_that_refuses_again_and_again_does_not_remember_everyone_it_refused(setup: Setup) -> None:
    setup.files.fail("sync", EIO)
    setup.log.append(batch_of(1), NOW)
    for _ in range(50):
        with pytest.raises(LogOffline) as refused:
            setup.log.flush()
    assert len(refused.traceback) < 10


# Configuring


def test_a_log_obeys_a_new_config_from_the_next_append_on(setup: Setup) -> None:
    setup.log.append(batch_of(2, size=400), NOW)
    setup.log.configure(LogConfig(segment_bytes=1200, log_append_time=True))
    assert setup.log.append(batch_of(2), NOW).log_append_time == NOW
    assert len(setup.log.segments) == 1, "there was room in it"
    setup.log.append(batch_of(2), NOW)
    assert len(setup.log.segments) == 2
    setup.log.configure(SMALL)
    assert setup.log.append(batch_of(2), NOW).log_append_time == -1


def test_a_segment_that_is_begun_is_indexed_as_the_new_config_says(setup: Setup) -> None:
    setup.log.configure(LogConfig(index_interval_bytes=0))
    for _ in range(5):
        setup.log.append(batch_of(1), NOW)
    setup.log.roll()
    for _ in range(5):
        setup.log.append(batch_of(1), NOW)
    old, new = setup.log.segments
    assert len(new.derived().index) == 4
    assert len(old.derived().index) < 4


def test_a_log_is_made_with_a_config_of_its_own(setup: Setup) -> None:
    own = LogConfig(segment_bytes=500)
    log = setup.directory.create(TopicPartition("own", 0), config=own)
    assert log.config is own
    assert setup.log.config is setup.config


# Flushing


def test_readers_see_nothing_that_is_not_flushed() -> None:
    setup = Setup(LARGE)
    setup.log.append(batch_of(2), NOW)
    setup.log.append(batch_of(2), NOW)
    assert (setup.log.high_watermark, setup.log.end_offset) == (0, 4)
    assert setup.log.read(0, 10_000) is None
    with pytest.raises(OffsetOutOfRange):
        setup.log.read(1, 10_000)
    setup.log.flush()
    assert list(stored_batches(setup.log)) == [0, 2]
    setup.log.append(batch_of(2), NOW)
    piece = setup.log.read(0, 10_000)
    assert piece is not None
    assert piece.next_offset == 4
    assert setup.log.read(4, 10_000) is None


def test_a_flush_covers_what_was_appended_before_the_disk_was_asked_and_nothing_else(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    job = setup.log.begin_flush()
    assert job is not None
    setup.log.append(batch_of(3), NOW)
    job.run()
    setup.log.append(batch_of(4), NOW)
    assert setup.log.high_watermark == 0, "not before it is finished"
    job.finish()
    assert (setup.log.high_watermark, setup.log.end_offset) == (5, 9)
    assert list(stored_batches(setup.log)) == [0, 2]
    assert setup.log.begin_flush() is not None, "the third batch still waits for its flush"


def test_what_a_flush_has_taken_along_is_not_flushed_again(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    job = setup.log.begin_flush()
    assert job is not None
    setup.log.append(batch_of(3), NOW)
    job.run()
    job.finish()
    assert setup.log.begin_flush() is None
    setup.log.append(batch_of(4), NOW)
    assert setup.log.begin_flush() is not None


def test_a_flush_takes_along_nothing_that_needs_more_than_it_was_begun_for(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    job = setup.log.begin_flush()
    assert job is not None
    setup.log.assign_topic_id(bytes(range(16)))
    setup.log.append(batch_of(3), NOW)
    job.run()
    job.finish()
    assert (setup.log.high_watermark, setup.log.end_offset) == (2, 5)
    setup.log.flush()
    assert setup.log.high_watermark == 5


def test_there_is_nothing_to_flush_twice(setup: Setup) -> None:
    assert setup.log.begin_flush() is None
    setup.log.append(batch_of(2), NOW)
    setup.log.flush()
    assert setup.log.begin_flush() is None


@pytest.mark.parametrize("first", ["begin_flush", "begin_checkpoint"])
def test_a_log_has_one_job_at_a_time_and_goes_on_meanwhile(setup: Setup, first: str) -> None:
    setup.log.append(batch_of(2), NOW)
    job = setup.log.begin_flush() if first == "begin_flush" else setup.log.begin_checkpoint(NOW)
    assert job is not None
    for begin in (setup.log.begin_flush, lambda: setup.log.begin_checkpoint(NOW), setup.log.flush):
        with pytest.raises(JobUnderWay):
            begin()
    job.run()
    setup.log.append(batch_of(3), NOW)
    with pytest.raises(JobUnderWay):
        setup.log.begin_flush()
    job.finish()
    assert (setup.log.high_watermark, setup.log.end_offset) == (2, 5)
    setup.log.flush()
    assert setup.log.high_watermark == 5
    assert list(stored_batches(setup.log)) == [0, 2]


def test_dirty_bytes_are_those_that_no_flush_has_taken(setup: Setup) -> None:
    batches = [batch_of(number) for number in (1, 2, 3)]
    for data in batches[:2]:
        setup.log.append(data, NOW)
    assert setup.log.dirty_bytes == sizes_of(*batches[:2])
    job = setup.log.begin_flush()
    assert job is not None
    setup.log.append(batches[2], NOW)
    assert setup.log.dirty_bytes == len(batches[2])
    job.run()
    setup.log.append(batch_of(4), NOW)
    job.finish()
    assert setup.log.dirty_bytes == sizes_of(batch_of(4))
    setup.log.flush()
    assert setup.log.dirty_bytes == 0


def test_a_flush_begun_before_a_roll_covers_nothing_of_the_new_segment(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    job = setup.log.begin_flush()
    assert job is not None
    setup.log.append(batch_of(2), NOW)
    setup.log.roll()
    setup.log.append(batch_of(2), NOW)
    job.run()
    job.finish()
    assert setup.log.high_watermark == 2
    assert list(stored_batches(setup.log)) == [0]
    setup.log.flush()
    assert list(stored_batches(setup.log)) == [0, 2, 4]


def test_a_segment_is_synced_after_the_one_it_follows(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.roll()
    setup.log.append(batch_of(2), NOW)
    calls = len(setup.memory.calls)
    setup.log.flush()
    names = {inode: path for path, inode in setup.memory.disk.names.items()}
    done = [(call.kind, names.get(call.inode, call.path)) for call in setup.memory.calls[calls:]]
    assert done == [
        ("sync", f"{PARTITION}/{0:020d}.log"),
        ("sync", f"{PARTITION}/{2:020d}.log"),
        ("sync_directory", PARTITION),
    ]


def test_nothing_in_a_new_segment_counts_where_the_old_one_could_not_be_flushed(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.roll()
    setup.log.append(batch_of(2), NOW)
    setup.files.fail("sync", EIO, name=f"{0:020d}.log")
    with pytest.raises(LogOffline):
        setup.log.flush()
    assert setup.log.high_watermark == 0
    with pytest.raises(LogOffline):
        setup.log.append(batch_of(1), NOW)


def test_a_segment_born_while_a_flush_runs_is_on_disk_once_the_next_flush_is_done(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.roll()
    job = setup.log.begin_flush()
    assert job is not None
    job.run()
    setup.log.append(batch_of(2), NOW)
    setup.log.roll()
    setup.log.append(batch_of(2), NOW)
    job.finish()
    setup.log.flush()
    assert setup.log.high_watermark == 6
    for files in setup.memory.power_cuts(len(setup.memory.calls), limit=100):
        log = DataDirectory(files, DATA, SMALL).logs[ORDERS]
        assert log.end_offset == 6, "the flush did not sync the directory, so the newest segment may be gone"


# Deleting


def filled(setup: Setup, batches: int = 20) -> list[int]:
    """Batches of three over several segments, flushed; returns where the segments begin."""
    for _ in range(batches):
        setup.log.append(batch_of(3), NOW)
    setup.log.flush()
    return [segment.base_offset for segment in setup.log.segments]


def test_what_was_deleted_cannot_be_read_and_the_rest_can(setup: Setup) -> None:
    bases = filled(setup)
    offset = bases[2] + 1
    setup.log.delete_before(offset)
    assert setup.log.start_offset == offset
    with pytest.raises(OffsetOutOfRange):
        setup.log.read(offset - 1, 100)
    assert [segment.base_offset for segment in setup.log.segments] == bases[2:]
    assert list(stored_batches(setup.log)) == list(range(bases[2], 60, 3)), "whole batches, also across the start"


def test_a_segment_goes_when_the_start_reaches_its_end_and_not_before(setup: Setup) -> None:
    bases = filled(setup)
    setup.log.delete_before(bases[1] - 1)
    assert setup.log.condemned == []
    setup.log.delete_before(bases[1])
    assert [segment.base_offset for segment in setup.log.condemned] == [bases[0]]


def test_a_log_can_be_deleted_up_to_its_high_watermark_and_goes_on(setup: Setup) -> None:
    bases = filled(setup)
    setup.log.append(batch_of(3), NOW)
    for outside in (61, 63, 64):
        with pytest.raises(OffsetOutOfRange):
            setup.log.delete_before(outside)
    setup.log.delete_before(60)
    assert setup.log.start_offset == setup.log.high_watermark == 60
    assert setup.log.read(60, 100) is None
    assert [segment.base_offset for segment in setup.log.segments] == [max(base for base in bases if base <= 60)]
    setup.log.flush()
    assert list(stored_batches(setup.log)) == [60]


def test_the_start_of_a_log_never_moves_back(setup: Setup) -> None:
    filled(setup)
    setup.log.delete_before(10)
    with pytest.raises(OffsetOutOfRange):
        setup.log.delete_before(9)
    setup.log.delete_before(10)
    assert setup.log.start_offset == 10


def test_deleted_files_stay_until_the_start_offset_is_on_disk(setup: Setup) -> None:
    bases = filled(setup)
    setup.directory.checkpoint(NOW)
    setup.log.delete_before(bases[2])
    setup.log.flush()
    setup.log.checkpoint(NOW)
    assert setup.log_files() == bases
    setup.directory.checkpoint(NOW)
    assert setup.log_files() == bases[2:]
    assert setup.log.condemned == []
    left = {int(name[:20]) for name in setup.memory.files_in(PARTITION) if name[0] == "0"}
    assert min(left) == bases[2], "what was derived from them is gone, too"


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_deleted_stays_deleted_after_a_restart(setup: Setup, clean: bool) -> None:
    bases = filled(setup)
    setup.log.delete_before(bases[1] + 1)
    setup.directory.checkpoint(NOW)
    log = setup.restart(clean=clean)
    assert log.start_offset == bases[1] + 1
    assert list(stored_batches(log)) == list(range(bases[1], 60, 3))


def test_a_slice_can_be_read_after_its_segment_is_deleted_and_descriptors_run_out(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=4)
    directory = DataDirectory(files, str(tmp_path / "data"), SMALL)
    log = directory.create(ORDERS)
    for _ in range(60):
        log.append(batch_of(3), NOW)
    log.flush()
    expected = stored_batches(log)
    held = [log.read(segment.base_offset, 1) for segment in log.segments[:3]]
    log.delete_before(log.high_watermark)
    directory.checkpoint(NOW)
    assert not (tmp_path / "data" / str(ORDERS) / f"{0:020d}.log").exists()
    for number in range(20):
        files.open(str(tmp_path / f"other-{number}"), create=True).write_at(0, b"x")
    for piece in held:
        assert piece is not None
        data = piece.read()
        assert data == expected[read_header(data).base_offset]
        piece.release()
    assert files.open_descriptors <= 4
    directory.close(NOW)


# Epochs


def test_an_epoch_that_is_raised_is_on_disk_at_once_and_never_goes_back(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.raise_leader_epoch(4)
    assert bytes(setup.memory.disk.file(f"{PARTITION}/leader-epoch-checkpoint")) == b"0\n2\n0 0\n4 2\n"
    calls = len(setup.memory.calls)
    setup.log.raise_leader_epoch(4)
    setup.log.raise_leader_epoch(3)
    assert setup.log.leader_epoch == 4
    assert len(setup.memory.calls) == calls


def test_where_an_epoch_ends_is_told_as_far_as_readers_may_know(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.flush()
    setup.log.raise_leader_epoch(4)
    setup.log.append(batch_of(3), NOW)
    assert setup.log.epoch_end(0) == EpochEnd(0, 2)
    assert setup.log.epoch_end(3) == EpochEnd(0, 2)
    assert setup.log.epoch_end(4) == EpochEnd(4, 2), "what comes is not flushed"
    setup.log.flush()
    assert setup.log.epoch_end(4) == EpochEnd(4, 5)
    assert setup.log.epoch_end(5) == EpochEnd(-1, -1)


def test_an_epoch_begun_behind_the_high_watermark_ends_no_earlier_one_beyond_it(setup: Setup) -> None:
    """What is not flushed may be lost, and its offsets given again: nobody may be told of them."""
    setup.log.append(batch_of(2), NOW)
    setup.log.flush()
    setup.log.append(batch_of(3), NOW)
    setup.log.raise_leader_epoch(4)
    assert setup.log.epoch_end(0).end_offset <= setup.log.high_watermark


def test_an_epoch_that_cannot_be_saved_takes_the_log_offline(setup: Setup) -> None:
    setup.files.fail("rename", EIO, name="leader-epoch")
    with pytest.raises(LogOffline):
        setup.log.raise_leader_epoch(4)
    with pytest.raises(LogOffline):
        setup.log.append(batch_of(1), NOW)


def test_a_log_that_is_offline_keeps_nothing_of_the_batches_that_it_refused(setup: Setup) -> None:
    class Batch(bytearray):
        """One that a weak reference can point to."""

    setup.files.fail("write_at", EIO, name=".log")
    gone = []
    for _ in range(3):
        batch = Batch(batch_of(1))
        gone.append(weakref.ref(batch))
        with suppress(LogOffline):
            setup.log.append(memoryview(batch), NOW)
        del batch
    assert setup.log.offline is not None
    assert [one() for one in gone] == [None, None, None]


# Transactions


def test_readers_of_committed_records_stop_before_the_first_undecided_transaction(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.append(transactional(7, 2), NOW)
    setup.log.append(batch_of(2), NOW)
    setup.log.flush()
    assert setup.log.last_stable_offset == 2
    piece = setup.log.read(0, 10_000, up_to=setup.log.last_stable_offset)
    assert piece is not None
    assert (piece.next_offset, [header.base_offset for _, header in split(piece.read())]) == (2, [0])
    assert setup.log.read(2, 10_000, up_to=setup.log.last_stable_offset) is None
    assert setup.log.read(4, 10_000, up_to=setup.log.last_stable_offset) is None


def test_a_marker_decides_once_it_is_flushed(setup: Setup) -> None:
    setup.log.append(transactional(7, 2), NOW)
    setup.log.flush()
    setup.log.append(marker(Marker.COMMIT, 7), NOW)
    assert setup.log.last_stable_offset == 0
    setup.log.flush()
    assert setup.log.last_stable_offset == 3


def with_transactions(setup: Setup) -> Log:
    """Transactions that are aborted in the segment they began in, a segment later, and not at all."""
    log = setup.log
    log.append(transactional(1, 2), NOW)  # 0, 1
    log.append(marker(Marker.ABORT, 1), NOW)  # 2
    log.append(transactional(2, 2), NOW)  # 3, 4
    log.roll()
    log.append(transactional(3, 1), NOW)  # 5
    log.append(marker(Marker.ABORT, 2), NOW)  # 6
    log.append(marker(Marker.COMMIT, 3), NOW)  # 7
    log.roll()
    log.append(transactional(4, 1), NOW)  # 8
    log.append(transactional(1, 1, sequence=2), NOW)  # 9
    log.append(marker(Marker.ABORT, 1), NOW)  # 10
    log.flush()
    return log


ABORTED = [AbortedTransaction(1, 0, 2, 3), AbortedTransaction(2, 3, 6, 5), AbortedTransaction(1, 9, 10, 8)]


@pytest.mark.parametrize("stop", [None, "clean", "unclean", "unclean after a checkpoint"])
def test_aborted_transactions_are_known_across_segments_and_restarts(setup: Setup, stop: str | None) -> None:
    log = with_transactions(setup)
    if stop == "unclean after a checkpoint":
        setup.directory.checkpoint(NOW)
    if stop is not None:
        log = setup.restart(clean=stop == "clean")
    assert log.aborted_transactions(0, 11) == ABORTED
    assert log.aborted_transactions(0, 3) == ABORTED[:1]
    assert log.aborted_transactions(4, 5) == ABORTED[1:2], "it began before, and in another segment than it ended"
    assert log.aborted_transactions(7, 9) == []
    assert log.aborted_transactions(9, 10) == ABORTED[2:]
    assert log.last_stable_offset == 8
    offset, seen = 0, []
    while (piece := log.read(offset, 1, up_to=log.last_stable_offset)) is not None:
        with piece:
            seen.append(read_header(piece.read()).base_offset)
            offset = piece.next_offset
    assert seen == [0, 2, 3, 5, 6, 7]
    log.append(marker(Marker.COMMIT, 4), NOW)
    assert log.last_stable_offset == 8
    log.flush()
    assert log.last_stable_offset == 12


def test_a_start_behind_an_undecided_transaction_is_not_behind_what_is_stable(setup: Setup) -> None:
    """Else a reader that asks for the end of what is stable is sent to an offset that is gone."""
    setup.log.append(transactional(7), NOW)
    setup.log.append(batch_of(5), NOW)
    setup.log.flush()
    setup.log.delete_before(3)
    assert setup.log.start_offset <= setup.log.last_stable_offset <= setup.log.high_watermark


# Closing


REFUSED_WHEN_CLOSED: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append(batch_of(1), NOW),
    "roll": lambda log: log.roll(),
    "checkpoint": lambda log: log.checkpoint(NOW),
    "truncate": lambda log: log.truncate(0),
    "raise_leader_epoch": lambda log: log.raise_leader_epoch(9),
}


@pytest.mark.parametrize("name", REFUSED_WHEN_CLOSED)
def test_a_closed_log_refuses_to_be_changed(setup: Setup, name: str) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.close(NOW)
    calls = len(setup.memory.calls)
    with pytest.raises(LogClosed):
        REFUSED_WHEN_CLOSED[name](setup.log)
    assert len(setup.memory.calls) == calls


def test_closing_flushes_and_closing_again_does_nothing(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.log.close(NOW)
    assert setup.log.is_cleanly_closed
    assert setup.log.high_watermark == 2
    calls = len(setup.memory.calls)
    setup.log.close(NOW)
    assert len(setup.memory.calls) == calls


def test_a_log_that_is_offline_is_let_go_and_not_called_clean(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.files.fail("sync", EIO, name=".log")
    with pytest.raises(LogOffline):
        setup.log.flush()
    setup.log.close(NOW)
    assert not setup.log.is_cleanly_closed
    with pytest.raises(LogClosed):
        setup.log.append(batch_of(1), NOW)


def test_a_log_is_reopened_where_it_was_closed(setup: Setup) -> None:
    setup.log.append(batch_of(2), NOW)
    setup.directory.close(NOW)
    log, report = reopen(setup.memory.disk)
    assert report.was_clean
    assert log.append(batch_of(1), NOW).base_offset == 2
