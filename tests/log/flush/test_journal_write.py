"""Commits: who is told when, how few writes that takes, and that it is so after a power cut."""

from collections.abc import Callable
from errno import EIO, ENOSPC
from itertools import islice

import pytest
from logs import DATA, Waiting, batch_of, memory_files, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Space
from tailrace.log.files.journal_file import BLOCK_BYTES, BYTES_MIN, FILE_NAME
from tailrace.log.flush.journal import make_journal
from tailrace.log.flush.journal_write import JOURNAL_BYTES_PER_LOG_MAX
from tailrace.log.flush.journal_write import JOURNAL_WRITE_LOGS_MAX as JOURNAL_WRITE_LOGS_MAX
from tailrace.log.flush.journal_write import JournalWriteJob as JournalWriteJob
from tailrace.log.flush.journal_write import bytes_to_journal as bytes_to_journal
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.jobs import FlushJob
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.testing.faulty_files import FaultyFiles

NOW = 5000
SIZE = 1 << 20


class Setup(Waiting):
    """Some logs that have all been flushed once, and a journal."""

    def __init__(self, logs: int = 1, *, size: int = SIZE) -> None:
        super().__init__()
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        self.directory = DataDirectory(self.files, DATA, LogConfig())
        self.logs = [self.create(f"topic-{number}", number) for number in range(logs)]
        for log in self.logs:
            log.flush()
        self.queue = FlushQueue()
        self.queue.journal = self.directory.journal = make_journal(self.files, DATA, size)
        self.files.count.clear()

    def create(self, topic: str, number: int) -> Log:
        return self.directory.create(TopicPartition(topic, 0), topic_id=(number + 1).to_bytes(16))

    def append(self, log: Log | None = None, *, size: int = 50) -> int:
        log = log or self.logs[0]
        end = log.append(batch_of(2, size=size), NOW).last_offset + 1
        self.queue.appended(log, NOW)
        return end

    @property
    def answered(self) -> list[str]:
        return sorted(super().answered)

    def commit(self) -> JournalWriteJob:
        job = self.queue.next_journal_write()
        assert job is not None
        return job

    def after_power_cut(self) -> dict[str, dict[int, bytes]]:
        """What is left of all logs when nothing survives that was not synced."""
        calls = len(self.memory.calls)
        *_, disk = islice(self.memory.power_cuts(calls, limit=1), 2)  # all is kept; all is lost
        directory = DataDirectory(disk, DATA, LogConfig())
        return {name.topic: stored_batches(log) for name, log in directory.logs.items()}


def syncs_of_logs(setup: Setup) -> int:
    journal = setup.memory.inode(f"{DATA}/{FILE_NAME}")
    return sum(call.kind == "sync" and call.inode != journal for call in setup.memory.calls)


def test_one_write_serves_all_logs_and_syncs_none() -> None:
    setup = Setup(logs=20)
    before = syncs_of_logs(setup)
    for number, log in enumerate(setup.logs):
        setup.wait(f"{number:02}", setup.append(log), log)
    assert setup.answers == [], "nobody is told before it is so"
    job = setup.commit()
    job.run()
    setup.queue.finished(job)
    assert setup.answered == [f"{number:02}" for number in range(20)]
    assert all(log.high_watermark == log.end_offset for log in setup.logs)
    assert (setup.files.count["sync"], syncs_of_logs(setup)) == (1, before)
    written = {f"topic-{number}": stored_batches(log) for number, log in enumerate(setup.logs)}
    assert setup.after_power_cut() == written


def test_what_came_after_the_commit_began_is_told_by_the_next_one() -> None:
    setup = Setup()
    setup.wait("early", setup.append())
    job = setup.commit()
    setup.wait("late", setup.append())
    assert setup.queue.next_journal_write() is None, "one at a time"
    job.run()
    setup.queue.finished(job)
    assert setup.answered == ["early"]
    setup.queue.run_all()
    assert setup.answered == ["early", "late"]


def test_who_waits_for_what_a_commit_under_way_has_needs_no_flush() -> None:
    setup = Setup()
    end = setup.append()
    setup.wait("first", end)
    job = setup.commit()
    setup.wait("second", end)
    job.run()
    setup.queue.finished(job)
    assert setup.answered == ["first", "second"]
    assert setup.queue.next_job() is None


def test_records_nobody_waited_for_are_committed_with_those_behind_them() -> None:
    setup = Setup()
    setup.append()
    setup.wait("all", setup.append())
    setup.queue.run_all()
    assert setup.answered == ["all"]
    assert setup.after_power_cut() == {"topic-0": stored_batches(setup.logs[0])}


def test_much_is_synced_where_it_is() -> None:
    setup = Setup()
    setup.wait("much", setup.append(size=JOURNAL_BYTES_PER_LOG_MAX))
    assert setup.queue.next_journal_write() is None
    assert isinstance(setup.queue.next_job(), FlushJob)


def test_a_new_log_is_flushed_first_as_its_name_is_not_on_disk() -> None:
    setup = Setup()
    log = setup.create("new", 9)
    setup.wait("first", setup.append(log), log)
    assert setup.queue.next_journal_write() is None
    flush = setup.queue.next_job()
    assert isinstance(flush, FlushJob)
    setup.wait("second", setup.append(log), log)
    assert setup.queue.next_journal_write() is None, "the flush has not come back"
    flush.run()
    setup.queue.finished(flush)
    setup.wait("third", setup.append(log), log)
    assert setup.queue.next_journal_write() is not None or setup.answered == ["first", "second"]


def test_a_new_segment_is_flushed_first() -> None:
    setup = Setup()
    setup.append()
    setup.logs[0].roll()
    setup.wait("behind", setup.append())
    assert setup.queue.next_journal_write() is None
    setup.queue.run_all()
    assert setup.answered == ["behind"]
    assert bytes_to_journal(setup.logs[0]) == 0
    setup.append()
    assert bytes_to_journal(setup.logs[0]) > 0


def test_a_log_without_a_topic_is_not_committed() -> None:
    setup = Setup()
    log = setup.directory.create(TopicPartition("nameless", 0))
    log.flush()
    setup.wait("first", setup.append(log), log)
    assert isinstance(setup.queue.next_job(), FlushJob)


def test_a_flush_that_comes_back_later_takes_nothing_back_and_counts_for_what_it_had() -> None:
    setup = Setup()
    log = setup.logs[0]
    before = setup.append()
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    setup.wait("behind", setup.append())
    job = setup.commit()
    job.run()
    setup.queue.finished(job)
    assert setup.answered == ["behind"]
    visible = log.view.visible
    flush.finish()
    assert (log.view.visible, log.high_watermark) == (visible, log.end_offset)
    assert log.synced == before


def test_what_has_become_too_much_before_the_commit_began_is_flushed() -> None:
    setup = Setup()
    setup.wait("little", setup.append())
    setup.append(size=JOURNAL_BYTES_PER_LOG_MAX)
    assert setup.queue.next_journal_write() is None
    setup.queue.run_all()
    assert setup.answered == ["little"]


def test_committed_logs_are_flushed_within_their_time() -> None:
    setup = Setup()
    setup.wait("all", setup.append())
    setup.queue.run_all()
    assert setup.logs[0].synced < setup.logs[0].end_offset
    setup.queue.tick(NOW + 1000)
    setup.queue.run_all()
    assert setup.logs[0].synced == setup.logs[0].end_offset


@pytest.mark.parametrize("kind", ["write_at", "sync"])
def test_a_journal_that_fails_is_given_up_and_nobody_notices(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup(logs=2)
    setup.files.fail(kind, EIO, name=FILE_NAME)
    setup.wait("first", setup.append())
    job = setup.commit()
    setup.wait("second", setup.append(setup.logs[1]), setup.logs[1])
    job.run()
    setup.queue.finished(job)
    assert setup.answers == []
    setup.queue.run_all()
    assert setup.answered == ["first", "second"]
    assert setup.queue.journal is None
    assert "the journal is disabled" in caplog.text
    assert setup.after_power_cut() == {f"topic-{n}": stored_batches(log) for n, log in enumerate(setup.logs)}


def test_where_it_has_no_room_logs_are_flushed_until_it_has() -> None:
    setup = Setup(size=BYTES_MIN)
    committed = 0
    for number in range(60):
        setup.wait(f"{number:02}", setup.append())
        if (job := setup.queue.next_journal_write()) is not None:  # of the flushes nobody begins one meanwhile
            committed += 1
            job.run()
            setup.queue.finished(job)
    assert committed == 2 * ((BYTES_MIN - BLOCK_BYTES) // 2 // BLOCK_BYTES)
    setup.queue.run_all()
    assert setup.answered == [f"{number:02}" for number in range(60)]
    setup.wait("again", setup.append())
    assert setup.queue.next_journal_write() is not None


def test_a_log_that_is_removed_meanwhile_does_no_harm_to_the_others() -> None:
    setup = Setup(logs=2)
    for number, log in enumerate(setup.logs):
        setup.wait(str(number), setup.append(log), log)
    job = setup.commit()
    removal = setup.directory.begin_remove([TopicPartition("topic-0", 0)])
    setup.queue.forget(setup.logs[0])
    job.run()
    setup.queue.finished(job)
    removal.run()
    assert [name for name, error in setup.answers if error is None] == ["1"]
    assert setup.queue.journal is not None


def test_a_log_that_is_gone_before_the_commit_begins_is_left_out() -> None:
    setup = Setup(logs=2)
    for number, log in enumerate(setup.logs):
        setup.wait(str(number), setup.append(log), log)
    setup.queue.forget(setup.logs[0])
    assert setup.commit().logs == [setup.logs[1]]


def test_a_log_that_cannot_be_read_is_synced_itself() -> None:
    setup = Setup(logs=2)
    for number, log in enumerate(setup.logs):
        setup.wait(str(number), setup.append(log), log)
    setup.files.fail("read_at", EIO, name=".log")  # the first of them
    job = setup.commit()
    job.run()
    setup.queue.finished(job)
    assert len(setup.answered) == 1
    setup.queue.run_all()
    assert setup.answered == ["0", "1"]
    assert setup.queue.journal is not None


def _clean_stop(setup: Setup) -> None:
    setup.directory.close(NOW)


def _kill(setup: Setup) -> None:
    setup.directory.abandon()


@pytest.mark.parametrize("stop", [_clean_stop, _kill])
def test_the_next_start_goes_on_with_the_journal(stop: Callable[[Setup], None]) -> None:
    setup = Setup()
    setup.wait("first", setup.append())
    setup.queue.run_all()
    stop(setup)
    directory = DataDirectory(setup.memory, DATA, LogConfig())
    assert directory.use_journal(SIZE) is not None
    assert len(stored_batches(directory.logs[TopicPartition("topic-0", 0)])) == 1


@pytest.mark.parametrize("size", [0, BYTES_MIN])
def test_a_journal_of_another_size_is_removed(size: int) -> None:
    setup = Setup()
    setup.directory.close(NOW)
    directory = DataDirectory(setup.memory, DATA, LogConfig())
    assert directory.use_journal(size) is None
    assert not setup.memory.exists(f"{DATA}/{FILE_NAME}")


def test_an_error_while_it_is_made_leaves_nothing() -> None:
    setup = Setup()
    setup.files.fail("write_at", ENOSPC, name=FILE_NAME)
    with pytest.raises(OSError, match="No space"):
        make_journal(setup.files, DATA, SIZE)
    assert not setup.memory.exists(f"{DATA}/{FILE_NAME}")


def test_segments_that_only_the_journal_has_are_not_deleted_before_they_are_synced() -> None:
    setup = Setup()
    log = setup.logs[0]
    setup.wait("committed", setup.append())
    setup.queue.run_all()
    flush = log.begin_flush()  # of what is before, and out for long
    assert flush is not None
    log.roll()
    log.delete_before(log.high_watermark)
    assert log.condemned == [], "what follows it on disk would lack it"
    flush.run()
    flush.finish()
    assert [segment.base_offset for segment in log.condemned] == [0]


def test_deleted_records_take_nothing_with_them_in_a_power_cut() -> None:
    setup = Setup(size=BYTES_MIN)
    log = setup.logs[0]
    setup.wait("committed", setup.append())
    setup.queue.run_all()
    log.roll()
    log.delete_before(log.high_watermark)
    for number in range(20):  # through both halves of the journal
        setup.wait(str(number), setup.append())
        setup.queue.run_all()
    assert len(setup.answered) == 21
    left = setup.after_power_cut()["topic-0"]
    assert {offset: data for offset, data in left.items() if offset >= 2} == stored_batches(log)


def test_the_id_of_a_half_created_topic_is_on_disk_before_the_journal_uses_it() -> None:
    files = memory_files()
    log = DataDirectory(files, DATA, LogConfig()).create(TopicPartition("orders", 0), topic_id=bytes(16))
    log.append(batch_of(2), NOW)  # and killed: nothing was flushed, and all of it is in the page cache
    setup = Setup.__new__(Setup)
    setup.memory, setup.files, setup.answers = files, FaultyFiles(files), []
    setup.directory = DataDirectory(files, DATA, LogConfig())
    setup.logs = [setup.directory.logs[TopicPartition("orders", 0)]]
    setup.queue = FlushQueue()
    setup.queue.journal = setup.directory.journal = make_journal(files, DATA, SIZE)
    setup.wait("committed", setup.append())
    setup.queue.run_all()
    assert setup.answered == ["committed"]
    assert setup.after_power_cut() == {"orders": stored_batches(setup.logs[0])}


def test_who_has_come_first_is_served_first() -> None:
    setup = Setup(logs=JOURNAL_WRITE_LOGS_MAX + 5)
    for number, log in enumerate(setup.logs):
        setup.wait(str(number), setup.append(log), log)
    job = setup.commit()
    setup.wait("again", setup.append(setup.logs[0]))
    assert job.logs == setup.logs[:JOURNAL_WRITE_LOGS_MAX]
    job.run()
    setup.queue.finished(job)
    assert setup.commit().logs[:5] == setup.logs[JOURNAL_WRITE_LOGS_MAX:]


def test_an_error_that_nobody_foresaw_is_one_of_the_journal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup()

    def panic(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("tailrace.log.flush.journal.encode_journal_write", panic)
    setup.wait("all the same", setup.append())
    setup.queue.run_all()
    assert setup.answered == ["all the same"]
    assert setup.queue.journal is None


def test_a_log_that_nobody_said_was_appended_to_is_flushed_within_its_time_too() -> None:
    setup = Setup()
    log = setup.logs[0]
    log.append(batch_of(1), NOW)  # as the metadata log does it
    setup.queue.request(log)
    setup.queue.run_all()
    assert log.synced < log.end_offset
    setup.queue.tick(NOW + 5000)
    setup.queue.run_all()
    assert log.synced == log.end_offset


def test_a_log_that_is_offline_keeps_its_half_and_the_others_go_on_without(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup(logs=2, size=BYTES_MIN)
    setup.wait("kept", setup.append())
    setup.queue.run_all()
    setup.files.fail("sync", EIO, name=".log")
    setup.queue.tick(NOW + 5000)
    setup.queue.run_all()
    assert setup.logs[0].offline is not None
    for number in range(30):
        setup.wait(f"{number:02}", setup.append(setup.logs[1]), setup.logs[1])
        setup.queue.run_all()
    assert setup.answered == [*(f"{number:02}" for number in range(30)), "kept"]
    assert setup.queue.journal is None
    assert "offline" in caplog.text
    assert setup.after_power_cut()["topic-0"] == stored_batches(setup.logs[0])


def test_it_is_not_made_where_the_disk_has_no_room_for_it() -> None:
    setup = Setup()
    setup.files.space_left = Space(SIZE, 100 * SIZE)
    with pytest.raises(OSError, match="No space"):
        make_journal(setup.files, DATA, SIZE)
