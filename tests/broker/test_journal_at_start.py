"""Acknowledged records that only the journal has are there after any number of starts, whatever goes wrong in them."""

import shutil
from collections.abc import Callable
from errno import EIO
from pathlib import Path

import pytest
from brokers import NOW_MS, LocalBroker

from tailrace.broker.configs.registry import BrokerConfigs
from tailrace.broker.startup import open_broker
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.journal_file import FILE_NAME, has_journal_writes
from tailrace.log.layout.errors import StorageError
from tailrace.log.layout.names import TopicPartition
from tailrace.testing.faulty_files import FaultyFiles

SMALL = {"tailrace.journal.bytes": "65536"}
ORDERS = TopicPartition("orders", 0)
LAST = [b"38", b"39", b"journaled"]


def journaled(path: Path) -> None:
    """A data directory after a power cut: the last record of each topic is in the journal alone."""
    broker = LocalBroker(path, SMALL)
    cut_off(broker, path)


def cut_off(broker: LocalBroker, path: Path, topics: tuple[str, ...] = ("orders", "kept")) -> None:
    for topic in topics:
        broker.create_topic(topic)
        for number in range(40):
            broker.produce(b"%d" % number, topic=topic)
            broker.tick(1)
    segments = [next((path / f"{topic}-0").glob("*.log")) for topic in topics]
    sizes = [segment.stat().st_size for segment in segments]
    for topic in topics:
        broker.produce(b"journaled", topic=topic)
    broker._jobs.clear()
    broker.directory.abandon()
    for segment, size in zip(segments, sizes, strict=True):
        assert segment.stat().st_size > size
        segment.write_bytes(segment.read_bytes()[:size])


def failing(kind: str, where: Callable[[str], bool], error: int) -> FaultyFiles:
    files = FaultyFiles(OperatingSystemFiles())
    original = files.called

    def called(one: str, path: str) -> None:
        original(one, path)
        if one == kind and where(path):
            raise OSError(error, "refused", path)

    files.called = called  # type: ignore[method-assign, assignment]
    return files


def unreadable(topic: str) -> FaultyFiles:
    return failing("read_at", lambda path: f"/{topic}-0/" in path and path.endswith(".log"), EIO)


def kept_journals(path: Path) -> list[str]:
    return sorted(found.name for found in path.glob(FILE_NAME + ".*"))


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_a_log_that_cannot_be_opened_has_what_the_journal_has_once_it_can(tmp_path: Path, stop: str) -> None:
    journaled(tmp_path)
    for _ in range(2):
        broker = LocalBroker(tmp_path, SMALL, files=unreadable("orders"))
        assert ORDERS in broker.directory.unavailable
        assert broker.values("kept")[-1] == b"journaled"
        for number in range(20):  # as many as make a journal
            broker.produce(b"new %d" % number, topic="kept")
            broker.tick(1)
        broker.produce(b"journaled", topic="kept")
        broker.close() if stop == "clean" else broker.directory.abandon()
        assert kept_journals(tmp_path) == [FILE_NAME + ".1"], "one, and not one for each start"
    with LocalBroker(tmp_path, SMALL) as broker:
        assert broker.values("orders")[-3:] == LAST
        assert broker.values("kept")[-3:] == [b"new 18", b"new 19", b"journaled"]
        assert not list(broker.log().damage)
        assert kept_journals(tmp_path) == []


def test_a_second_log_that_cannot_be_opened_has_a_journal_of_its_own(tmp_path: Path) -> None:
    journaled(tmp_path)
    broker = LocalBroker(tmp_path, SMALL, files=unreadable("orders"))
    cut_off(broker, tmp_path, ("other",))
    LocalBroker(tmp_path, SMALL, files=failing("read_at", lambda path: "/o" in path and ".log" in path, EIO)).close()
    assert kept_journals(tmp_path) == [FILE_NAME + ".1", FILE_NAME + ".2"]
    with LocalBroker(tmp_path, SMALL) as broker:
        assert broker.values("orders")[-3:] == broker.values("other")[-3:] == LAST
        assert kept_journals(tmp_path) == []


def test_a_lost_log_that_is_restored_has_what_the_journal_has(tmp_path: Path) -> None:
    journaled(tmp_path / "data")
    (tmp_path / "data" / "orders-0").rename(tmp_path / "lost")
    LocalBroker(tmp_path / "data", SMALL).close()
    (tmp_path / "lost").rename(tmp_path / "data" / "orders-0")
    with LocalBroker(tmp_path / "data", SMALL) as broker:
        assert broker.values()[-3:] == LAST


@pytest.mark.parametrize("died", ["before the broker", "before the topic id", "before the records", "at its end"])
def test_a_start_that_dies_leaves_the_journal_to_the_next(
    tmp_path: Path, died: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a log among them whose topic id is lost: it gets its records when it is adopted."""
    journaled(tmp_path)
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(b"")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if died == "before the topic id":
            patch.setattr(DataDirectory, "adopt", die)
        elif died == "before the records":
            patch.setattr(DataDirectory, "_recover_again", die)
        elif died == "at its end":
            patch.setattr("tailrace.broker.startup.Broker", die)
        directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
        if died != "before the broker":
            with pytest.raises(KeyboardInterrupt):
                open_broker(
                    directory, BrokerConfigs(SMALL), NOW_MS, start_job=lambda *_: None, random_bytes=lambda n: bytes(n)
                )
        directory.abandon()
    with LocalBroker(tmp_path, SMALL) as broker:
        for topic in ("orders", "kept"):
            assert broker.values(topic)[-3:] == LAST
            assert not list(broker.log(topic).damage)


@pytest.mark.parametrize("which", ["its session", "its commits"])
def test_without_a_journal_that_can_be_read_nothing_starts_and_nothing_is_lost(tmp_path: Path, which: str) -> None:
    journaled(tmp_path)
    reads = 0

    def is_bad(path: str) -> bool:
        nonlocal reads
        reads += path.endswith(FILE_NAME)
        return path.endswith(FILE_NAME) and (which == "its session" or reads > 1)

    for _ in range(2):
        reads = 0
        with pytest.raises(StorageError, match=f"cannot read .*{FILE_NAME}: refused.*or move it away"):
            LocalBroker(tmp_path, SMALL, files=failing("read_at", is_bad, EIO))
    with LocalBroker(tmp_path, SMALL) as broker:
        assert broker.values()[-3:] == LAST


def test_a_clean_stop_of_the_last_release_is_clean_despite_writes_in_its_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = shutil.copytree(Path(__file__).parents[1] / "data" / "format-2" / "stopped", tmp_path / "data")
    marker, journal = (data / ".kafka_cleanshutdown").read_bytes(), data / FILE_NAME
    with LocalBroker(data, SMALL) as broker:
        broker.create_topic()
        for number in range(40):
            broker.produce(b"%d" % number)
            broker.tick(1)
        broker.produce(b"journaled")
        written = journal.read_bytes()
    journal.write_bytes(written)
    (data / ".kafka_cleanshutdown").write_bytes(marker)
    assert has_journal_writes(OperatingSystemFiles(), str(data))
    epochs = {path: path.read_bytes() for path in data.rglob("leader-epoch-checkpoint")}
    caplog.clear()
    with caplog.at_level("WARNING"), LocalBroker(data, SMALL) as broker:
        assert broker.directory.was_clean
        assert broker.broker.metadata.unclean_starts == 0
        assert {path: path.read_bytes() for path in epochs} == epochs
    assert not [message for message in caplog.messages if "given up by a repair" not in message]
