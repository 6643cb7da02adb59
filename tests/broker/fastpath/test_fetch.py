"""Fetch the short way: the same bytes as by the long way, or none at all."""

from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker, a_batch, fetch_request, from_offset, produce_request
from fetch_readers import Reader, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.broker.fastpath.templates import TEMPLATE_BYTES_MAX, TEMPLATES_MAX
from tailrace.protocol import codec
from tailrace.protocol.frame import read_request_header
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch

VERSIONS = range(5, 19)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalBroker(tmp_path_factory.mktemp("fetch")) as local:
        local.create_topic(partitions=2)
        for number in range(120):
            local.produce(*[bytes([number]) * (7 * number) for _ in range(1 + number % 3)])
            if number % 30 == 29:
                local.log().roll()
        yield local


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_second_request_goes_the_short_way_in_every_version(
    local: LocalBroker, version: int, isolation: int
) -> None:
    reader, topic = Reader(local), key_of(local, version)
    request = fetch_request(from_offset(0), topic=topic, isolation_level=isolation)
    assert reader.short(reader.frame(request, version)) is None
    reader.long(reader.frame(request, version))
    for offset in (0, 1, 17, 100):
        frame = reader.frame(fetch_request(from_offset(offset), topic=topic, isolation_level=isolation), version)
        short = reader.short(frame)
        assert short is not None
        assert short == reader.long(frame)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    offsets=st.lists(st.integers(-2, 260), min_size=2, max_size=6),
    version=st.sampled_from([5, 11, 12, 13, 17]),
    sizes=st.tuples(st.sampled_from([-1, 0, 1, 500, 5000, 1 << 20]), st.sampled_from([-1, 0, 1, 800, 1 << 20])),
    least=st.sampled_from([-1, 0, 1, 400, 1 << 30]),
    wait_ms=st.sampled_from([-1, 0, 500]),
    isolation=st.sampled_from([0, 1]),
)
def test_whatever_is_asked_the_short_way_says_the_same_or_nothing(
    local: LocalBroker,
    offsets: list[int],
    version: int,
    sizes: tuple[int, int],
    least: int,
    wait_ms: int,
    isolation: int,
) -> None:
    reader, topic = Reader(local), key_of(local, version)
    for offset in offsets:
        request = fetch_request(
            from_offset(offset, max_bytes=sizes[0]),
            topic=topic,
            max_bytes=sizes[1],
            min_bytes=least,
            max_wait_ms=wait_ms,
            isolation_level=isolation,
        )
        frame = reader.frame(request, version)
        short, long = reader.short(frame), reader.long(frame)
        assert short is None or short == long


def learnt(local: LocalBroker, version: int = 12, **fields: Any) -> tuple[Reader, FetchRequest]:
    reader, request = Reader(local), fetch_request(from_offset(0), topic=key_of(local, version), **fields)
    reader.long(reader.frame(request, version))
    assert reader.short(reader.frame(request, version)) is not None
    return reader, request


def test_a_new_session_several_partitions_or_a_known_epoch_take_the_slow_path(local: LocalBroker) -> None:
    reader = Reader(local)
    for request in (
        fetch_request(from_offset(0), session_epoch=0),
        fetch_request(from_offset(0), from_offset(0, 1)),
        fetch_request(from_offset(0, last_fetched_epoch=0)),
    ):
        for _ in range(3):
            frame = reader.frame(request, 12)
            assert reader.short(frame) is None
            reader.long(frame)


def test_any_byte_that_is_not_as_before_is_for_the_long_way(local: LocalBroker) -> None:
    reader, request = learnt(local)
    frame = reader.frame(request, 12)
    (start,) = reader.repeated._templates._starts
    for position in [*range(4), *range(8, start), *range(start + 8, len(frame))]:
        spoilt = bytearray(frame)
        spoilt[position] ^= 1
        assert reader.short(memoryview(spoilt)) is None
    for end in range(8, len(frame)):
        assert reader.short(frame[:end]) is None
    assert reader.short(memoryview(bytearray(frame) + b"\0")) is None


def test_bytes_behind_a_request_are_not_learnt(local: LocalBroker) -> None:
    reader = Reader(local)
    frame = memoryview(bytearray(reader.frame(fetch_request(from_offset(0)), 12)) + b"more")
    header = read_request_header(frame)
    request = codec.decode(FetchRequest, 12, frame, header.body, more_may_follow=True)
    reader.repeated.learn(frame, header, request)
    assert len(reader.repeated._templates) == 0


def test_a_form_takes_little_memory_whatever_its_request_holds(local: LocalBroker) -> None:
    reader = Reader(local)
    for number in range(2 * TEMPLATES_MAX):
        request = fetch_request(from_offset(0), max_wait_ms=number, rack_id="r" * (1000 if number % 2 else 10))
        reader.long(reader.frame(request, 12))
    templates = reader.repeated._templates._by_bytes
    assert 0 < len(templates) <= TEMPLATES_MAX
    assert all(len(key) + len(template.rest) < 2 * TEMPLATE_BYTES_MAX for key, template in templates.items())


def test_a_topic_that_is_deleted_or_made_anew_is_another(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic()
        local.produce(b"before")
        reader, request = learnt(local)
        local.delete_topic()
        assert reader.short(reader.frame(request, 12)) is None
        local.create_topic()
        local.produce(b"after")
        assert reader.short(reader.frame(request, 12)) is None
        assert b"after" in (reader.long(reader.frame(request, 12)) or b"")
        assert b"after" in (reader.short(reader.frame(request, 12)) or b"")


def test_nothing_is_said_that_rests_on_metadata_which_is_not_on_disk(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic()
        local.produce(b"x")
        reader, request = learnt(local)
        log = local.broker.metadata_log.log
        log.append(a_batch(b"not flushed"), NOW_MS)
        assert reader.short(reader.frame(request, 12)) is None
        log.flush()


def test_a_reader_of_committed_records_is_told_of_what_was_aborted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic()
        local.produce(b"plain")
        log = local.log()
        record = Record(0, NOW_MS, None, b"aborted")
        log.append(encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), NOW_MS)
        log.append(encode_marker(Marker.ABORT, 7, 0, 0, NOW_MS), NOW_MS)
        log.flush()
        committed = Reader(local)
        for _ in range(2):
            frame = committed.frame(fetch_request(from_offset(0), isolation_level=1), 12)
            assert committed.short(frame) is None
            assert committed.long(frame) is not None
        learnt(local, isolation_level=0)


def test_appends_and_deletions_are_seen(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic()
        local.produce(b"first")
        reader, _ = learnt(local)
        next_one = fetch_request(from_offset(1))
        assert reader.short(reader.frame(next_one, 12)) is None, "there is nothing yet"
        local.ask(produce_request(a_batch(b"second")), 12)
        assert b"second" in (reader.short(reader.frame(next_one, 12)) or b"")
        local.log().delete_before(1)
        assert reader.short(reader.frame(fetch_request(from_offset(0)), 12)) is None
