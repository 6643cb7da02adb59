"""What one pass leaves of a log."""

import struct
from collections.abc import Sequence

import pytest
from compactions import CONFIG, World, batches_of, compact, records_of
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import DATA, ORDERS, PARTITION

from tailrace.log.compaction.cleaner import SEGMENTS_MAX
from tailrace.log.compaction.keys import KeyOffsets
from tailrace.log.compaction.messages import CleanerSettings, PassFailed, PassResult
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.checksums import Gaps
from tailrace.records.batch import HEADER_SIZE, LENGTH_END, read_header, seal
from tailrace.records.compression import Codec
from tailrace.records.control import Marker
from tailrace.records.record import Record, decode_records, encode_batch, write_varint

NONE = Codec.NONE


def world_of(*writes: Sequence[tuple[bytes, bytes | None]], codec: Codec = NONE, producer: int = -1) -> World:
    """A log of these batches, all in sealed segments."""
    world = World()
    for pairs in writes:
        world.write(pairs, codec, producer, False)
    seal_all(world)
    return world


def seal_all(world: World) -> None:
    world.log.roll()
    world.checkpoint()


def passed(world: World, **settings: int) -> PassResult:
    result = compact(world.log, world.now, CleanerSettings(**settings))
    assert isinstance(result, PassResult), result
    return result


@pytest.mark.parametrize("codec", Codec)
def test_what_stays_of_a_batch_keeps_its_place_codec_times_and_headers(codec: Codec) -> None:
    world = World()
    headers = (("trace", b"\x00\xff"), ("not \udcff text", None), ("trace", b"again"))
    records = [Record(n, 5000 - n, b"key %d" % (n % 3), b"value %d" % n, headers) for n in range(7)]
    data = encode_batch(records, codec=codec, producer_id=9, producer_epoch=2, base_sequence=11)
    world.write([(b"other", b"x")], NONE, -1, False)
    world.log.append(data, world.now)
    seal_all(world)
    passed(world)
    (kept,) = [one for one in batches_of(world.log) if read_header(one).producer_id == 9]
    before, after = read_header(data), read_header(kept)
    assert decode_records(kept) == [record._replace(offset=record.offset + 1) for record in records[4:]]
    unchanged = ("base_offset", "last_offset_delta", "attributes", "base_sequence", "producer_epoch", "leader_epoch")
    assert [getattr(before, name) for name in unchanged] == [getattr(after, name) for name in unchanged]
    assert after.max_timestamp == 5000 - 4


def test_a_batch_in_which_nothing_goes_is_not_touched() -> None:
    world = world_of([(b"a", b"1")], [(b"b", b"2"), (b"c", b"3")], [(b"a", b"4")], codec=Codec.GZIP)
    before = batches_of(world.log)
    passed(world)
    assert batches_of(world.log) == before[1:]


def test_a_segment_in_which_nothing_goes_stays_the_file_it_is() -> None:
    world = world_of([(b"a", b"1")], [(b"b", b"2")])
    segments = world.log.segments
    result = passed(world)
    assert world.log.segments == segments
    assert (result.bytes_written, result.end) == (0, 2)


def test_log_append_time_stays_the_time_of_what_stays() -> None:
    world = World()
    records = [Record(n, n, b"same", b"%d" % n) for n in range(3)]
    world.log.append(encode_batch(records, log_append_time=7777), world.now)
    seal_all(world)
    passed(world)
    assert [(record.offset, record.timestamp) for record in records_of(world.log)] == [(2, 7777)]


def test_the_delete_horizon_is_kept_in_the_batch_and_its_times_are_as_they_were() -> None:
    world = world_of([(b"a", b"1"), (b"a", None), (b"b", b"2")], codec=Codec.LZ4)
    passed(world)
    (batch,) = batches_of(world.log)
    assert read_header(batch).delete_horizon == world.now + CONFIG.delete_retention_ms
    assert [(record.key, record.timestamp) for record in decode_records(batch)] == [(b"a", 10_001), (b"b", 10_002)]
    world.now += CONFIG.delete_retention_ms - 1
    assert compact(world.log, world.now).next_horizon_ms == world.now + 1  # type: ignore[union-attr]
    assert batches_of(world.log) == [batch], "its horizon does not move"
    world.now += 1
    assert passed(world).next_horizon_ms is None
    assert [record.key for record in records_of(world.log)] == [b"b"]
    assert read_header(batches_of(world.log)[0]).last_offset == 2


def test_a_marker_outlives_the_data_of_its_transaction_by_its_own_horizon() -> None:
    world = World()
    world.write([(b"a", b"aborted")], NONE, 7, True)
    world.mark(7, Marker.ABORT)
    world.write([(b"b", b"committed")], NONE, 7, True)
    world.mark(7, Marker.COMMIT)
    world.write([(b"b", b"newer")], NONE, -1, False)
    world.log.producers.producers.clear()  # it has long been silent: nothing of it is kept for its own sake
    seal_all(world)

    def markers() -> list[tuple[int, int | None]]:
        headers = map(read_header, batches_of(world.log))
        return [(header.base_offset, header.delete_horizon) for header in headers if header.is_control]

    passed(world)
    assert [record.offset for record in records_of(world.log)] == [4]
    assert markers() == [(1, None), (3, None)]
    assert [one.last_offset for one in world.log.aborted_transactions(0, 5)] == [1]
    passed(world)
    horizon = world.now + CONFIG.delete_retention_ms
    assert markers() == [(1, horizon), (3, horizon)]
    assert world.log.aborted_transactions(0, 5) == []
    world.now = horizon
    passed(world)
    assert markers() == []


def test_the_last_batch_of_a_live_producer_stays_without_its_records() -> None:
    world = World()
    world.write([(b"a", b"1"), (b"b", b"2")], NONE, 5, False)
    world.write([(b"a", b"3"), (b"b", b"4")], NONE, -1, False)
    seal_all(world)
    passed(world)
    header = read_header(batches_of(world.log)[0])
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 0, 1)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (5, 0, 1)
    world.reopen()
    world.write([(b"c", b"5")], NONE, 5, False)  # raises where its sequence is not known
    repeated = encode_batch(
        [Record(0, 1, b"a", b"1"), Record(1, 1, b"b", b"2")], producer_id=5, producer_epoch=0, base_sequence=0
    )
    assert world.log.append(repeated, world.now).base_offset == 0, "a repetition is still known"


def test_a_reader_gets_to_the_end_where_the_last_records_are_gone() -> None:
    world = world_of([(b"a", b"1")], [(b"gone", None)])
    passed(world)
    world.now += CONFIG.delete_retention_ms
    passed(world)
    assert [record.offset for record in records_of(world.log)] == [0]
    assert read_header(batches_of(world.log)[-1]).next_offset == world.log.end_offset == 2
    segments = world.log.segments
    passed(world)
    assert world.log.segments == segments, "the empty batch that holds the end is nothing to be compacted"


def test_a_record_without_a_key_stays() -> None:
    world = World()
    records = [Record(0, 1, None, b"no key"), Record(1, 1, b"a", b"1"), Record(2, 1, b"a", b"2")]
    world.log.append(encode_batch(records), world.now)
    seal_all(world)
    assert passed(world).without_key == 1
    assert [record.value for record in records_of(world.log)] == [b"no key", b"2"]


def test_a_batch_that_nobody_can_read_stays_as_it_is() -> None:
    world = world_of([(b"a", b"1")])
    odd = encode_batch([Record(0, 1, b"a", b"2" * 20)], codec=Codec.NONE)
    odd[61:64] = b"\xff\xff\x7f"  # it claims to be longer than the batch
    seal(odd)
    world.log.append(odd, world.now)
    world.write([(b"a", b"3")], NONE, -1, False)
    seal_all(world)
    assert passed(world).unreadable == 1
    assert bytes(odd) in batches_of(world.log)


def test_damage_is_never_compacted() -> None:
    world = world_of(*[[(b"a", b"%d" % n * 60)] for n in range(30)])
    name = f"{PARTITION}/{world.log.segments[1].name}"
    world.files.disk.file(name)[100] ^= 1  # type: ignore[attr-defined]
    before = dict(world.files.disk.names)  # type: ignore[attr-defined]
    result = compact(world.log, world.now)
    assert isinstance(result, PassFailed)
    assert result.is_damage
    assert world.files.disk.names.keys() == before.keys()  # type: ignore[attr-defined]
    assert len(world.log.segments) > 2


def test_what_is_before_known_damage_is_compacted() -> None:
    world = world_of(*[[(b"a", b"%d" % n * 60)] for n in range(30)])
    world.reopen()
    damaged = world.log.segments[2]
    world.files.disk.file(f"{PARTITION}/{damaged.name}")[100] ^= 1  # type: ignore[attr-defined]
    damaged.checks.ensure(0, damaged.size, damaged.size, damaged.derived())
    end = damaged.base_offset
    assert passed(world).end == end
    assert world.log.segments[1].base_offset == end


def test_where_not_all_keys_fit_into_memory_more_passes_do_it() -> None:
    world = world_of(*[[(b"key %d" % (n % 40), b"%d" % n)] for n in range(120)])
    ends = []
    while not ends or ends[-1] < 120:
        ends.append(passed(world, dedupe_buffer_bytes=24 * 23).end)
    assert len(ends) > 3
    assert {record.key: record.offset for record in records_of(world.log)} == {
        b"key %d" % (n % 40): n for n in range(80, 120)
    }
    assert len(records_of(world.log)) == 40


def test_a_batch_with_more_keys_than_fit_is_said() -> None:
    world = world_of([(b"%d" % n, b"") for n in range(30)])
    result = compact(world.log, world.now, CleanerSettings(dedupe_buffer_bytes=24 * 16))
    assert isinstance(result, PassFailed)
    assert "log.cleaner.dedupe.buffer.size" in result.reason


def test_small_segments_become_one_that_is_no_larger_than_a_segment_may_be() -> None:
    world = world_of(*[[(b"key %d" % (n % 4), b"%d" % n * 30)] for n in range(60)])
    assert len(world.log.segments) > 6
    passed(world)
    passed(world)
    assert len(world.log.segments) == 2, "all but the active one"
    assert world.log.segments[0].size <= CONFIG.segment_bytes
    assert world.log.segments[0].derived().gaps is Gaps.COMPACTED


def test_segments_stay_apart_where_their_offsets_are_too_far_apart_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.log.compaction.cleaner.RELATIVE_OFFSET_MAX", 20)
    world = world_of(*[[(b"key %d" % (n % 4), b"%d" % n * 50)] for n in range(40)])
    passed(world)
    spans = [
        after.base_offset - segment.base_offset
        for segment, after in zip(world.log.segments, world.log.segments[1:], strict=False)
    ]
    assert max(spans) <= 21
    assert len(spans) >= 2


def test_nothing_is_compacted_from_the_first_undecided_transaction_on() -> None:
    world = world_of([(b"a", b"1")], [(b"a", b"2")])
    world.write([(b"a", b"undecided")], NONE, 7, True)
    world.write([(b"a", b"3")], NONE, -1, False)
    seal_all(world)
    assert passed(world).end == 2
    assert [record.offset for record in records_of(world.log)] == [1, 2, 3]


def test_every_offset_and_time_leads_to_what_is_there_next() -> None:
    world = world_of(*[[(b"key %d" % (n % 7), b"%d" % n * 30)] for n in range(60)])
    world.write([(b"active", b"1")], NONE, -1, False)
    world.log.flush()
    passed(world)
    there = [record.offset for record in records_of(world.log)]
    for offset in range(world.log.end_offset):
        expected = min(one for one in there if one >= offset)
        first = read_header(batches_of(world.log, offset)[0])
        assert first.base_offset <= expected <= first.last_offset
    found = world.log.find_time(world.now)
    assert found is not None
    assert found.offset == there[0]
    newest = world.log.find_max_timestamp()
    assert newest is not None
    assert newest.offset == there[0]


def test_up_to_where_a_log_is_compacted_outlives_a_restart_but_not_its_removal() -> None:
    world = world_of([(b"a", b"1")], [(b"a", b"2")])
    passed(world)
    world.checkpoint()
    world.reopen()
    assert world.log.compacted_to == 2
    world.directory.begin_remove([ORDERS]).run()
    world.directory.abandon()
    assert DataDirectory(world.files, DATA, CONFIG).create(ORDERS).compacted_to == 0
    content = world.files.disk.file(f"{DATA}/cleaner-offset-checkpoint")  # type: ignore[attr-defined]
    assert content == b"0\n0\n"


def test_without_the_checkpoint_everything_is_new() -> None:
    world = world_of([(b"a", b"1")], [(b"a", b"2")])
    passed(world)
    world.checkpoint()
    world.directory.close(world.now)
    world.files.disk.file(f"{DATA}/cleaner-offset-checkpoint")[:] = b"0\n2\norders"  # type: ignore[attr-defined]
    world.directory = DataDirectory(world.files, DATA, CONFIG)
    assert world.directory.logs[ORDERS].compacted_to == 0


@settings(max_examples=30, deadline=None)
@given(
    puts=st.lists(st.binary(max_size=3), max_size=200),
    memory=st.integers(0, 10_000),
    load_factor=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
def test_keys_are_as_in_a_dict_up_to_a_bound(puts: list[bytes], memory: int, load_factor: float) -> None:
    keys = KeyOffsets(memory, load_factor)
    assert keys.memory_bytes <= max(memory, 24 * 16)
    expected: dict[bytes, int] = {}
    for offset, key in enumerate(puts):
        if not keys.has_room_for(1):
            break
        keys.put(key, offset)
        expected[key] = offset
    assert len(keys) == len(expected)
    assert {key: keys.newest(key) for key in expected} == expected
    assert keys.newest(b"never put") == -1


def test_a_table_that_is_full_knows_of_a_key_that_it_does_not_have() -> None:
    keys = KeyOffsets(0, load_factor=1.0)
    for number in range(keys.capacity):
        keys.put(b"%d" % number, number)
    assert not keys.has_room_for(1)
    assert keys.newest(b"never put") == -1


def test_a_foreign_directory_is_compacted_without_sums() -> None:
    world = world_of(*[[(b"a", b"%d" % n * 60)] for n in range(30)])
    for segment in world.log.segments[:-1]:
        del world.files.disk.names[f"{PARTITION}/{segment.name.replace('.log', '.sums')}"]  # type: ignore[attr-defined]
    passed(world)
    assert [record.offset for record in records_of(world.log)] == [29]


def test_no_more_segments_flow_together_than_may_be_open_at_once() -> None:
    world = World()
    for number in range(2 * SEGMENTS_MAX + 1):
        world.write([(b"%d" % number, b"")], NONE, -1, False)
        world.log.roll()
    world.checkpoint()
    world.log.configure(CONFIG._replace(segment_bytes=1 << 20))
    passed(world)
    ends = [segment.base_offset for segment in world.log.segments]
    assert ends == [0, SEGMENTS_MAX, 2 * SEGMENTS_MAX, 2 * SEGMENTS_MAX + 1]
    world.check_nothing_is_lost(world.log)


def with_offset_delta(delta: int) -> bytearray:
    """A batch whose one record says that it lies so far behind the first one."""
    body = bytearray(b"\0\0")
    write_varint(body, delta)
    for field in (b"a", b"odd"):
        write_varint(body, len(field))
        body += field
    body += b"\0"
    data = encode_batch([Record(0, 1, b"a", b"")])[:HEADER_SIZE]
    write_varint(data, len(body))
    data += body
    struct.pack_into(">i", data, 8, len(data) - LENGTH_END)
    seal(data)
    return data


@pytest.mark.parametrize("delta", [(1 << 63) - 1, 2, -1, -1 << 63])
def test_a_batch_with_a_record_that_lies_outside_of_it_stays_as_it_is(delta: int) -> None:
    world = world_of([(b"a", b"1")])
    world.log.append(with_offset_delta(delta), world.now)
    world.write([(b"a", b"2")], NONE, -1, False)
    world.write([(b"b", b"3")], NONE, -1, False)
    seal_all(world)
    odd = batches_of(world.log)[1]
    assert passed(world).unreadable == 1
    assert batches_of(world.log)[0] == odd
    assert [read_header(batch).base_offset for batch in batches_of(world.log)] == [1, 2, 3]


def test_tombstones_may_be_kept_for_ever() -> None:
    world = world_of([(b"a", b"1")], [(b"a", None)])
    world.log.configure(CONFIG._replace(delete_retention_ms=(1 << 63) - 1))
    passed(world)
    assert [record.value for record in records_of(world.log)] == [None]
