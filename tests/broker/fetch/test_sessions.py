"""Fetch sessions: what is remembered, what is told, and which request is refused."""

from pathlib import Path
from typing import Any

import pytest
from brokers import LocalBroker, a_batch, fetch_request, from_offset, produce_request, resolved, values_of

from tailrace.broker.fetch import sessions as fetch_sessions
from tailrace.broker.fetch.sessions import BUSY_MS
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fetch_wire import EPOCH_MAX
from tailrace.protocol.messages.fetch import FetchTopic, ForgottenTopic


def begin(broker: LocalBroker, *partitions: int, version: int = 12, **fields: Any) -> Any:
    """A full fetch of these partitions, from their start, which begins a session."""
    wanted = [from_offset(0, number) for number in partitions or (0,)]
    return broker.fetch(*wanted, session_id=0, session_epoch=0, version=version, **fields)


def go_on(broker: LocalBroker, session_id: int, epoch: int, *wanted: Any, **fields: Any) -> Any:
    return broker.fetch(*wanted, session_id=session_id, session_epoch=epoch, **fields)


def told(response: Any) -> dict[int, list[bytes]]:
    """What an answer says, by partition."""
    return {one.partition_index: values_of(one) for topic in response.responses for one in topic.partitions}


def test_without_a_session_every_request_says_all(tmp_path: Path) -> None:
    """Pitfall 20: (0, -1)."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        for _ in range(2):
            response = broker.fetch(from_offset(0, 0), from_offset(0, 1), session_id=0, session_epoch=-1)
            assert (response.session_id, told(response)) == (0, {0: [], 1: []})
        assert len(broker.broker.fetch_sessions) == 0


def test_a_session_tells_only_news(tmp_path: Path) -> None:
    """Pitfall 20: (any, 0), then (id, 1), (id, 2) …"""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        broker.produce(b"a", partition=1)
        first = begin(broker, 0, 1, 2)
        assert first.session_id > 0
        assert told(first) == {0: [], 1: [b"a"], 2: []}, "the first answer says all"
        read_on = go_on(broker, first.session_id, 1, from_offset(1, 1))
        assert told(read_on) == {}
        broker.produce(b"b", partition=2)
        assert told(go_on(broker, first.session_id, 2)) == {2: [b"b"]}
        assert told(go_on(broker, first.session_id, 3)) == {2: [b"b"]}, "not yet read: it is there again"
        assert told(go_on(broker, first.session_id, 4, from_offset(1, 2))) == {}


def test_a_session_tells_of_another_start_or_high_watermark(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        for _ in range(3):
            broker.produce(b"a")
        session = broker.fetch(from_offset(3), session_id=0, session_epoch=0).session_id
        assert told(go_on(broker, session, 1)) == {}
        broker.log().delete_before(2)
        response = go_on(broker, session, 2)
        assert response.responses[0].partitions[0].log_start_offset == 2
        assert told(go_on(broker, session, 3)) == {}


def test_errors_and_parting_histories_are_always_news(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.kill()
        session = begin(broker, 0, 7).session_id
        for epoch in (1, 2):
            response = go_on(broker, session, epoch, from_offset(1, 0))
            assert [one.error_code for one in response.responses[0].partitions] == [
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ]
        forgotten = [ForgottenTopic(topic="orders", partitions=[7])]
        assert told(go_on(broker, session, 3, forgotten_topics_data=forgotten)) == {}
        for epoch in (4, 5):
            response = go_on(broker, session, epoch, from_offset(2, 0, last_fetched_epoch=0))
            assert response.responses[0].partitions[0].diverging_epoch.end_offset == 1


def test_what_is_forgotten_is_not_told_any_more(tmp_path: Path) -> None:
    """Pitfall 20."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        session = begin(broker, 0, 1).session_id
        forgotten = [ForgottenTopic(topic="orders", partitions=[1, 5]), ForgottenTopic(topic="other", partitions=[0])]
        go_on(broker, session, 1, forgotten_topics_data=forgotten)
        for number in (0, 1):
            broker.produce(b"a", partition=number)
        assert told(go_on(broker, session, 2)) == {0: [b"a"]}
        assert told(go_on(broker, session, 3, from_offset(0, 1))) == {0: [b"a"], 1: [b"a"]}, "and can come back"


def test_topics_are_forgotten_by_id_too(tmp_path: Path) -> None:
    """Pitfall 20."""
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        session = begin(broker, version=13, topic=topic_id).session_id
        broker.produce(b"a")
        forgotten = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
        response = go_on(broker, session, 1, version=13, forgotten_topics_data=forgotten)
        assert told(response) == {}


def test_a_session_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """Pitfall 20: 70."""
    with LocalBroker(tmp_path) as broker:
        for session in (0, 12345, -1):
            response = go_on(broker, session, 1)
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert (response.session_id, response.responses) == (0, [])


def test_an_epoch_out_of_turn_is_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    """Pitfall 20: 71."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        session = begin(broker).session_id
        for epoch in (2, -5, EPOCH_MAX):
            assert go_on(broker, session, epoch).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert go_on(broker, session, 1).error_code == 0
        assert go_on(broker, session, 1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_after_the_last_is_one(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        session = begin(broker).session_id
        broker.broker.fetch_sessions._sessions[session].epoch = EPOCH_MAX
        assert go_on(broker, session, EPOCH_MAX).error_code == 0
        assert go_on(broker, session, 1).error_code == 0


def test_a_session_goes_by_names_or_by_ids(tmp_path: Path) -> None:
    """Pitfall 20: 106."""
    with LocalBroker(tmp_path) as broker:
        topic_id = broker.create_topic()
        by_name = begin(broker).session_id
        by_id = begin(broker, version=13, topic=topic_id).session_id
        for session, version in ((by_name, 13), (by_id, 12)):
            response = go_on(broker, session, 1, version=version)
            assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """Pitfall 20: (id, -1); the same request is answered in full."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        session = begin(broker).session_id
        last = go_on(broker, session, -1, from_offset(0))
        assert (last.session_id, told(last)) == (0, {0: []})
        assert go_on(broker, session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_takes_the_place_of_the_session_before(tmp_path: Path) -> None:
    """Pitfall 20: (id, 0)."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        old = begin(broker).session_id
        new = go_on(broker, old, 0, from_offset(0)).session_id
        assert new not in (0, old)
        assert len(broker.broker.fetch_sessions) == 1


def test_sessions_in_use_are_kept_and_idle_ones_give_way(tmp_path: Path) -> None:
    """Pitfall 20: some clients leak sessions."""
    with LocalBroker(tmp_path, {"max.incremental.fetch.session.cache.slots": "2"}) as broker:
        broker.create_topic()
        first, second = begin(broker).session_id, begin(broker).session_id
        assert begin(broker).session_id == 0, "no room: the client says all each time"
        broker.now_ms += BUSY_MS - 1
        go_on(broker, first, 1)
        broker.now_ms += 1
        third = begin(broker).session_id
        assert third != 0
        assert go_on(broker, second, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the longest unused"
        assert go_on(broker, first, 2).error_code == 0


def test_sessions_used_while_the_clock_was_ahead_give_way_once_it_is_put_back(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"max.incremental.fetch.session.cache.slots": "1"}) as broker:
        broker.create_topic()
        broker.jump(86_400_000)
        first = begin(broker).session_id
        broker.jump(-86_400_000)
        assert begin(broker).session_id not in (0, first)


def test_without_slots_there_are_no_sessions(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"max.incremental.fetch.session.cache.slots": "0"}) as broker:
        broker.create_topic()
        assert begin(broker).session_id == 0


def test_partitions_with_records_are_served_last_the_next_time(tmp_path: Path) -> None:
    """Pitfall 19: so that none starves."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=3)
        for number in range(3):
            broker.produce(b"%d" % number * 300, partition=number)
        size = len(a_batch(b"0" * 300))
        response = begin(broker, 0, 1, 2, max_bytes=size)
        served = [number for number, values in told(response).items() if values]
        for epoch in range(1, 6):
            response = go_on(broker, response.session_id, epoch, max_bytes=size)
            served += [number for number, values in told(response).items() if values]
        assert served == [0, 1, 2, 0, 1, 2]


def test_a_session_follows_no_more_than_a_request_can_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 8: or it would grow with every request."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 3)
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=9)
        session = begin(broker, 0, 1).session_id
        assert go_on(broker, session, 1, from_offset(0, 2)).error_code == 0
        too_many = go_on(broker, session, 2, from_offset(0, 3))
        assert too_many.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the client begins anew"
        assert len(broker.broker.fetch_sessions) == 0


def test_a_topic_that_is_deleted_is_told_as_an_error_and_the_new_one_by_its_id(tmp_path: Path) -> None:
    """Pitfalls 11 and 20."""
    with LocalBroker(tmp_path) as broker:
        old = broker.create_topic()
        session = begin(broker, version=13, topic=old).session_id
        broker.delete_topic()
        response = go_on(broker, session, 1, version=13)
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        new = broker.create_topic()
        broker.produce(b"new")
        request = fetch_request(session_id=session, session_epoch=2, max_wait_ms=0)
        request.topics = [FetchTopic(topic_id=new, partitions=[from_offset(0)])]
        request.forgotten_topics_data = [ForgottenTopic(topic_id=old, partitions=[0])]
        response = broker.ask(request, 13)
        assert [topic.topic_id for topic in response.responses] == [new]


def test_requests_of_a_session_may_be_pipelined(tmp_path: Path) -> None:
    """Pitfall 4: the second hurries the first, and each is answered once."""
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        session = begin(broker).session_id
        first = broker.begin(fetch_request(session_id=session, session_epoch=1), 12)
        answered = resolved(first)
        first.hurry()
        second = broker.begin(fetch_request(session_id=session, session_epoch=2), 12)
        assert told(answered[0]) == {}
        broker.ask(produce_request(a_batch(b"a")), 9)
        (answer,) = resolved(second)
        assert told(broker.decode(answer, type(fetch_request()), 12)) == {0: [b"a"]}
