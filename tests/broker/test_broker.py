"""What the broker does besides requests: logs that come and go, and who is told of a flush."""

from pathlib import Path

import pytest
from brokers import LocalBroker, a_batch, fetch_request, from_offset, produce_request, resolved

from tailrace.broker.metadata.records import ProducerIdsReserved
from tailrace.broker.metadata.state import Metadata, MetadataCache


def test_a_partition_has_no_log_before_the_first_append(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=1000)
        assert not list(tmp_path.glob("orders-*"))
        assert broker.broker.metadata.topics["orders"].touched == []
        broker.produce(b"a", partition=500)
        assert [path.name for path in tmp_path.glob("orders-*")] == ["orders-500"]


def test_an_append_is_flushed_at_once_where_somebody_waits_for_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        waiting = broker.begin(fetch_request(from_offset(0)), 12)
        broker.hold_jobs = True
        for number in (0, 1):
            broker.begin(produce_request(a_batch(b"a"), partition=number, acks=1), 9)
        broker.run_jobs()
        assert resolved(waiting)
        assert broker.log(index=0).high_watermark == 1
        assert broker.log(index=1).high_watermark == 0, "nobody waits for this one"


def test_removing_resolves_when_the_names_are_free(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic(partitions=2)
        broker.produce(b"a")
        topic = broker.broker.metadata.topics["orders"]
        removed = resolved(broker.broker.remove_logs([topic], broker.now_ms))
        assert removed == []
        broker.run_jobs()
        assert removed == [None]
        assert not list(tmp_path.glob("orders-*"))
        assert resolved(broker.broker.remove_logs([topic], broker.now_ms)) == [None], "there is nothing left to remove"


def test_removing_while_a_flush_runs_does_no_harm(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"a")
        broker.hold_jobs = True
        answers = resolved(broker.begin(produce_request(a_batch(b"b")), 9))
        flush = broker.broker.flushes.next_job()
        assert flush is not None
        broker.delete_topic()
        flush.run()
        broker.broker.flushed(flush)
        assert len(answers) == 1
        broker.run_jobs()
        assert not list(tmp_path.glob("orders-*"))
        broker.hold_jobs = False
        broker.create_topic()
        assert broker.produce(b"new").base_offset == 0


def test_kept_values_are_made_anew_after_a_change() -> None:
    metadata = Metadata()
    cached: MetadataCache[list[int]] = MetadataCache(metadata)
    first = cached.get("key", lambda: [1])
    assert cached.get("key", lambda: [2]) is first
    assert cached.get("other", lambda: [3]) == [3]
    metadata.replay(ProducerIdsReserved(next_producer_id=1))
    assert cached.get("key", lambda: [4]) == [4]


def test_a_duty_that_fails_keeps_no_other_from_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise ValueError("nobody foresaw this")

    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.tick()
        broker.produce(b"a", acks=1)
        ticks: list[int] = []
        monkeypatch.setattr(broker.broker.retention, "tick", fail)
        monkeypatch.setattr(broker.broker.scrubber, "tick", ticks.append)
        with pytest.raises(ExceptionGroup, match="background tasks failed"):
            broker.tick()
        assert ticks == [broker.now_ms]
