"""Fetch the short way, in sessions: the same bytes as by the long way, and the same is remembered of each session."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from brokers import ENDPOINT, NOW_MS, LocalBroker, a_batch, fetch_request, from_offset, resolved, values_of
from fetch_readers import Reader, key_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.apis.registry import APIS
from tailrace.broker.core.api import Call
from tailrace.broker.fastpath.fetch import HandoffRange, HandoffResult
from tailrace.broker.fetch.sessions import BUSY_MS, FetchSession, FetchSessions
from tailrace.protocol import codec
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fetch_wire import EPOCH_MAX, epoch_after
from tailrace.protocol.frame import decode_response, read_request_header
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, ForgottenTopic
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch

VERSIONS = range(7, 19)
SLOTS = {"max.incremental.fetch.session.cache.slots": "2"}
ALL_RECORDS = 60


class SessionReader(Reader):
    """Asks within a session, and both ways each time."""

    def __init__(self, local: LocalBroker, version: int = 17, **fields: Any) -> None:
        super().__init__(local)
        self.version = version
        self.topic = key_of(local, version)
        self.fields = fields
        self.session_id = 0

    def request(self, epoch: int, *wanted: Any, **fields: Any) -> memoryview:
        everything = {"topic": self.topic, "session_id": self.session_id, **self.fields, **fields}
        return self.frame(fetch_request(*wanted, session_epoch=epoch, **everything), self.version)

    def begin(self, *wanted: Any) -> None:
        """Also where there is no room for another one."""
        answer = self.long(self.request(0, *wanted or (from_offset(0),), max_wait_ms=0))
        assert answer is not None
        self.session_id = decode_response(FetchResponse, self.version, answer[4:])[1].session_id

    @property
    def session(self) -> FetchSession | None:
        return self.local.broker.fetch_sessions.find(self.session_id)

    @property
    def next_epoch(self) -> int:
        return self.session.epoch if self.session is not None else 1

    def both(self, frame: memoryview) -> bytes | None:
        """What the short way says, None where it leaves it to the long one. Afterwards it has come that way."""
        broker = self.local.broker
        before = deepcopy(broker.fetch_sessions)
        short = self.short(frame)
        after_short, broker.fetch_sessions = broker.fetch_sessions, before
        if short is None:
            assert remembered(after_short) == remembered(before), "nothing was changed"
        long = self.long(frame)
        if short is not None:
            assert short == long
            assert remembered(after_short) == remembered(broker.fetch_sessions)
        return short

    def go_on(self, *wanted: Any, **fields: Any) -> bytes | None:
        return self.both(self.request(self.next_epoch, *wanted, **fields))


def remembered(sessions: FetchSessions) -> list[tuple[int, dict[str, Any]]]:
    """All that there is of sessions, the longest unused first."""
    return [(session_id, vars(session)) for session_id, session in sessions._sessions.items()]


def value(number: int) -> bytes:
    return bytes([number]) * (7 * number)


def fill(local: LocalBroker) -> None:
    local.create_topic(partitions=2)
    for partition in range(2):
        local.produce(value(0), partition=partition)
        log = local.log(index=partition)
        for number in range(1, ALL_RECORDS):
            log.append(a_batch(value(number)), local.now_ms)
            if number == 40:
                log.roll()
        log.flush()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalBroker(tmp_path_factory.mktemp("fetch")) as local:
        fill(local)
        yield local


def learnt(local: LocalBroker, version: int = 17, **fields: Any) -> SessionReader:
    reader = SessionReader(local, version, **fields)
    reader.begin()
    assert reader.go_on(from_offset(1)) is None
    assert reader.go_on(from_offset(2)) is not None
    return reader


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_from_its_third_request_on_a_session_goes_the_short_way_in_every_version(
    local: LocalBroker, version: int, isolation: int
) -> None:
    reader = learnt(local, version, isolation_level=isolation)
    for offset in (0, 17, 5, 40):
        local.now_ms += 1
        assert reader.go_on(from_offset(offset)) is not None


def test_a_request_that_names_nothing_goes_on_from_where_the_short_way_was(local: LocalBroker) -> None:
    reader = learnt(local)
    assert reader.short(reader.request(reader.next_epoch, from_offset(58))) is not None
    answer = reader.long(reader.request(reader.next_epoch))
    assert answer is not None
    (partition,) = decode_response(FetchResponse, 17, answer[4:])[1].responses[0].partitions
    assert values_of(partition) == [value(58), value(59)]


def test_nothing_is_told_twice_that_the_short_way_has_told(local: LocalBroker) -> None:
    reader = learnt(local)
    assert reader.short(reader.request(reader.next_epoch, from_offset(58))) is not None
    answer = reader.long(reader.request(reader.next_epoch, from_offset(ALL_RECORDS), max_wait_ms=0))
    assert answer is not None
    assert decode_response(FetchResponse, 17, answer[4:])[1].responses == []


@pytest.mark.parametrize("wrong", [0, -1, -5, 1, 2, EPOCH_MAX, -(1 << 31)])
def test_an_epoch_out_of_turn_is_for_the_long_way(local: LocalBroker, wrong: int) -> None:
    reader = learnt(local)
    assert reader.next_epoch == 3
    assert reader.both(reader.request(wrong, from_offset(0))) is None


def test_the_epoch_after_the_last_is_one(local: LocalBroker) -> None:
    reader = learnt(local)
    assert reader.session is not None
    reader.session.epoch = EPOCH_MAX
    assert reader.go_on(from_offset(3)) is not None
    assert reader.next_epoch == 1
    assert reader.go_on(from_offset(4)) is not None


def test_a_session_that_was_closed_is_for_the_long_way(local: LocalBroker) -> None:
    reader = learnt(local)
    reader.long(reader.request(-1))
    assert reader.session is None
    assert reader.both(reader.request(3, from_offset(0))) is None


def test_the_next_session_of_a_connection_is_learnt_as_well(local: LocalBroker) -> None:
    reader = learnt(local)
    reader.begin()
    assert [reader.go_on(from_offset(offset)) is not None for offset in range(3)] == [False, True, True]


def test_a_session_is_used_by_the_short_way_or_gives_way_to_others(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, SLOTS) as local:
        fill(local)
        busy, idle = learnt(local), learnt(local)
        local.now_ms += BUSY_MS
        assert busy.short(busy.request(busy.next_epoch, from_offset(0))) is not None
        learnt(local)
        assert (busy.session is None, idle.session is None) == (False, True)
        assert busy.go_on(from_offset(1)) is not None
        assert idle.both(idle.request(3, from_offset(1))) is None


def test_a_session_of_two_partitions_goes_the_long_way_until_one_is_forgotten(local: LocalBroker) -> None:
    reader = learnt(local)
    assert reader.go_on(from_offset(0), from_offset(0, 1)) is None
    for offset in range(3):
        assert reader.go_on(from_offset(offset)) is None, "the other has something to say, too"
    assert len(reader.repeated._templates) == 1
    forgotten = [ForgottenTopic(topic_id=reader.topic, partitions=[0])]
    assert reader.go_on(from_offset(3, 1), forgotten_topics_data=forgotten) is None
    assert reader.go_on(from_offset(4, 1)) is None
    assert reader.go_on(from_offset(5, 1)) is not None
    assert reader.go_on(from_offset(6, 0)) is None


def test_what_is_asked_for_beside_another_partition_is_not_learnt(local: LocalBroker) -> None:
    """Learning takes longer than an answer."""
    reader = SessionReader(local)
    reader.begin(from_offset(0), from_offset(0, 1))
    for offset in range(3):
        assert reader.go_on(from_offset(offset, offset % 2)) is None
    assert len(reader.repeated._templates) == 0


def test_a_request_that_forgets_its_partition_is_not_learnt(local: LocalBroker) -> None:
    reader = SessionReader(local)
    reader.begin()
    forgotten = [ForgottenTopic(topic_id=reader.topic, partitions=[1])]
    for offset in range(3):
        assert reader.go_on(from_offset(offset), forgotten_topics_data=forgotten) is None
    assert len(reader.repeated._templates) == 0


def test_waits_and_errors_go_the_long_way_and_the_next_request_the_short_one(local: LocalBroker) -> None:
    reader = learnt(local)
    for offset in (ALL_RECORDS, ALL_RECORDS + 1, -1):
        assert reader.go_on(from_offset(offset)) is None
        assert reader.go_on(from_offset(7)) is not None


def test_any_byte_that_is_not_as_before_is_for_the_long_way(local: LocalBroker) -> None:
    reader = learnt(local)
    frame = reader.request(reader.next_epoch, from_offset(0))
    (template,) = reader.repeated._templates._by_bytes.values()
    changing = {*range(4, 8), *range(template.places.offset, template.places.offset + 8)}
    for position in range(len(frame)):
        if position not in changing:
            spoilt = bytearray(frame)
            spoilt[position] ^= 1
            assert reader.short(memoryview(spoilt)) is None
    for end in range(8, len(frame)):
        assert reader.short(frame[:end]) is None
    assert reader.short(memoryview(bytearray(frame) + b"\0")) is None
    assert reader.short(frame) is not None


def test_two_connections_may_share_a_session(local: LocalBroker) -> None:
    """It is known by its id alone."""
    one, other = learnt(local), SessionReader(local)
    other.session_id = one.session_id
    assert other.go_on(from_offset(3)) is None
    for offset in range(4, 8):
        assert other.go_on(from_offset(offset)) is not None
        assert one.go_on(from_offset(offset), max_wait_ms=500) is not None


def test_a_fetch_that_waits_is_not_moved_by_the_one_behind_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        fill(local)
        reader = SessionReader(local)
        reader.begin()
        frame = reader.request(1, from_offset(ALL_RECORDS))
        header = read_request_header(frame)
        request = codec.decode(FetchRequest, 17, frame, header.body)
        waiting = local.broker.handle(APIS[1], request, Call(17, "reader", ENDPOINT, local.now_ms))
        reader.repeated.learn(frame, header, request)
        assert reader.short(reader.request(2, from_offset(0))) is not None
        assert reader.short(reader.request(3, from_offset(1))) is not None
        local.produce(b"new")
        (answer,) = resolved(waiting)
        (partition,) = local.decode(answer, FetchRequest, 17).responses[0].partitions
        assert values_of(partition) == [b"new"]


def test_a_topic_that_is_made_anew_is_another(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        fill(local)
        by_id, by_name = learnt(local), learnt(local, version=12)
        local.delete_topic()
        assert by_id.go_on(from_offset(0)) is None
        fill(local)
        assert by_id.go_on(from_offset(0)) is None
        assert by_name.go_on(from_offset(0)) is None
        assert by_name.go_on(from_offset(1)) is not None


def test_a_reader_of_committed_records_is_told_of_what_was_aborted(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        fill(local)
        reader = learnt(local, isolation_level=1)
        record = Record(0, NOW_MS, None, b"aborted")
        log = local.log()
        log.append(encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), NOW_MS)
        log.append(encode_marker(Marker.ABORT, 7, 0, 0, NOW_MS), NOW_MS)
        log.flush()
        assert reader.go_on(from_offset(ALL_RECORDS)) is None
        assert reader.go_on(from_offset(0)) is not None, "it ends before, with its segment"


@pytest.fixture
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.fastpath.fetch.HANDOFF_BYTES_MIN", 1)


def from_here(offset: int) -> FetchPartition:
    return from_offset(offset, max_bytes=100)


def lendable(local: LocalBroker) -> SessionReader:
    """Its next request for little may be lent."""
    reader = learnt(local)
    reader.go_on(from_here(0))
    return reader


def stretch_for(reader: SessionReader, epoch: int | None = None) -> HandoffRange | None:
    frame = reader.request(reader.next_epoch if epoch is None else epoch, from_here(1))
    stretch = reader.repeated.range_ahead(frame, 1 << 20)
    if stretch is not None:
        stretch.records.release()
    return stretch


def lend(reader: SessionReader) -> HandoffRange:
    stretch = stretch_for(reader)
    assert stretch is not None
    reader.repeated.handed_off(stretch, reader.local.now_ms)
    return stretch


def take_back(reader: SessionReader, stretch: HandoffRange, *offsets: int) -> None:
    """Which have been asked for elsewhere, one after the other."""
    epoch = stretch.epoch
    for _ in offsets:
        epoch = epoch_after(epoch)
    reader.repeated.taken_back(stretch, HandoffResult(epoch, offsets[-1]) if offsets else None, reader.local.now_ms)


@pytest.mark.parametrize("offsets", [(), (1,), (1, 17, 23)])
@pytest.mark.parametrize("first", [4, EPOCH_MAX - 1, EPOCH_MAX])
def test_of_a_session_that_was_lent_the_same_is_remembered(
    local: LocalBroker, first: int, offsets: tuple[int, ...], small_stretches: None
) -> None:
    reader = lendable(local)
    assert reader.session is not None
    reader.session.epoch = first
    before = deepcopy(local.broker.fetch_sessions)
    for offset in offsets:
        assert reader.short(reader.request(reader.next_epoch, from_here(offset))) is not None
    here, local.broker.fetch_sessions = local.broker.fetch_sessions, before
    take_back(reader, lend(reader), *offsets)
    assert remembered(local.broker.fetch_sessions) == remembered(here)
    assert reader.go_on(from_here(24)) is not None


def test_a_session_that_is_lent_is_nobody_elses(local: LocalBroker, small_stretches: None) -> None:
    reader = lendable(local)
    stretch = lend(reader)
    for epoch in (4, 5):
        frame = reader.request(epoch, from_here(1))
        assert stretch_for(reader, epoch) is None
        assert reader.short(frame) is None
        answer = reader.long(frame)
        assert answer is not None
        code = decode_response(FetchResponse, 17, answer[4:])[1].error_code
        assert code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    take_back(reader, stretch, 1, 2)
    assert reader.next_epoch == 6
    assert reader.go_on(from_here(3)) is not None


def test_a_session_that_has_ended_while_it_was_lent_is_no_matter(local: LocalBroker, small_stretches: None) -> None:
    reader = lendable(local)
    stretch = lend(reader)
    reader.long(reader.request(-1))
    before = deepcopy(local.broker.fetch_sessions)
    take_back(reader, stretch, 1, 2)
    assert remembered(local.broker.fetch_sessions) == remembered(before)


def test_a_session_that_is_lent_is_in_use(tmp_path: Path, small_stretches: None) -> None:
    with LocalBroker(tmp_path, SLOTS) as local:
        fill(local)
        busy, idle = lendable(local), learnt(local)
        local.now_ms += BUSY_MS
        stretch = lend(busy)
        SessionReader(local).begin()
        assert (busy.session is None, idle.session is None) == (False, True)
        take_back(busy, stretch, 1)
        assert busy.go_on(from_here(2)) is not None


@pytest.mark.parametrize("wrong", [0, -1, 1, 2, 5, EPOCH_MAX])
def test_an_epoch_out_of_turn_is_not_lent(local: LocalBroker, wrong: int, small_stretches: None) -> None:
    reader = lendable(local)
    assert reader.next_epoch == 4
    assert stretch_for(reader, wrong) is None
    assert stretch_for(reader, 4) is not None


def test_a_session_of_two_partitions_is_not_lent(local: LocalBroker, small_stretches: None) -> None:
    reader = lendable(local)
    assert reader.go_on(from_here(0), from_offset(0, 1)) is None
    assert stretch_for(reader) is None


READ_ON = st.tuples(st.just("read on"), st.lists(st.integers(0, ALL_RECORDS), min_size=2, max_size=5))
ASK = st.tuples(
    st.just("ask"),
    st.sampled_from([-1, 0, 30, ALL_RECORDS, ALL_RECORDS + 1, ALL_RECORDS + 2]),
    st.sampled_from([(0,), (1,), (), (0, 1)]),  # which partitions are named
    st.sampled_from([0, 0, 1, -1]),  # beside the epoch that is next
    st.sampled_from([(), (), (0,), (1,)]),  # which partitions are forgotten
)
STEPS = st.one_of(
    READ_ON,
    READ_ON,
    ASK,
    st.tuples(st.just("begin"), st.sampled_from([(0,), (0,), (1,), (0, 1)])),
    st.tuples(st.just("close")),
    st.tuples(st.just("pass"), st.sampled_from([1, BUSY_MS])),
    st.tuples(st.just("produce")),
    st.tuples(st.just("delete"), st.sampled_from([2, 31])),
)


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 2]), STEPS), min_size=4, max_size=20),
    version=st.sampled_from([7, 11, 12, 13, 18]),
    sizes=st.tuples(st.sampled_from([0, 1, 500, 1 << 20]), st.sampled_from([0, 800, 1 << 20])),
    least=st.sampled_from([0, 1, 400, 1 << 30]),
    isolation=st.sampled_from([0, 1]),
)
def test_whatever_is_asked_both_ways_say_and_remember_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, tuple[Any, ...]]],
    version: int,
    sizes: tuple[int, int],
    least: int,
    isolation: int,
) -> None:
    with LocalBroker(tmp_path_factory.mktemp("random"), SLOTS) as local:
        fill(local)
        fields = {"max_bytes": sizes[1], "min_bytes": least, "isolation_level": isolation}
        readers = [SessionReader(local, version, **fields) for _ in range(3)]
        for reader in readers:
            reader.begin()
        for number, step in steps:
            take(local, readers[number], sizes[0], *step)


def take(local: LocalBroker, reader: SessionReader, max_bytes: int, what: str, *how: Any) -> None:
    """One step of many. What a reader asks for goes both ways."""
    match what, how:
        case "read on", (offsets,):
            for offset in offsets:
                reader.go_on(from_offset(offset, 0, max_bytes))
        case "ask", (offset, named, beside, forgotten):
            wanted = [from_offset(offset, index, max_bytes) for index in named]
            topic = {"topic_id": reader.topic} if reader.version >= 13 else {"topic": reader.topic}
            forgets = [ForgottenTopic(partitions=list(forgotten), **topic)] if forgotten else []
            reader.both(reader.request(reader.next_epoch + beside, *wanted, forgotten_topics_data=forgets))
        case "begin", (named,):
            reader.begin(*(from_offset(0, index, max_bytes) for index in named))
        case "close", ():
            reader.both(reader.request(-1))
        case "pass", (ms,):
            local.now_ms += ms
        case "produce", ():
            local.log().append(a_batch(b"more"), local.now_ms)
            local.log().flush()
        case "delete", (offset,):
            local.log().delete_before(max(offset, local.log().view.start))
