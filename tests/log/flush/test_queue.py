"""Group commit: who is told when, how few flushes that takes, and that whoever was told is right."""

import queue as queues
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from logs import DATA, Waiting, batch_of, memory_files, stored_batches

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.flush.queue import FlushQueue
from tailrace.log.jobs import FlushJob, SaveJob
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import JobUnderWay, LogError, LogOffline
from tailrace.log.layout.names import TopicPartition
from tailrace.log.log import Log
from tailrace.testing.faulty_files import FaultyFiles

NOW = 5000


class Setup(Waiting):
    """Some logs on a disk in memory, and a queue."""

    def __init__(self, logs: int = 1, **options: int) -> None:
        super().__init__()
        self.memory = memory_files()
        self.files = FaultyFiles(self.memory)
        directory = DataDirectory(self.files, DATA, LogConfig())
        self.logs = [directory.create(TopicPartition("orders", number)) for number in range(logs)]
        for log in self.logs:
            log.flush()
        self.queue = FlushQueue(**options)

    def append(self, log: Log | None = None, now_ms: int = NOW) -> int:
        log = log or self.logs[0]
        end = log.append(batch_of(2), now_ms).last_offset + 1
        self.queue.appended(log, now_ms)
        return end

    def job(self) -> FlushJob | SaveJob:
        job = self.queue.next_job()
        assert isinstance(job, FlushJob | SaveJob)
        return job

    def finish(self, job: FlushJob | SaveJob) -> None:
        job.run()
        self.queue.finished(job)


def test_one_flush_serves_everyone_who_waits() -> None:
    setup = Setup()
    ends = [setup.append() for _ in range(50)]
    for number, end in enumerate(ends):
        setup.wait(str(number), end)
    assert setup.answers == [], "nobody is told before it is so"
    setup.files.count.clear()
    setup.queue.run_all()
    assert setup.answered == [str(number) for number in range(50)]
    assert setup.files.count["sync"] == 1
    assert setup.logs[0].high_watermark == ends[-1]


def test_who_asks_while_a_flush_runs_is_served_by_the_next_one() -> None:
    setup = Setup()
    setup.wait("early", setup.append())
    job = setup.job()
    job.run()
    setup.wait("late", setup.append())
    setup.queue.finished(job)
    assert setup.answered == ["early"]
    setup.finish(setup.job())
    assert setup.answered == ["early", "late"]
    assert setup.queue.next_job() is None


def test_who_asks_before_the_disk_was_is_served_by_the_flush_that_is_about_to_begin() -> None:
    setup = Setup()
    setup.wait("early", setup.append())
    job = setup.job()
    setup.wait("in time", setup.append())
    setup.finish(job)
    assert setup.answered == ["early", "in time"]
    assert setup.queue.next_job() is None


def test_what_comes_while_the_disk_syncs_is_not_taken_for_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup()
    called = setup.files.called
    setup.wait("early", end := setup.append())

    def append_meanwhile(kind: str, path: str) -> None:
        called(kind, path)
        if kind == "sync":
            setup.append()

    job = setup.job()
    monkeypatch.setattr(setup.files, "called", append_meanwhile)
    setup.finish(job)
    assert setup.answered == ["early"]
    assert (setup.logs[0].high_watermark, setup.logs[0].end_offset) == (end, end + 2)


def test_a_roll_before_the_disk_is_asked_leaves_what_is_new_to_the_next_flush() -> None:
    setup = Setup()
    setup.wait("early", end := setup.append())
    job = setup.job()
    setup.logs[0].roll()
    setup.wait("late", setup.append())
    setup.finish(job)
    assert setup.answered == ["early"]
    assert setup.logs[0].high_watermark == end
    setup.queue.run_all()
    assert setup.answered == ["early", "late"]


def test_who_asks_for_what_a_running_flush_covers_is_served_by_that_one() -> None:
    setup = Setup()
    end = setup.append()
    setup.queue.request(setup.logs[0])
    job = setup.job()
    setup.wait("during", end)
    assert not setup.queue.has_work, "another one would bring nothing new to disk"
    setup.finish(job)
    assert setup.answered == ["during"]


def test_who_asks_for_what_is_flushed_already_is_told_at_once() -> None:
    setup = Setup()
    end = setup.append()
    setup.logs[0].flush()
    setup.wait("flushed", end)
    setup.wait("nothing", 0)
    assert setup.answered == ["flushed", "nothing"]
    assert setup.queue.next_job() is None


def test_callers_are_notified_in_the_order_of_their_offsets_and_then_of_their_calls() -> None:
    setup = Setup()
    ends = [setup.append() for _ in range(6)]
    for number in (4, 0, 5, 2, 2, 0, 3):
        setup.wait(f"{number}{chr(97 + len(setup.queue._waiters.get(setup.logs[0], [])))}", ends[number])
    setup.queue.run_all()
    assert setup.answered == ["0b", "0f", "2d", "2e", "3g", "4a", "5c"]


def test_who_waits_for_what_is_not_appended_yet_waits_on() -> None:
    setup = Setup()
    end = setup.append()
    setup.wait("later", end + 1)
    setup.wait("now", end)
    setup.queue.run_all()
    assert setup.answered == ["now"]
    setup.append(now_ms=NOW)
    setup.queue.tick(NOW + 1000)
    setup.queue.run_all()
    assert setup.answered == ["now", "later"]


def test_who_is_told_may_ask_again() -> None:
    setup = Setup()
    told: list[int] = []

    def go_on(error: LogError | None) -> None:
        told.append(setup.logs[0].high_watermark)
        if len(told) < 3:
            setup.queue.when_flushed(setup.logs[0], setup.append(), go_on)

    setup.queue.when_flushed(setup.logs[0], setup.append(), go_on)
    setup.queue.run_all()
    assert told == [2, 4, 6]


def test_a_log_has_one_flush_in_flight() -> None:
    setup = Setup()
    setup.wait("first", setup.append())
    job = setup.job()
    job.run()
    setup.wait("second", setup.append())
    assert setup.queue.next_job() is None, "run, but not brought back"
    setup.queue.finished(job)
    assert setup.job().log is setup.logs[0]


def test_a_caller_is_served_after_a_job_of_another_owner_that_is_under_way() -> None:
    """As a checkpoint that was begun without the queue."""
    setup = Setup(2)
    setup.append()
    job = setup.logs[0].begin_checkpoint(NOW)
    setup.wait("one", setup.append())
    setup.wait("other", setup.append(setup.logs[1]), setup.logs[1])
    setup.finish(setup.job())
    assert setup.answered == ["other"]
    assert setup.queue.next_job() is None
    job.run()
    job.finish()
    setup.queue.run_all()
    assert setup.answered == ["other", "one"]


def test_a_log_in_flight_does_not_hold_up_the_others() -> None:
    setup = Setup(3)
    for log in setup.logs:
        setup.wait("first", setup.append(log), log)
    first = setup.job()
    setup.wait("second", setup.append(first.log), first.log)
    assert {setup.job().log, setup.job().log} == {*setup.logs} - {first.log}
    assert setup.queue.next_job() is None


def test_no_more_logs_are_flushed_at_a_time_than_allowed() -> None:
    setup = Setup(5, in_flight_max=2)
    for log in setup.logs:
        setup.wait(str(log.directory), setup.append(log), log)
    jobs = [setup.job(), setup.job()]
    assert setup.queue.next_job() is None
    served = []
    while jobs:
        job = jobs.pop(0)
        served.append(job.log)
        setup.finish(job)
        if (following := setup.queue.next_job()) is not None:
            assert isinstance(following, FlushJob | SaveJob)
            jobs.append(following)
        assert setup.queue.next_job() is None
    assert served == setup.logs, "the first to ask is the first to be flushed"
    assert len(setup.answered) == 5


def test_a_log_with_too_many_dirty_bytes_is_flushed_unasked() -> None:
    one = len(batch_of(2))
    setup = Setup(dirty_bytes_max=3 * one)
    setup.append()
    setup.append()
    assert setup.queue.next_job() is None
    setup.append()
    setup.finish(setup.job())
    assert setup.logs[0].high_watermark == 6
    setup.append()
    assert setup.queue.next_job() is None, "what is flushed is not dirty any more"


def test_a_log_that_was_dirty_for_too_long_is_flushed_unasked() -> None:
    setup = Setup(2, dirty_ms_max=100)
    setup.append(setup.logs[0], NOW)
    setup.append(setup.logs[1], NOW + 50)
    setup.append(setup.logs[0], NOW + 90)
    setup.queue.tick(NOW + 99)
    assert setup.queue.next_job() is None
    setup.queue.tick(NOW + 100)
    job = setup.job()
    assert job.log is setup.logs[0]
    assert setup.queue.next_job() is None
    job.run()
    setup.append(setup.logs[0], NOW + 120)
    setup.queue.finished(job)
    assert setup.logs[0].high_watermark == 4
    setup.queue.tick(NOW + 150)
    setup.finish(setup.job())
    assert setup.logs[1].high_watermark == 2
    setup.queue.tick(NOW + 219)
    assert setup.queue.next_job() is None
    setup.queue.tick(NOW + 220)
    assert setup.job().log is setup.logs[0], "what came during a flush is dirty since then"


def test_a_clock_that_is_put_back_delays_no_flush() -> None:
    setup = Setup(1, dirty_ms_max=100)
    setup.append(setup.logs[0], NOW)
    setup.queue.tick(NOW - 3_600_000)
    setup.finish(setup.job())
    assert setup.logs[0].high_watermark == 2


def test_a_log_that_is_clean_needs_no_flush_however_often_it_is_asked_for() -> None:
    setup = Setup()
    setup.queue.request(setup.logs[0])
    setup.queue.request(setup.logs[0])
    assert setup.queue.next_job() is None


def test_an_error_answers_everyone_who_waits_for_that_log_and_nobody_else() -> None:
    setup = Setup(2)
    setup.wait("a", setup.append(setup.logs[0]), setup.logs[0])
    setup.wait("other", setup.append(setup.logs[1]), setup.logs[1])
    job = setup.job()
    assert job.log is setup.logs[0]
    setup.wait("late", setup.append(setup.logs[0]), setup.logs[0])
    setup.files.fail("sync", EIO, name=".log")
    setup.finish(job)
    setup.wait("too late", setup.logs[0].end_offset, setup.logs[0])
    assert [(name, type(error)) for name, error in setup.answers] == [
        ("a", LogOffline),
        ("late", LogOffline),
        ("too late", LogOffline),
    ]
    setup.queue.run_all()
    assert setup.answers[3:] == [("other", None)]


def test_a_log_that_went_offline_between_flushes_answers_those_who_wait() -> None:
    setup = Setup()
    setup.wait("a", setup.append())
    setup.files.fail("write_at", EIO, name=".log")
    with pytest.raises(LogOffline):
        setup.append()
    assert setup.queue.next_job() is None
    assert [type(error) for _, error in setup.answers] == [LogOffline]


# Whoever was told is right


@pytest.mark.parametrize("seed", range(12))
def test_nobody_is_told_of_what_a_power_cut_can_take_back(seed: int) -> None:
    """Appends, rolls and flushes in any order that threads may give them, one step at a time."""
    setup = Setup(3, in_flight_max=2)
    lot, told = random.Random(seed), dict.fromkeys(range(3), 0)
    jobs: list[Any] = []
    for _ in range(60):
        number = lot.randrange(3)
        step = lot.choice(["append", "append", "roll", "begin", "run", "finish"])
        if step == "append":
            end = setup.append(setup.logs[number])

            def note(error: LogError | None, number: int = number, end: int = end) -> None:
                assert error is None
                told[number] = max(told[number], end)

            setup.queue.when_flushed(setup.logs[number], end, note)
        elif step == "roll":
            setup.logs[number].roll()
        elif step == "begin" and (job := setup.queue.next_job()) is not None:
            jobs.append([job, False])
        elif step == "run" and jobs:
            chosen = lot.choice(jobs)
            if not chosen[1]:
                chosen[0].run()
                chosen[1] = True
        elif step == "finish" and (done := [entry for entry in jobs if entry[1]]):
            chosen = lot.choice(done)
            jobs.remove(chosen)
            setup.queue.finished(chosen[0])
            check_told(setup, told, lot.random())
    assert any(told.values())


def check_told(setup: Setup, told: dict[int, int], seed: float) -> None:
    directory = DataDirectory(setup.memory.power_cut(int(seed * 1e9)), DATA, LogConfig())
    for number, end in told.items():
        if end:
            log = directory.logs[TopicPartition("orders", number)]
            assert log.end_offset >= end, f"log {number} was said to be flushed up to {end}"
            assert [offset for offset in stored_batches(log) if offset < end] == list(range(0, end, 2))


def test_flushes_in_threads_serve_many_appends_and_write_all_acknowledged_records(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=30_000)
    directory = DataDirectory(OperatingSystemFiles(descriptor_limit=10), str(tmp_path / "data"), config)
    logs = [directory.create(TopicPartition("orders", number)) for number in range(8)]
    flush_queue, done = FlushQueue(in_flight_max=4), queues.SimpleQueue[Any]()
    acknowledged, flushes, in_flight = dict.fromkeys(range(8), 0), 0, 0
    lot = random.Random(5)

    def run(job: Any) -> None:
        job.run()
        done.put(job)

    with ThreadPoolExecutor(4) as threads:
        for round_ in range(1500):
            number = lot.randrange(8)
            log = logs[number]
            end = log.append(batch_of(2, size=lot.choice([10, 500])), NOW).last_offset + 1
            flush_queue.appended(log, NOW)

            def note(error: LogError | None, number: int = number, end: int = end) -> None:
                assert error is None
                assert acknowledged[number] < end, "told twice, or out of order"
                assert logs[number].high_watermark >= end
                acknowledged[number] = end

            flush_queue.when_flushed(log, end, note)
            while (job := flush_queue.next_job()) is not None:
                in_flight += 1
                flushes += 1
                threads.submit(run, job)
            assert in_flight <= 4
            while in_flight and (in_flight == 4 or not done.empty()):
                flush_queue.finished(done.get())
                in_flight -= 1
            if round_ == 1000:
                promised = dict(acknowledged)
                shutil.copytree(tmp_path / "data", tmp_path / "copy")  # as a kill would leave it
        while in_flight or (job := flush_queue.next_job()) is not None:
            if not in_flight:
                in_flight += 1
                threads.submit(run, job)
            flush_queue.finished(done.get())
            in_flight -= 1
    assert acknowledged == {number: log.end_offset for number, log in enumerate(logs)}
    assert flushes < 1500, "one flush served several"
    copy = DataDirectory(OperatingSystemFiles(), str(tmp_path / "copy"), config)
    for number, end in promised.items():
        expected = {o: data for o, data in stored_batches(logs[number]).items() if o < end}
        found = stored_batches(copy.logs[TopicPartition("orders", number)])
        assert {o: data for o, data in found.items() if o < end} == expected
    copy.close(NOW)
    directory.close(NOW)


def test_a_log_that_has_rolled_is_flushed_first_and_saved_after_that() -> None:
    setup = Setup()
    log = setup.logs[0]
    end = setup.append()
    log.roll()
    setup.wait("one", setup.append())
    flush = setup.job()
    assert isinstance(flush, FlushJob)
    setup.finish(flush)
    assert setup.answered == ["one"]
    assert log.recovery_point < end, "what is derived is not saved yet"
    save = setup.queue.next_job()
    assert isinstance(save, SaveJob)
    setup.finish(save)
    assert log.recovery_point == log.high_watermark == end + 2
    assert setup.queue.next_job() is None


def test_nobody_who_waits_for_a_flush_waits_for_an_index_to_be_saved() -> None:
    setup = Setup()
    log = setup.logs[0]
    setup.append()
    setup.queue.request_checkpoint(log)
    setup.finish(setup.job())
    save = setup.queue.next_job()
    assert isinstance(save, SaveJob)
    setup.wait("meanwhile", setup.append())
    setup.finish(setup.job())
    assert setup.answered == ["meanwhile"]
    for refused in (lambda: log.begin_checkpoint(NOW), lambda: log.truncate(0)):
        with pytest.raises(JobUnderWay):
            refused()
    setup.finish(save)
    assert (log.recovery_point, log.high_watermark) == (2, 4)


def test_a_caller_that_fails_keeps_nobody_else_waiting() -> None:
    setup = Setup()
    end = setup.append()

    def fail(error: LogError | None) -> None:
        raise ValueError("a mistake of the caller's")

    setup.queue.when_flushed(setup.logs[0], end, fail)
    setup.wait("other", end)
    setup.queue.run_all()
    assert setup.answered == ["other"]


# A log's own limits


def test_a_log_is_flushed_after_as_many_records_as_its_config_says() -> None:
    setup = Setup(2)
    setup.logs[0].configure(LogConfig(flush_messages=5))
    for _ in range(2):
        setup.append(setup.logs[0])
        setup.append(setup.logs[1])
        assert setup.queue.next_job() is None
    setup.append(setup.logs[0])
    job = setup.job()
    assert job.log is setup.logs[0]
    setup.finish(job)
    assert setup.logs[0].high_watermark == 6
    setup.append(setup.logs[0])
    assert setup.queue.next_job() is None, "counted anew after each flush"


def test_a_log_is_flushed_after_the_milliseconds_in_its_config_if_that_is_sooner() -> None:
    setup = Setup(3, dirty_ms_max=1000)
    setup.logs[1].configure(LogConfig(flush_ms=100))
    setup.logs[2].configure(LogConfig(flush_ms=5000))
    for log in setup.logs:
        setup.append(log, NOW)
    setup.append(setup.logs[1], NOW + 90)
    setup.queue.tick(NOW + 99)
    assert setup.queue.next_job() is None
    setup.queue.tick(NOW + 100)
    job = setup.job()
    assert job.log is setup.logs[1]
    setup.finish(job)
    setup.queue.tick(NOW + 999)
    assert setup.queue.next_job() is None
    setup.queue.tick(NOW + 1000)
    assert {setup.job().log, setup.job().log} == {setup.logs[0], setup.logs[2]}


def checkpoint(setup: Setup, log: Log) -> None:
    setup.append(log)
    setup.queue.request_checkpoint(log)
    setup.queue.run_all()
    assert log.recovery_point == log.end_offset


def test_checkpoints_forget_producers_by_the_steady_clock_alone() -> None:
    setup = Setup()
    log = setup.logs[0]
    log.configure(LogConfig(producer_id_expiration_ms=5000))
    log.append(batch_of(1, producer=7, sequence=0), NOW)
    checkpoint(setup, log)
    setup.queue.tick(NOW, 1000)
    checkpoint(setup, log)
    setup.queue.tick(NOW + 10**12, 6000)
    checkpoint(setup, log)
    assert 7 in log.producers.producers
    setup.queue.tick(NOW, 6001)
    checkpoint(setup, log)
    assert 7 not in log.producers.producers
