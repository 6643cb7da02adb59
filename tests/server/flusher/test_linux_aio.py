"""Syncs that the system does: who is told what, and what is left to threads."""

import asyncio
import sys
import time
from collections.abc import Callable
from errno import EIO
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from logs import ORDERS, batch_of
from nodes import LOOPS, RunningNode
from raw_client import RawClient

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.interface import Files
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.jobs import FlushJob
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import LogOffline
from tailrace.log.log import Log
from tailrace.server import node
from tailrace.server.flusher import linux_aio as syncing
from tailrace.server.flusher.linux_aio import LEAST_BYTES, Syncs, System
from tailrace.testing.faulty_files import FaultyFiles

LARGE = LEAST_BYTES + 1000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="for Linux alone")


def begun(log: Log, size: int = LARGE) -> FlushJob:
    log.append(batch_of(1, size=size), 0)
    job = log.begin_flush()
    assert job is not None
    return job


def new_log(path: Path, files: Files | None = None) -> Log:
    return DataDirectory(files or OperatingSystemFiles(), str(path), LogConfig()).create(ORDERS)


@pytest.fixture(params=LOOPS)
def on_loop(request: pytest.FixtureRequest) -> Callable[[Callable[[Syncs], Any]], None]:
    """Runs it with syncs that are open."""

    def run(main: Callable[[Syncs], Any]) -> None:
        async def in_loop() -> None:
            syncs = Syncs(asyncio.get_running_loop())
            syncs.open()
            try:
                await main(syncs)
            finally:
                syncs.close()

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(in_loop())

    return run


def test_the_loop_is_told_of_each_that_is_done(on_loop: Any, tmp_path: Path) -> None:
    async def main(syncs: Syncs) -> None:
        log = new_log(tmp_path)
        log.flush()
        for end in (1, 2, 3):
            job, done = begun(log), asyncio.Event()
            assert syncs.start(job, done.set)
            assert syncs.under_way == 1
            async with asyncio.timeout(10):
                await done.wait()
            assert syncs.under_way == 0
            job.finish()
            assert log.high_watermark == end

    on_loop(main)


def test_several_are_under_way_at_once(on_loop: Any, tmp_path: Path) -> None:
    async def main(syncs: Syncs) -> None:
        logs = [new_log(tmp_path / str(number)) for number in range(4)]
        for log in logs:
            log.flush()
        done: list[FlushJob] = []
        jobs = [begun(log) for log in logs]
        for job in jobs:
            assert syncs.start(job, lambda job=job: done.append(job))  # type: ignore[misc]
        async with asyncio.timeout(10):
            while syncs.under_way:
                await asyncio.sleep(0.001)
        assert sorted(map(id, done)) == sorted(map(id, jobs))
        assert all(job.failure is None for job in jobs)

    on_loop(main)


def test_what_is_small_or_more_than_a_sync_is_for_threads(on_loop: Any, tmp_path: Path) -> None:
    async def main(syncs: Syncs) -> None:
        log = new_log(tmp_path)
        first = begun(log)  # brings the names of new files to disk, too
        assert first.only_file is None
        assert not syncs.start(first, lambda: None)
        first.run()
        first.finish()
        assert not syncs.start(begun(log, size=100), lambda: None)

    on_loop(main)


def test_files_that_want_to_see_a_sync_see_it(on_loop: Any, tmp_path: Path) -> None:
    async def main(syncs: Syncs) -> None:
        log = new_log(tmp_path, FaultyFiles(OperatingSystemFiles()))
        log.flush()
        assert not syncs.start(begun(log), lambda: None)

    on_loop(main)


def test_a_disk_that_fails_takes_the_log_offline(on_loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(syncs: Syncs) -> None:
        log = new_log(tmp_path)
        log.flush()
        job, done = begun(log), asyncio.Event()
        finished = System.finished
        monkeypatch.setattr(System, "finished", lambda self: [(number, -EIO) for number, _ in finished(self)])
        assert syncs.start(job, done.set)
        async with asyncio.timeout(10):
            await done.wait()
        failure = job.failure
        assert failure is not None
        assert failure.errno == EIO
        with pytest.raises(LogOffline):
            job.finish()

    on_loop(main)


def test_what_the_system_does_not_take_is_for_threads(
    on_loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(syncs: Syncs) -> None:
        log = new_log(tmp_path)
        log.flush()
        job = begun(log)
        monkeypatch.setattr(System, "submit", lambda *_: False)
        assert not syncs.start(job, lambda: None)
        assert syncs.under_way == 0

    on_loop(main)


def test_a_descriptor_that_cannot_be_synced_is_refused() -> None:
    system = System(4)
    try:
        assert not system.submit(system.eventfd, 1)
    finally:
        system.close()


def test_all_are_told_although_one_of_them_fails(
    on_loop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(syncs: Syncs) -> None:
        logs = [new_log(tmp_path / str(number)) for number in range(3)]
        told: list[int] = []

        def done(number: int) -> None:
            told.append(number)
            raise RuntimeError("nobody foresaw that")

        for number, log in enumerate(logs):
            log.flush()
            assert syncs.start(begun(log), partial(done, number))
        time.sleep(0.1)  # noqa: ASYNC251 - so that the loop hears of all at once
        async with asyncio.timeout(10):
            while syncs.under_way:
                await asyncio.sleep(0.001)
        assert sorted(told) == [0, 1, 2]
        assert "nobody foresaw that" in caplog.text

    on_loop(main)


def test_closing_waits_for_what_is_under_way(on_loop: Any, tmp_path: Path) -> None:
    async def main(syncs: Syncs) -> None:
        log = new_log(tmp_path)
        log.flush()
        job, told = begun(log), []
        assert syncs.start(job, lambda: told.append(job))
        syncs.close()
        assert told == [job]
        assert job.failure is None
        assert not syncs.start(job, lambda: None)

    on_loop(main)


def test_a_log_may_be_removed_while_it_is_synced(on_loop: Any, tmp_path: Path) -> None:
    async def main(syncs: Syncs) -> None:
        directory = DataDirectory(OperatingSystemFiles(), str(tmp_path), LogConfig())
        log = directory.create(ORDERS)
        log.flush()
        job, done = begun(log), asyncio.Event()
        assert syncs.start(job, done.set)
        removal = directory.begin_remove([ORDERS])
        removal.run()
        async with asyncio.timeout(10):
            await done.wait()
        assert job.finish() is None

    on_loop(main)


def test_a_file_that_cannot_be_opened_again_takes_the_log_offline_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "SETTLED_S", 0.0)
    files = OperatingSystemFiles()
    with RunningNode(tmp_path, files=files) as running, RawClient(running.address) as client:
        running.create_topic()
        running.create_topic("others")
        client.produce(b"first")

        def write_and_lose_the_file() -> None:
            log = running.node.directory.logs[ORDERS]
            log.append(batch_of(1, size=LARGE), 0)
            with files._descriptors.mutex:
                files._descriptors._shrink_to(0)
            Path(log.active.log.path).rename(tmp_path / "lost")
            running.node.broker.flushes.request(log)
            running.node.pump()

        running.on_loop(write_and_lose_the_file)
        running.until(lambda: running.node.directory.logs[ORDERS].offline)
        assert client.produce(bytes(LARGE), topic="others").base_offset == 0


def test_an_architecture_that_nobody_knows_has_threads_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing.os, "uname", lambda: SimpleNamespace(machine="abacus"))

    async def main() -> None:
        syncs = Syncs(asyncio.get_running_loop())
        syncs.open()
        log = new_log(tmp_path)
        log.flush()
        assert not syncs.start(begun(log), lambda: None)
        syncs.close()

    asyncio.run(main())


def test_a_large_batch_is_acknowledged_without_a_thread_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "SETTLED_S", 0.0)
    with RunningNode(tmp_path) as running, RawClient(running.address) as client:
        running.create_topic()
        client.produce(b"first")  # which makes files
        started: list[Any] = []
        monkeypatch.setattr(running.node.flusher.threads, "submit", lambda *job: started.append(job))
        assert client.produce(bytes(LARGE)).base_offset == 1
        assert started == []
