"""The topic id of a log: in Kafka's file, on disk with the first flush, and no reason for a start to fail."""

from base64 import urlsafe_b64encode
from errno import EIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import read_whole
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import CorruptCheckpoint
from tailrace.log.files.partition_metadata import decode_topic_id, encode_topic_id
from tailrace.log.layout.errors import LogOffline
from tailrace.log.layout.names import PARTITION_METADATA
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles

NOW = 5000
TOPIC_ID = b"\xff\xfe" + bytes(range(14))


def test_the_file_is_as_kafka_writes_it() -> None:
    assert encode_topic_id(TOPIC_ID) == b"version: 0\ntopic_id: __4AAQIDBAUGBwgJCgsMDQ\n"
    assert decode_topic_id(b"version: 0\ntopic_id: __4AAQIDBAUGBwgJCgsMDQ") == TOPIC_ID


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_read_as_it_was_written(topic_id: bytes) -> None:
    assert decode_topic_id(encode_topic_id(topic_id)) == topic_id


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0\n",
        b"version: 1\ntopic_id: __4AAQIDBAUGBwgJCgsMDQ\n",
        b"topic_id: __4AAQIDBAUGBwgJCgsMDQ\nversion: 0\n",
        b"version: 0\ntopic_id: __4AAQIDBAUGBwgJCgsM\n",
        b"version: 0\ntopic_id: __4AAQIDBAUGBwgJCgsMDQAA\n",
        b"version: 0\ntopic_id: //4AAQIDBAUGBwgJCgsMDQ\n",
        b"version: 0\ntopic_id: __4AAQIDBAUGBwgJCgsMD!\n",
        b"version: 0\ntopic_id: \n",
        b"\xff\x00garbage",
    ],
)
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_topic_id(data)


def test_a_log_says_the_topic_it_was_made_for_also_after_a_restart(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    log = directory.create(ORDERS, topic_id=TOPIC_ID)
    assert log.topic_id == TOPIC_ID
    assert (tmp_path / str(ORDERS) / PARTITION_METADATA).exists(), "a killed process leaves no log that nobody knows"
    log.flush()
    text = (tmp_path / str(ORDERS) / PARTITION_METADATA).read_text()
    assert text == f"version: 0\ntopic_id: {urlsafe_b64encode(TOPIC_ID).decode()[:22]}\n"
    directory.close(NOW)
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    assert directory.logs[ORDERS].topic_id == TOPIC_ID
    directory.close(NOW)


def test_no_power_cut_after_a_flush_takes_the_id_away() -> None:
    files = memory_files()
    log = DataDirectory(files, DATA, SMALL).create(ORDERS, topic_id=TOPIC_ID)
    log.append(batch_of(2), NOW)
    for calls in range(len(files.calls) + 1):
        for disk in files.power_cuts(calls, limit=20, seed=calls):
            left = DataDirectory(disk, DATA, SMALL).logs.get(ORDERS)
            assert left is None or left.topic_id in (None, TOPIC_ID)
    began = len(files.calls)
    log.flush()
    for calls in range(began, len(files.calls) + 1):
        for disk in files.power_cuts(calls, limit=60, seed=calls):
            left = DataDirectory(disk, DATA, SMALL).logs.get(ORDERS)
            assert left is None or left.topic_id in (None, TOPIC_ID)
            if calls == len(files.calls):
                assert left is not None
                assert (left.topic_id, left.end_offset) == (TOPIC_ID, 2)


def test_a_log_whose_id_cannot_be_written_acknowledges_nothing() -> None:
    files = FaultyFiles(memory_files())
    log = DataDirectory(files, DATA, SMALL).create(ORDERS, topic_id=TOPIC_ID)
    log.append(batch_of(2), NOW)
    files.fail("rename", EIO, name=PARTITION_METADATA)
    with pytest.raises(LogOffline):
        log.flush()
    assert log.high_watermark == 0


def test_a_log_without_an_id_can_be_told_one_and_keeps_it() -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS)
    log.flush()
    assert log.topic_id is None
    assert read_whole(files, f"{PARTITION}/{PARTITION_METADATA}") is None
    log.assign_topic_id(TOPIC_ID)
    calls = len(files.calls)
    log.flush()
    log.assign_topic_id(TOPIC_ID)
    assert log.begin_flush() is None, "that was known"
    for disk in files.power_cuts(len(files.calls), limit=50):
        assert DataDirectory(disk, DATA, SMALL).logs[ORDERS].topic_id == TOPIC_ID
    assert len(files.calls) > calls


@pytest.mark.parametrize("content", [b"", b"garbage", b"version: 7\ntopic_id: __4AAQIDBAUGBwgJCgsMDQ\n"])
def test_a_file_that_cannot_be_understood_is_told_and_the_log_opens_without_an_id(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS, topic_id=TOPIC_ID)
    log.append(batch_of(2), NOW)
    directory.close(NOW)
    files.disk.file(f"{PARTITION}/{PARTITION_METADATA}")[:] = content
    log = DataDirectory(RecordingFiles(files.disk), DATA, SMALL).logs[ORDERS]
    assert log.topic_id is None
    assert len(stored_batches(log)) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert PARTITION_METADATA in caplog.text


def test_a_file_that_cannot_be_read_is_told_and_the_log_opens_without_an_id(caplog: pytest.LogCaptureFixture) -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    directory.create(ORDERS, topic_id=TOPIC_ID).flush()
    directory.close(NOW)
    faulty = FaultyFiles(RecordingFiles(files.disk))
    faulty.fail("read_at", EIO, name=PARTITION_METADATA)
    assert DataDirectory(faulty, DATA, SMALL).logs[ORDERS].topic_id is None
    assert PARTITION_METADATA in caplog.text
