"""Our own logs: what goes in comes back, and a log that cannot be read to its end says nothing."""

from pathlib import Path

import pytest
from brokers import NOW_MS, LocalBroker
from logs import DATA, ORDERS, memory_files

from tailrace.broker.metadata.internal_topics import NotRead, append_records, records_of
from tailrace.broker.metadata.log import replay_all
from tailrace.broker.metadata.state import Metadata
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.config import LogConfig
from tailrace.log.log import Log
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.records.batch import HEADER_SIZE, split
from tailrace.records.record import Record
from tailrace.testing.recording_files import RecordingFiles


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
        with pytest.raises(NotRead, match="ends at offset 0 instead of"):
            replay_all(log, Metadata())
        monkeypatch.undo()


def test_a_log_that_ends_in_what_a_repair_has_given_up_is_read_to_its_end() -> None:
    files = memory_files()
    config = LogConfig(segment_bytes=200)
    directory = DataDirectory(files, DATA, config)
    log = directory.create(ORDERS)
    for number in range(2):
        append_records(log, [Record(0, 1000, None, b"%d" % number)], 1000)
    directory.checkpoint(1000)
    append_records(log, [Record(0, 1000, None, b"torn")], 1000)
    sealed, torn = [files.disk.file(segment.log.path) for segment in log.segments]
    position, header = list(split(bytes(sealed)))[1]
    sealed[position + HEADER_SIZE :] = bytes(header.size - HEADER_SIZE)
    del torn[20:]
    again = RecordingFiles(files.disk)
    carry_out(again, make_plan(again, locate(again, DATA)), DATA, "now")
    log = DataDirectory(again, DATA, config).logs[ORDERS]
    assert log.end_offset == 2
    assert log.read(1, 1000) is None, "the next record is waited for"
    assert [record.value for record in records_of(log)] == [b"0"]
