"""Our own logs: what goes in comes back, and a log that cannot be read to its end says nothing."""

from pathlib import Path

import pytest
from brokers import NOW_MS, LocalBroker

from tailrace.broker.metadata import Metadata
from tailrace.broker.metadata_log import replay_all
from tailrace.broker.own_logs import NotRead, append_records, records_of
from tailrace.log.log import Log
from tailrace.records.record import Record


def test_records_come_back_as_one_batch(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        broker.produce(b"before")
        log = broker.log()
        append_records(log, [Record(0, NOW_MS, b"k", value) for value in (b"a", b"b")], NOW_MS)
        assert [record.value for record in records_of(log)] == [b"before"], "the rest is not on disk"
        log.flush()
        assert [(record.offset, record.value) for record in records_of(log)] == [(0, b"before"), (1, b"a"), (2, b"b")]


def test_one_that_ends_before_its_end_is_an_error_of_whoever_replays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic()
        log = broker.broker.metadata_log.log
        monkeypatch.setattr(Log, "read", lambda *_, **__: None)
        with pytest.raises(NotRead, match="ends at offset 0, and not at"):
            replay_all(log, Metadata())
        monkeypatch.undo()
