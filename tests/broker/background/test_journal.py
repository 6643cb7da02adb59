"""When a broker has a journal, and that its records are there after a power cut."""

from pathlib import Path

import pytest
from brokers import LocalBroker

from tailrace.broker.background.journal import SMALL_FLUSHES
from tailrace.log.files.journal_file import BYTES_MIN, FILE_NAME

SIZE = 1 << 20
SMALL = {"tailrace.journal.bytes": str(SIZE)}


def make_it(broker: LocalBroker) -> None:
    broker.create_topic()
    for _ in range(SMALL_FLUSHES + 1):  # the first is more than small: the log is new
        broker.produce(b"a")
    broker.tick()


def test_a_broker_whose_clients_wait_for_the_disk_gets_one(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, SMALL) as broker:
        broker.create_topic("few")
        broker.produce(b"a", topic="few")
        broker.tick()
        assert not (tmp_path / FILE_NAME).exists()
        make_it(broker)
        assert (tmp_path / FILE_NAME).stat().st_size == SIZE
        assert broker.broker.flushes.journal is not None


def test_one_whose_clients_do_not_has_none(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, SMALL) as broker:
        broker.create_topic()
        for _ in range(100):
            broker.produce(b"a", acks=1)
        broker.tick()
        assert not (tmp_path / FILE_NAME).exists()


def test_none_is_made_where_it_is_set_to_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"tailrace.journal.bytes": "0"}) as broker:
        make_it(broker)
        assert not (tmp_path / FILE_NAME).exists()
        assert broker.produce(b"a").error_code == 0


def test_one_that_is_too_small_is_as_small_as_it_can_be(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, {"tailrace.journal.bytes": "1"}) as broker:
        make_it(broker)
        assert (tmp_path / FILE_NAME).stat().st_size == BYTES_MIN


def test_what_is_acknowledged_then_is_only_in_the_journal_and_readers_see_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, SMALL) as broker:
        make_it(broker)
        assert broker.produce(b"committed").error_code == 0
        log = broker.log()
        assert log.synced < log.high_watermark == log.end_offset
        assert broker.values()[-1] == b"committed"
        broker.tick()
        assert log.synced == log.high_watermark


def test_the_next_broker_has_it_from_the_start(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, SMALL) as broker:
        make_it(broker)
    with LocalBroker(tmp_path, SMALL) as broker:
        assert broker.broker.flushes.journal is not None
        broker.produce(b"a")
        assert broker.log().synced < broker.log().high_watermark


@pytest.mark.parametrize("size", ["0", "2000000"])
def test_one_of_another_size_is_read_before_it_is_removed(tmp_path: Path, size: str) -> None:
    broker = LocalBroker(tmp_path, SMALL)
    make_it(broker)
    kept = broker.log().active.size
    broker.produce(b"committed")
    path = Path(broker.log().active.log.path)
    broker.directory.abandon()
    with path.open("r+b") as file:  # as a power cut would leave it
        file.truncate(kept)
    with LocalBroker(tmp_path, {"tailrace.journal.bytes": size}) as broker:
        assert broker.values()[-1] == b"committed"
        assert not (tmp_path / FILE_NAME).exists()
